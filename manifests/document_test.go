package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const one, two = "# first\nsaga: one\non: {E: }\n", "saga: two\non:\n  E: {set: {text: \"--- no\", more: |\n    x\n    --- y\n    }}\n"

func TestSourceIsTheDocumentsOwnText(t *testing.T) {
	second := strings.Replace(two, "|\n    x\n    --- y\n    ", "x", 1)
	for name, text := range map[string]string{
		"markers":    one + "---\n" + second,
		"leading":    "---\n" + one + "--- # next\n" + second,
		"end marker": one + "...\n" + second,
		"bom":        "\ufeff" + one + "---\n" + second,
		"directives": "---\n" + one + "...\n---\n" + second + "...\n",
	} {
		f := clean(t, text)
		var got []string
		for _, s := range f.Sagas {
			got = append(got, string(s.Source))
		}
		if diff := cmp.Diff([]string{one, second}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAStoredSourceParsesToTheSameHash(t *testing.T) {
	for _, text := range []string{one + "---\n" + one[8:], "--- {saga: x, on: {E: }}\n", "---   \nsaga: x\non: {E: }\n"} {
		for _, s := range mustParse(text).Sagas {
			again := clean(t, string(s.Source)).Sagas[0]
			if again.Hash != s.Hash || string(again.Source) != string(s.Source) {
				t.Errorf("%q became %q", s.Source, again.Source)
			}
		}
	}
}

// mustParse parses a file that may have problems.
func mustParse(text string) *File {
	f, _ := Parse("x.yaml", []byte(text))
	return f
}

func TestHash(t *testing.T) {
	const text = "saga: x\non: {E: }"
	sum := sha256.Sum256([]byte(text))
	want := hex.EncodeToString(sum[:])
	for _, same := range []string{
		text, text + "\n", "\n\n" + text + "\n \n\n", "---\n" + text, strings.ReplaceAll(text, "\n", "\r\n") + "\r\n",
		strings.ReplaceAll(text, "\n", "\r"), text + "\n---\nsaga: y\non: {E: }\n", "\ufeff" + text,
	} {
		if got := clean(t, same).Sagas[0].Hash; got != want {
			t.Errorf("%q has the hash %s, want %s", same, got, want)
		}
	}
	for _, other := range []string{text + " ", text + "\n# comment", "  " + strings.ReplaceAll(text, "\n", "\n  "), text + "\ntests: []"} {
		if got := clean(t, other).Sagas[0].Hash; got == want {
			t.Errorf("%q has the same hash", other)
		}
	}
}

func TestPositionsCountThroughDocuments(t *testing.T) {
	f := clean(t, one+"---\n"+"saga: two\nkey: a\non: {E: }\n---\neffect: e\nhttp: {}\n")
	if got := f.Sagas[1].Key.Pos; got != (Pos{6, 6}) {
		t.Error(got)
	}
	if got := f.Effects[0].Name.Pos; got != (Pos{9, 9}) {
		t.Error(got)
	}
}

func TestASyntaxErrorHidesNoOtherDocument(t *testing.T) {
	f, ps := Parse("x.yaml", []byte("saga: [\n---\nsaga: two\nkey: =a\non: {E: }\n"))
	if len(ps) != 2 || ps[1].Pos != (Pos{4, 6}) || len(f.Sagas) != 1 {
		t.Error(ps, f.Sagas)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1d": day, "7d": 7 * day, "1d12h": day + 12*time.Hour,
		"1.5d": 36 * time.Hour, "-1d12h": -36 * time.Hour, "+2d": 2 * day, "-5m": -5 * time.Minute, "100ms": 100 * time.Millisecond, "106751d": 106751 * day,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "5", "1 d", "1d-5m", "1d+5m", "--1d", "1d1d", "1h1d", "1e3d", "infd", "nand", "1..5d", "106752d", "106751d24h", "999999999999d", "x", "1D", "-", "+",
	} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"when", "set", "unset", "missing", "compensate"}
	for word, want := range map[string]string{
		"wehn": "when", "when": "when", "WHEN": "when", "wen": "when", "unst": "unset", "compansete": "compensate", "misisng": "missing",
		"x": "", "banana": "", "": "", strings.Repeat("when", 100): "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q is nearest to %q, want %q", word, got, want)
		}
	}
}

func TestParseFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "saga: b\non: {E: }\n", "a.yml": "saga: a\non: {E: }\n", "sub/c.yaml": "effect: c\nhttp: {}\n",
		".hidden.yaml": "nonsense", ".git/d.yaml": "nonsense", "readme.md": "nonsense", "z.yaml.bak": "nonsense",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	files, ps, err := ParseFiles(filepath.Join(dir, "b.yaml"), dir, dir+"/./a.yml")
	if err != nil || len(ps) > 0 {
		t.Fatal(ps, err)
	}
	var names []string
	for _, f := range files {
		rel, err := filepath.Rel(dir, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, rel)
	}
	if diff := cmp.Diff([]string{"b.yaml", "a.yml", "sub/c.yaml"}, names); diff != "" {
		t.Error(diff)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestParseFilesThroughALink(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..data", "a.yaml"), "saga: a\non: {E: }\n")
	if err := os.Mkdir(filepath.Join(dir, "mount"), 0o755); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"mount/a.yaml": "../..data/a.yaml", "link": "mount"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	files, ps, err := ParseFiles(filepath.Join(dir, "link"))
	if err != nil || len(ps) > 0 || len(files) != 1 || len(files[0].Sagas) != 1 {
		t.Error(files, ps, err)
	}
}

func TestParseFilesFindsDuplicateDefinitions(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "saga: s\non: {E: }\n---\neffect: e\nhttp: {}\n---\nsaga: own\non: {E: }\n---\nsaga: own\non: {E: }\n")
	write(t, filepath.Join(dir, "b.yaml"), "saga: s\nversion: 2\non: {E: }\n---\nsaga: s\nversion: 1\non: {E: }\n---\neffect: e\nversion: 2\nhttp: {}\n")
	_, ps, err := ParseFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range ps {
		got = append(got, strings.ReplaceAll(p.Error(), dir+"/", ""))
	}
	want := []string{
		"a.yaml:10:7: error: saga own version 1 is defined twice, first in a.yaml:7: keep one",
		"b.yaml:5:7: error: saga s version 1 is defined twice, first in a.yaml:1: keep one",
		"b.yaml:9:9: error: effect e is defined twice, first in a.yaml:4: keep one",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseFilesReportsUnreadableFiles(t *testing.T) {
	empty := t.TempDir()
	for _, path := range []string{filepath.Join(empty, "none.yaml"), empty} {
		if _, _, err := ParseFiles(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestMarker(t *testing.T) {
	for text, want := range map[string]string{
		"---": "---", "...": "...", "--- x": "---", "---\tx": "---", "---x": "", "----": "", "--": "", "": "", " ---": "", "....": "",
	} {
		if got := marker([]byte(text)); got != want {
			t.Errorf("%q is the marker %q, want %q", text, got, want)
		}
	}
}

// TestAPipeInAFolderIsAProblem, and the other files are read.
func TestAPipeInAFolderIsAProblem(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("saga: a\nkey: event.id\non: {Go: {start: true}}\nnonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	read, problems, err := ParseFiles(dir)
	if err != nil || len(read) != 2 || len(read[0].Sagas) != 1 || len(read[1].Sagas) != 0 || len(problems) != 2 {
		t.Fatalf("%d files, %v, %v", len(read), problems, err)
	}
	if text := problems[1].Error(); !problems.Failed() || !strings.Contains(text, "b.yaml:1:1: error: ") || !strings.Contains(text, "is a pipe") {
		t.Error(text)
	}
}

func TestExamplesHaveNoProblems(t *testing.T) {
	names, err := fs.Glob(Examples(), "*.yaml")
	if err != nil || len(names) < 6 {
		t.Fatalf("examples: %v, %v", names, err)
	}
	for _, name := range names {
		source, err := fs.ReadFile(Examples(), name)
		if err != nil {
			t.Fatal(err)
		}
		f, ps := Parse(name, source)
		for _, p := range ps {
			t.Errorf("%s:%d:%d: %s", name, p.Pos.Line, p.Pos.Column, p.Message)
		}
		if len(f.Sagas)+len(f.Effects) == 0 {
			t.Errorf("%s holds nothing", name)
		}
	}
}
