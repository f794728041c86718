package cli

import (
	"strings"
	"testing"

	"edda/access"
)

func TestTheCoordinatorsTokensAreHashes(t *testing.T) {
	code, secret, said := shell(t, nil, "token", "create", "--actor", "1001")
	secret = strings.TrimSpace(secret)
	_, line, _ := strings.Cut(said, "hero.api.tokens:\n")
	if code != 0 || !strings.HasPrefix(secret, "edda_") || strings.Contains(said, secret) || line != access.Hash(secret)+" 1001\n" {
		t.Fatalf("%d %q %q", code, secret, said)
	}
	for _, args := range [][]string{{"--actor", "0"}, {"--actor", "-1"}, {"--actor", "7", "--name", "x"}, {"--actor", "7", "--expires", "1d"}} {
		if code, out, said := shell(t, nil, append([]string{"token", "create"}, args...)...); code != 2 || out != "" {
			t.Errorf("%v: %d %s %s", args, code, out, said)
		}
	}
}
