package saga

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"edda/manifests"
)

// lint is the report on one file, as edda lint prints it.
func lint(name string, source []byte) (manifests.Problems, string) {
	f, ps := manifests.Parse(name, source)
	ps = append(ps, compiledWithEffects(f)...)
	ps = append(ps, Lint([]*manifests.File{f})...)
	var out bytes.Buffer
	ps.Print(&out, false)
	return ps, out.String()
}

// compiledWithEffects returns the problems of the sagas of a file, which may use its effects.
func compiledWithEffects(f *manifests.File) (out manifests.Problems) {
	o := Options{Effects: map[string]*manifests.Effect{}}
	for _, e := range f.Effects {
		o.Effects[e.Name.Text] = e
	}
	for _, m := range f.Sagas {
		_, found := Compile(m, o)
		out = append(out, found...)
	}
	return out
}

// TestLintReports compares the report on manifests full of mistakes with the recorded one,
// with position and caret; -update records it again.
func TestLintReports(t *testing.T) {
	names, err := filepath.Glob("testdata/lint/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, got := lint(filepath.Base(name), source)
		golden := strings.TrimSuffix(name, ".yaml") + ".txt"
		if *update {
			writeGolden(t, golden, got)
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatalf("%v: run with -update", err)
		}
		if line, w, g := firstDifference(string(want), got); line > 0 {
			t.Errorf("%s:%d:\n- %s\n+ %s", golden, line, w, g)
		}
	}
}

// TestEveryCompilerMessageIsTested requires each message of the compiler in the corpus.
func TestEveryCompilerMessageIsTested(t *testing.T) {
	var said strings.Builder
	names, _ := filepath.Glob("testdata/lint/*.txt")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(text)
	}
	for _, file := range []string{"check.go", "check_data.go", "lint.go", "compile.go", "compile_action.go", "schedule.go", "schema.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range complaints(string(source)) {
			if !m.MatchString(said.String()) {
				t.Errorf("%s: nothing in testdata/lint gives %s", file, m)
			}
		}
	}
}

// complaints finds the messages of a source file, with .* for the arguments.
func complaints(source string) []*regexp.Regexp {
	call := regexp.MustCompile(`(?:errorf|warnf)\([^"]*?, "((?:[^"\\]|\\.)*)"`)
	verb := regexp.MustCompile(`%[a-z]`)
	var out []*regexp.Regexp
	for _, found := range call.FindAllStringSubmatch(source, -1) {
		text := strings.ReplaceAll(found[1], `\"`, `"`)
		if strings.Trim(verb.ReplaceAllString(text, ""), " ") == "" {
			continue
		}
		parts := verb.Split(text, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		out = append(out, regexp.MustCompile(strings.Join(parts, ".*")))
	}
	return out
}

// TestLintReportsNothingForGoodSagas: a false alarm is worse than a miss.
func TestLintReportsNothingForGoodSagas(t *testing.T) {
	files := manifests.Examples()
	names, err := fs.Glob(files, "*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, name := range names {
		source, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		f, ps := manifests.Parse(name, source)
		ps = append(ps, compiledWithEffects(f)...)
		for _, p := range ps {
			if !strings.Contains(p.Message, "this undo reads result") { // good sagas get this warning, too
				t.Errorf("%v", p.Error())
			}
		}
	}
}
