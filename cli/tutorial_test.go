package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTheTutorialDoesWhatItSays runs the commands of docs/TUTORIAL.md in their order. A text behind # comes
// in their output.
func TestTheTutorialDoesWhatItSays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "shop")
	r := &running{}
	n := 0
	for _, b := range docBlocks(t) {
		if filepath.Base(b.page) != "TUTORIAL.md" || b.info != "sh" {
			continue
		}
		for line := range strings.Lines(b.text) {
			line, says, _ := strings.Cut(strings.TrimSpace(line), " # ")
			rest, is := strings.CutPrefix(strings.TrimSpace(line), "edda ")
			if !is {
				continue
			}
			n++
			args := shellWord.FindAllString(rest, -1)
			for i, word := range args {
				if args[i] = strings.Trim(word, "'"); word == "shop" {
					args[i] = dir
				}
			}
			says = strings.ReplaceAll(says, "shop/", dir+string(filepath.Separator))
			switch args[0] {
			case "dev":
				r = startDev(t, append(args[1:], "--data", t.TempDir())...)
			case "init", "lint", "test", "graph", "send", "mock":
				if code, out := r.edda(t, args...); code != exitDone || !strings.Contains(out, says) {
					t.Fatalf("edda %s: %d, want %q\n%s", rest, code, says, out)
				}
			default: // what it shows comes soon
				r.until(t, says, args...)
			}
		}
	}
	if n < 18 {
		t.Errorf("only %d commands are in the tutorial: the test does not find them", n)
	}
}
