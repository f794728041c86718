//go:build !race

package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/txtar"

	"edda/internal/testkit"
	"edda/manifests"
	"edda/node"
	"edda/saga"
)

// repositoryManifests returns the files of the repository that hold a saga or an effect, by their paths.
func repositoryManifests(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	testkit.Must(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && manifestFile(path) && isManifest(path) {
			out[path], err = os.ReadFile(path)
		}
		return err
	}))
	for i, b := range docBlocks(t) {
		if b.info == "yaml" && (strings.HasPrefix(b.text, "saga: ") || strings.HasPrefix(b.text, "effect: ")) {
			out[fmt.Sprintf("%s, block %d", b.page, i)] = []byte(b.text)
		}
	}
	if len(out) < 80 {
		t.Errorf("only %d manifests: the test does not find them", len(out))
	}
	return out
}

// TestEveryManifestIsFormatted, except those whose layout is what they test.
func TestEveryManifestIsFormatted(t *testing.T) {
	t.Parallel()
	for name, source := range repositoryManifests(t) {
		if strings.Contains(name, "testdata/problems/") || strings.Contains(name, "testdata/hostile/") {
			continue
		}
		text, problems := manifests.Format(name, source)
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems[0])
		} else if !bytes.Equal(source, text) {
			t.Errorf("%s is not formatted: run edda fmt\n%s", name, diff.Diff(name, source, name, text))
		}
	}
}

// TestFormattingChangesNoVerdict formats manifests, good and bad ones, as they are and in another layout,
// and compares what lint says and how their tests end.
func TestFormattingChangesNoVerdict(t *testing.T) {
	t.Parallel()
	sources := repositoryManifests(t)
	for _, path := range append(testkit.Value[[]string](t)(filepath.Glob("testdata/scripts/*.txtar")), "testdata/mistakes.txtar") {
		for _, f := range testkit.Value[*txtar.Archive](t)(txtar.ParseFile(path)).Files {
			if manifestFile(f.Name) {
				sources[path+" "+f.Name] = f.Data
			}
		}
	}
	formatted := 0
	for name, source := range sources {
		for _, before := range [][]byte{source, disordered(source)} {
			after, problems := manifests.Format(name, before)
			if len(problems) > 0 {
				if strings.Contains(problems[0].Message, "edda fmt") {
					t.Errorf("%s: %v\n%s", name, problems[0], before)
				}
				continue
			}
			formatted++
			if a, b := verdict(t, before), verdict(t, after); a != b {
				t.Errorf("%s:\n%s\nis formatted to\n%s\nand was\n%s\nand is\n%s", name, before, after, a, b)
			}
		}
	}
	if formatted < 350 {
		t.Errorf("only %d of %d manifests were formatted", formatted, len(sources))
	}
}

var (
	leadingSpaces = regexp.MustCompile(`(?m)^ +`)
	position      = regexp.MustCompile(`:\d+(:\d+)?`)
)

// disordered returns a text with another layout, and mostly the same meaning: a text in quotes may change.
func disordered(source []byte) []byte {
	source = leadingSpaces.ReplaceAllFunc(source, func(s []byte) []byte { return bytes.Repeat(s, 2) })
	return []byte(strings.NewReplacer("\n", " \r\n", ", ", "  ,", ": ", " :   ", "[", "[ ", "}", "  }", "\ntests:", "\r\n\r\n\r\n\r\ntests:").Replace(string(source)))
}

// verdict is what lint says of a manifest, and the outcomes of its tests, without the positions.
func verdict(t *testing.T, source []byte) string {
	t.Helper()
	path := filepath.Join(folder(t, map[string]string{"x.yaml": string(source)}), "x.yaml")
	var b strings.Builder
	for _, p := range testkit.Value[manifests.Problems](t)(node.Lint([]string{path})) {
		fmt.Fprintln(&b, severity(p), p.RuleID(), p.Message)
	}
	f, problems := manifests.Parse(path, source)
	for _, m := range f.Sagas {
		if broken(f, problems) {
			continue
		}
		results, more := saga.RunTests(m, saga.Options{})
		for _, p := range more {
			fmt.Fprintln(&b, p.Message)
		}
		for _, r := range results {
			fmt.Fprintln(&b, r.Name, r.Passed, r.Diff)
		}
	}
	return position.ReplaceAllString(strings.ReplaceAll(b.String(), filepath.Dir(path), ""), "")
}

func TestInitWritesFormattedManifests(t *testing.T) {
	t.Parallel()
	for _, pattern := range patternNames() {
		dir, _ := inits(t, pattern)
		if code, out, said := shell(t, nil, "fmt", "--check", dir); code != exitDone || out != "" {
			t.Errorf("%s: %d %s%s", pattern, code, out, said)
		}
	}
}
