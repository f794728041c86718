//go:build unix

package manifests

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fast bounds the processor time of a hostile file. The slowest takes a quarter of a
// second, and ten times as much under the race detector. A quadratic algorithm takes many
// times more.
const fast = 6 * time.Second

// processorTime returns the processor time that this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// hostile has files that must be refused or read with little time and memory.
func hostile() map[string]string {
	bomb := "saga: x\non: {E: }\nstate:\n  a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("  %c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	state := "saga: x\non: {E: }\nstate: "
	most := maxSource / 8 // long enough to show more than linear time
	return map[string]string{
		"large":     strings.Repeat("#", 5<<20),
		"flow":      strings.Repeat("[", most),
		"maps":      strings.Repeat("{a: ", most/4),
		"block":     strings.Repeat("- ", most/2),
		"questions": strings.Repeat("? ", most/2),
		"quotes":    strings.Repeat(`"`, most),
		"deep":      state + "{a: " + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + "}",
		"bomb":      bomb,
		"cycle":     state + "&a {b: *a}",
		"self key":  "&a {saga: x, on: *a}",
		"alias key": "saga: &s x\non: {*s : {}, *s : {}}",
		"nulls":     state + "{a: =f(" + strings.Repeat("b,", most/2) + "}",
		"templates": state + `{a: "` + strings.Repeat("${a}", most/5) + `"}`,
		"unclosed":  state + `{a: "` + strings.Repeat("${", most/3) + `"}`,
		"nested":    state + `{a: "${` + strings.Repeat("{", most/3) + `"}`,
		"keys":      state + "\n" + strings.Repeat(" a: 1\n", most/7),
		"unknown":   "saga: x\n" + strings.Repeat("handlres: 1\n", most/13),
		"documents": strings.Repeat("---\n", most/4),
		"sagas":     strings.Repeat("saga: x\non: {E: }\n---\n", most/23),
		"escapes":   state + `{a: "` + strings.Repeat(`\n`, most/3) + `${x}"}`,
		"triggers":  "saga: x\non:\n" + strings.Repeat("  A & "+strings.Repeat("B & ", 100)+"C:\n", 2000),
		"many on":   "saga: x\non:\n" + manyKeys(20000),
		"many set":  "saga: x\non:\n  E:\n    set:\n" + manyKeys(20000),
		"nul":       "saga: \x00",
		"undos":     "saga: x\non:\n  E:\n    do:\n      -\n" + strings.Repeat("       undo: x\n", 30000),
		"path":      "saga: x\non: {E: {set: {" + strings.Repeat("a.", most/3) + "a: 1}}}",
		"many test": "saga: x\non: {E: }\ntests:\n" + strings.Repeat(" - name: x\n", 30000),
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "      k%d: \n", i)
	}
	return b.String()
}

func TestHostileFilesAreRefusedFast(t *testing.T) {
	for name, source := range hostile() {
		t.Run(name, func(t *testing.T) {
			start := processorTime(t)
			_, ps := Parse("hostile.yaml", []byte(source))
			if took := processorTime(t) - start; took > fast {
				t.Errorf("took %v", took)
			}
			if len(ps) > maxProblems+1 {
				t.Errorf("%d problems", len(ps))
			}
			if !ps.Failed() && name != "many on" && name != "many set" && name != "escapes" {
				t.Error("taken")
			}
		})
	}
}

func TestBounds(t *testing.T) {
	all := hostile()
	for name, want := range map[string]string{
		"large": "more than 1048576: split it", "deep": "nested deeper than 100", "cycle": "nested deeper than 100", "bomb": "more than 200000 values",
		"documents": "more than 500: split it", "unknown": "too many problems", "triggers": "more than 32 events", "path": "deeper than 100",
	} {
		_, ps := Parse("x.yaml", []byte(all[name]))
		if !slices.ContainsFunc(ps, func(p Problem) bool { return strings.Contains(p.Message, want) }) {
			t.Errorf("%s: nothing says %q", name, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	seeds := []string{"saga: x\non: {E: }", "effect: e\nhttp: {}", "a: &a [*a]", "{", "\ufeff---\n...\n", "saga: |\n x", "saga: x\non:\n  E: {do: [{set: {a: \"${'}\"}}]}"}
	for _, name := range []string{"testdata/full.yaml", "testdata/problems/keys.yaml", "testdata/problems/traps.yaml", "testdata/problems/actions.yaml"} {
		source, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, string(source))
	}
	if err := fs.WalkDir(Examples(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			source, err := fs.ReadFile(Examples(), path)
			seeds = append(seeds, string(source))
			return err
		}
		return err
	}); err != nil {
		f.Fatal(err)
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(checkParse)
}

// checkParse checks the invariants of any input: problems are in the file, the tree can
// be walked, and a document's own text parses to the same document.
func checkParse(t *testing.T, source []byte) {
	file, ps := Parse("fuzz.yaml", source)
	lines := len(splitLines(source)) + 2
	for _, p := range ps {
		if p.File != file || p.Pos.Line < 1 || p.Pos.Column < 1 || p.Pos.Line > lines || p.Message == "" {
			t.Fatalf("the problem %q is at %v of %d lines", p.Message, p.Pos, lines)
		}
	}
	var out strings.Builder
	ps.Print(&out, true)
	for _, s := range file.Sagas {
		s.Walk(Visitor{Expr: func(e *Expr) {
			if e.Pos.Line < 1 || e.Pos.Line > lines || e.Pos.Column < 1 {
				t.Fatalf("the expression %q is at %v", e.Source, e.Pos)
			}
		}})
		if again, _ := Parse("fuzz.yaml", s.Source); len(again.Sagas) != 1 || again.Sagas[0].Hash != s.Hash {
			t.Fatalf("the text %q is not its own document", s.Source)
		}
	}
}
