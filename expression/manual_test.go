package expression

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheManualListsEveryFunction evaluates the calls of the table of functions: each gives the value behind it,
// and each function has one.
func TestTheManualListsEveryFunction(t *testing.T) {
	page, err := os.ReadFile("../docs/LANGUAGE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\n### Functions\n")
	list, _, _ = strings.Cut(list, "\n#")
	var shown []string
	for _, m := range regexp.MustCompile("`([^`]+)` → `([^`]+)`").FindAllStringSubmatch(list, -1) {
		p := compile(t, m[1])
		got, err := p.Eval(Env{Vars: map[string]any{"now": "2026-01-01T00:00:00.000Z"}, Source: given{ids: "id-of-"}})
		if err != nil {
			t.Errorf("%s: %v", m[1], err)
			continue
		}
		text := strings.TrimSuffix(strings.TrimPrefix(Text([]any{got}), "["), "]") // so that a text has its quotes
		if text != m[2] {
			t.Errorf("%s is %s, docs/LANGUAGE.md has %s", m[1], text, m[2])
		}
		shown = append(shown, called(m[1])...)
	}
	for _, name := range Functions() {
		if !slices.Contains(shown, name) {
			t.Errorf("docs/LANGUAGE.md shows no call of %s under Functions", name)
		}
	}
}
