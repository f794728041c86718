package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edda"
)

// TestTheManualShowsWhatActsNeed: each act of an operator stands in "Act" with
// --why, and with --yes where it asks; others without.
func TestTheManualShowsWhatActsNeed(t *testing.T) {
	page, err := os.ReadFile("../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Operator commands\n")
	text, _, _ = strings.Cut(text, "\n## ")
	acts := 0
	for _, cmd := range (&terminal{}).instanceCommand().Commands() {
		flags := cmd.Flags()
		if flags.Lookup("why") == nil {
			continue
		}
		acts++
		line := lineOf(text, cmd.Name())
		if asks := flags.Lookup("yes") != nil; !strings.Contains(line, "--why TEXT") || strings.Contains(line, "--yes") != asks {
			t.Errorf("%s, which asks: %t, stands there as %q", cmd.Name(), asks, line)
		}
	}
	if acts != 6 {
		t.Errorf("%d acts", acts)
	}
}

// lineOf is the example that names a verb of an instance, without its comment.
func lineOf(text, verb string) string {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		verbs, ok := strings.CutPrefix(line, "edda instance ")
		names, _, _ := strings.Cut(verbs, " ")
		if ok && strings.Contains("|"+names+"|", "|"+verb+"|") {
			return line
		}
	}
	return ""
}

// TestTheManualListsEveryDeadReason: the table says what a redrive does for each reason.
func TestTheManualListsEveryDeadReason(t *testing.T) {
	page, err := os.ReadFile("../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n| reason | what died | redrive |\n")
	text, _, _ = strings.Cut(text, "\n\n")
	var listed []string
	for row := range strings.Lines(text) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed = append(listed, m[1])
			}
		}
	}
	if want := slices.Sorted(slices.Values(edda.DeadReasons)); !slices.Equal(want, slices.Sorted(slices.Values(listed))) {
		t.Errorf("the table has %v, want %v", listed, want)
	}
}
