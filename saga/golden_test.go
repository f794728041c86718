package saga

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/manifests"
)

var update = flag.Bool("update", false, "write the golden files again")

// TestTracesAreUnchanged compares the outputs of the tests of every manifest with the recorded
// ones, with ids and due rows. A derived id that changes would send the work of running instances
// twice. After an intended change run the test with -update and read the diff.
func TestTracesAreUnchanged(t *testing.T) {
	for name, source := range goldenSources(t) {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", "golden", strings.TrimSuffix(name, ".yaml")+".txt")
			got := traceOf(t, name, source)
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
		})
	}
}

func goldenSources(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, files := range []fs.FS{os.DirFS("testdata"), manifests.Examples()} {
		names, err := fs.Glob(files, "*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatalf("no manifests: %v", err)
		}
		for _, name := range names {
			if out[name] != nil {
				t.Fatalf("two manifests are called %s", name)
			}
			if out[name], err = fs.ReadFile(files, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

func writeGolden(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func firstDifference(want, got string) (line int, w, g string) {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			w = a[i]
		}
		if i < len(b) {
			g = b[i]
		}
		if i >= len(a) || i >= len(b) || w != g {
			return i + 1, w, g
		}
	}
	return 0, "", ""
}

// traceOf runs every test of a file and records its outputs.
func traceOf(t *testing.T, name string, source []byte) string {
	t.Helper()
	f, ps := manifests.Parse(name, source)
	if ps.Failed() {
		t.Fatalf("parse: %v", ps)
	}
	var b strings.Builder
	for _, m := range f.Sagas {
		p, ps := Compile(m, Options{})
		if p == nil {
			t.Fatalf("compile: %v", ps)
		}
		for _, test := range m.Tests {
			fmt.Fprintf(&b, "saga %s: %s\n", p.Saga(), test.Name)
			traceTest(t, &b, p, test)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func traceTest(t *testing.T, b *strings.Builder, p *Program, test *manifests.Test) {
	t.Helper()
	set, err := NewSet(p)
	if err != nil {
		t.Fatal(err)
	}
	w := &tester{p: p, set: set, now: testStart, cells: map[edda.Key]edda.Cell{}, fired: map[string]time.Time{}}
	for _, step := range test.Steps {
		fmt.Fprintf(b, "  > %s\n", describeStep(step))
		seen := len(w.all)
		if _, err := w.step(step); err != nil {
			t.Fatal(err)
		}
		for _, tr := range w.all[seen:] {
			traceTransition(b, tr)
		}
	}
}

func traceTransition(b *strings.Builder, tr edda.Transition) {
	fmt.Fprintf(b, "    %s %s", tr.Fate, tr.Event.ID)
	if in := tr.Instance; in != nil {
		fmt.Fprintf(b, "  %s #%d", in.Status, in.Revision)
	}
	b.WriteByte('\n')
	for _, o := range tr.Outputs {
		fmt.Fprintf(b, "      %s %s\n", traceOutput(o), o.ID)
	}
	for _, w := range tr.Work {
		fmt.Fprintf(b, "      sends %s %s %s", w.Kind, w.Name, w.ID)
		if w.EffectVersion != 0 {
			fmt.Fprintf(b, " for version %d", w.EffectVersion)
		}
		b.WriteByte('\n')
	}
	if d := tr.Dead; d != nil {
		fmt.Fprintf(b, "      dead %s %s: %s\n", d.ID, d.Path, d.Error)
	}
	traceTimes(b, "arms", tr.Arm)
	traceTimes(b, "disarms", tr.Disarm)
}

func traceTimes(b *strings.Builder, what string, times []time.Time) {
	for _, at := range times {
		fmt.Fprintf(b, "      %s %s\n", what, edda.FormatTime(at))
	}
}

// traceOutput has the exact bytes of an output.
func traceOutput(o edda.Output) string {
	parts := []string{o.Word + ": " + o.Name}
	add := func(name, v string) {
		if v != "" {
			parts = append(parts, name+": "+v)
		}
	}
	if o.Step != o.Name {
		add("step", o.Step)
	}
	add("to", o.To)
	add("key", o.Key)
	add("with", string(o.With))
	add("due", o.Due)
	add("for", o.For)
	add("undoes", o.Undoes)
	if o.Attempt > 1 {
		add("attempt", fmt.Sprint(o.Attempt))
	}
	if o.Version > 0 {
		add("version", fmt.Sprint(o.Version))
	}
	add("reason", o.Reason)
	if len(o.Incomplete) > 0 {
		add("incomplete", fmt.Sprint(o.Incomplete))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
