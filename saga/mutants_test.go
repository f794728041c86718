//go:build !quick

package saga

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is one defect of the core, and the test that must find it.
type mutant struct {
	name, file, old, new, test string
}

func mutants() []mutant {
	const any = "TestAnyInterleavingKeepsThePromises/"
	return []mutant{
		{
			name: "oldest undo first", file: "undo.go", test: any + "plain",
			old: "			f := r.in.Frames[len(r.in.Frames)-1]\n			r.in.Frames = r.in.Frames[:len(r.in.Frames)-1]\n",
			new: "			f := r.in.Frames[0]\n			r.in.Frames = r.in.Frames[1:]\n",
		},
		{
			name: "an unknown outcome is not undone", file: "settle.go", test: any + "plain",
			old: `if !s.Late && o.word != "failed" {`, new: `if !s.Late && o.ok() {`,
		},
		{
			name: "a failed step is undone", file: "settle.go", test: any + "plain",
			old: `if !s.Late && o.word != "failed" {`, new: `if !s.Late {`,
		},
		{
			name: "undone before every step is settled", file: "undo.go", test: any + "plain",
			old: "	return len(r.in.Older) > 0 || len(r.in.Undos) > 0", new: "	return len(r.in.Undos) > 0",
		},
		{
			name: "pending steps are not waited for", file: "undo.go", test: any + "plain",
			old: "if s.Status == edda.StepPending && !s.Late {\n			return true", new: "if s.Late {\n			return true",
		},
		{
			name: "undos at once", file: "undo.go", test: any + "plain",
			old: "if !r.p.m.Parallel || len(r.in.Frames) == 0 {", new: "if len(r.in.Frames) == 0 {",
		},
		{
			name: "duplicates are not known", file: "apply.go", test: any + "plain",
			old: "slices.Contains(a.cell.Instance.Recent, ev.ID)", new: "false",
		},
		{
			name: "parked events are lost at the start", file: "apply.go", test: any + "plain",
			old: "	a.queue, a.unparked = slices.Clone(a.cell.Parked), true\n", new: "",
		},
		{
			name: "a superseded round is forgotten", file: "actions.go", test: any + "plain",
			old: "	r.in.Older = append(r.in.Older, s)\n", new: "",
		},
		{
			name: "the point of no return is forgotten", file: "undo.go", test: any + "must",
			old: "	if r.in.Past {\n", new: "	if false {\n",
		},
		{
			name: "the due row is not moved", file: "wake.go", test: any + "plain",
			old: "	last.Arm = append(last.Arm, first.at)\n", new: "",
		},
		{
			name: "a transition shares the steps of the one before", file: "run.go", test: any + "plain",
			old: "	out.Steps = withRoom(in.Steps)\n", new: "",
		},
		{
			name: "a held event is applied before the parked ones", file: "hold.go", test: any + "plain",
			old: "	if a.unparked && !a.applyAllParked(e.N, behind) {\n		return false\n	}\n", new: "",
		},
	}
}

// TestMutantsAreNoticed breaks the core, one way at a time and in copies of the files, and expects
// the tests to fail.
func TestMutantsAreNoticed(t *testing.T) {
	if os.Getenv("EDDA_MUTANT") != "" {
		t.Fatal("a mutant may not run the mutants")
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, err := m.run(t)
			if err == nil {
				t.Fatalf("no test failed")
			}
			if !strings.Contains(out, "--- FAIL: "+m.test) {
				t.Fatalf("it failed otherwise: %v\n%s", err, out)
			}
		})
	}
}

// run tests the package with one file replaced. Seeds are fixed, so that each run is the same. It
// shrinks nothing, because a failure is enough.
func (m mutant) run(t *testing.T) (string, error) {
	t.Helper()
	cmd := exec.Command("go", "test", "-overlay", m.overlay(t), "-run", "^"+strings.ReplaceAll(m.test, "/", "$/^")+"$", "-count=1", "-vet=off",
		".", "-rapid.seed=1", "-rapid.checks=1000", "-rapid.shrinktime=1ns", "-rapid.nofailfile")
	cmd.Env = append(os.Environ(), "EDDA_MUTANT="+m.name, "CGO_ENABLED=0", "GOGC=400") // the flags of the normal build, and quicker
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("the text to replace is in %s %d times", m.file, n)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, m.file)
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{here: changed}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
