package main

import (
	"crypto/sha256"
	"os"
	"path/filepath"
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
	file := filepath.Join(t.TempDir(), "actors")
	write(t, file, "# who may call\n"+line+"a-token-for-development 7\n")
	got, err := readActorTokens(file)
	if err != nil || got.hashes[sha256.Sum256([]byte(secret))] != 1001 || len(got.hashes) != 1 || got.plain["a-token-for-development"] != 7 || len(got.plain) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	for name, text := range map[string]string{
		"a hash too short":       "sha256:abcd 7",
		"a hash too long":        access.Hash("x") + "00 7",
		"no actor":               access.Hash("x"),
		"actor 0":                access.Hash("x") + " 0",
		"an actor too large":     access.Hash("x") + " 4294967296",
		"nothing":                "# nobody\n",
		"two actors of one":      access.Hash("secret-of-two") + " 1\n" + access.Hash("secret-of-two") + " 2",
		"two actors of one text": access.Hash("secret-of-two") + " 1\nsecret-of-two 2",
	} {
		write(t, file, text)
		if got, err := readActorTokens(file); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), access.Hash("x")[10:]) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	large(t, file, mostActorTokens+1)
	if _, err := readActorTokens(file); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file without an end: %v", err)
	}
	if _, err := clientTLS(file, file, ""); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a certificate without an end: %v", err)
	}
	for _, args := range [][]string{{"--actor", "0"}, {"--actor", "-1"}, {"--actor", "7", "--name", "x"}, {"--actor", "7", "--expires", "1d"}} {
		if code, out, said := shell(t, nil, append([]string{"token", "create"}, args...)...); code != 2 || out != "" {
			t.Errorf("%v: %d %s %s", args, code, out, said)
		}
	}
}

// large makes a file of so many bytes, that takes no room.
func large(t *testing.T, path string, bytes int64) {
	t.Helper()
	if err := os.Truncate(path, bytes); err != nil {
		t.Fatal(err)
	}
}
