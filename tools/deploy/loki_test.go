//go:build !race

package deploy

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The words that the example reads from a line are those of the log. A line of a broken start
// has the level and the time; the others are looked for where the product names them.
func TestTheLokiExampleReadsTheWordsOfTheLog(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(read(t, "deploy/loki/alloy.alloy"), "expressions = {")
	if !found {
		t.Fatal("the example reads no words")
	}
	text, _, _ = strings.Cut(text, "}")
	words := regexp.MustCompile(`(?m)^\s+([a-z_]+)\s+= ""`).FindAllStringSubmatch(text, -1)
	if len(words) < 5 {
		t.Fatalf("the example reads %v", words)
	}
	for _, w := range words {
		switch w[1] {
		case "level", "ts", "logger": // of the encoder
			continue
		}
		out, err := exec.Command("grep", "-rlE", "--include=*.go", `zap\.[A-Z][a-z]*\("`+w[1]+`"`, filepath.Join(root, "engine"), filepath.Join(root, "effects")).Output()
		if err != nil || len(out) == 0 {
			t.Errorf("no line of the log has the word %q: %v", w[1], err)
		}
	}
}
