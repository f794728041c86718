package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"edda/node"
)

// TestEachMistakeGetsOneAnswer lints the manifests of an archive, each with one common mistake, and
// compares the reports. A mistake gives one error or warning, which names the mend: -update records
// the reports, for a reader to judge them.
func TestEachMistakeGetsOneAnswer(t *testing.T) {
	t.Parallel()
	const file = "testdata/mistakes.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The comment of the archive is an effect that the sagas use.
	before, effect, found := strings.Cut(string(archive.Comment), "\n\n")
	if !found {
		t.Fatalf("%s begins with %q, not with a comment and an effect", file, before)
	}
	recorded := map[string]string{}
	var manifests []txtar.File
	for _, f := range archive.Files {
		if name, ok := strings.CutSuffix(f.Name, ".txt"); ok {
			recorded[name] = string(f.Data)
		} else {
			manifests = append(manifests, f)
		}
	}
	if len(manifests) < 40 {
		t.Errorf("%s has %d manifests", file, len(manifests))
	}
	var now []txtar.File
	for _, f := range manifests {
		name := strings.TrimSuffix(f.Name, ".yaml")
		dir := t.TempDir()
		for path, data := range map[string][]byte{"effects.yaml": []byte(effect), f.Name: f.Data} {
			if err := os.WriteFile(filepath.Join(dir, path), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		problems, err := node.Lint([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		if len(problems) != 1 {
			t.Errorf("%s: %d problems, want one", f.Name, len(problems))
		}
		var out bytes.Buffer
		problems.Print(&out, false)
		got := strings.ReplaceAll(out.String(), dir+string(filepath.Separator), "")
		if got != recorded[name] && !*update {
			t.Errorf("%s:\n%s\nwant\n%s", f.Name, got, recorded[name])
		}
		now = append(now, f, txtar.File{Name: name + ".txt", Data: []byte(got)})
	}
	if *update {
		archive.Files = now
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
