package cli

import (
	"strings"
	"testing"
)

const heroExamples = "../manifests/hero"

func TestTheHeroExampleHolds(t *testing.T) {
	for _, verb := range []string{"lint", "test"} {
		out, err := newScreen(), newScreen()
		term := &terminal{in: strings.NewReader(""), out: out, err: err}
		if code := term.run(t.Context(), []string{verb, heroExamples}); code != 0 {
			t.Errorf("edda %s: exit %d\n%s%s", verb, code, out, err)
		}
		if verb == "test" && !strings.Contains(out.String(), "2 passed, 0 failed") {
			t.Errorf("edda test says %s", out)
		}
	}
}
