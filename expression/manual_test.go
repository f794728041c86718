package expression

import (
	"os"
	"strings"
	"testing"
)

func TestTheManualListsEveryFunction(t *testing.T) {
	page, err := os.ReadFile("../docs/LANGUAGE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\n### Functions\n")
	list, _, _ = strings.Cut(list, "\n#")
	for _, name := range Functions() {
		if !strings.Contains(list, "`"+name+"(") {
			t.Errorf("docs/LANGUAGE.md does not list %s(…) under Functions", name)
		}
	}
}
