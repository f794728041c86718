package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile(`^edda_[a-z0-9_]+$`)

// metricsOf returns the metrics that a file can register: the names in its options, in its
// descriptions and in the calls of its helpers.
func metricsOf(f file) (names []string) {
	uses := slices.Contains(slices.Collect(maps.Values(f.imports())), "github.com/prometheus/client_golang/prometheus")
	if f.test || !uses {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil && metricName.MatchString(name) {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// tableOf counts the names in the first column of a section's table.
func tableOf(t *testing.T, page, section string, name *regexp.Regexp) map[string]int {
	t.Helper()
	_, text, found := strings.Cut(page, "\n"+section+"\n")
	if !found {
		t.Fatalf("there is no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string]int{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.TrimSpace(cells[0]) == "" {
			for _, m := range name.FindAllString(cells[1], -1) {
				rows[m]++
			}
		}
	}
	return rows
}

// The manual explains every metric.
func TestTheManualListsEveryMetric(t *testing.T) {
	files, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := tableOf(t, string(page), "## Metrics", regexp.MustCompile(`edda_[a-z0-9_]+`))
	there := map[string]bool{}
	for _, f := range files {
		for _, name := range metricsOf(f) {
			there[name] = true
		}
	}
	if len(there) < 80 {
		t.Fatalf("only %d metrics were found", len(there))
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if listed[name] != 1 {
			t.Errorf("%s is in the table of metrics %d times", name, listed[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !there[name] {
			t.Errorf("%s is in the table of metrics, and nothing registers it", name)
		}
	}
}
