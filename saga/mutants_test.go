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

// edit builds a defect of the core into a file: the new text behaves as the old one unless mutant
// is the name of the defect.
type edit struct {
	file, old, new string
}

// edits are the defects, all in one build of the tests.
var edits = []edit{
	{
		file: "undo.go",
		old:  "			f := r.in.Frames[len(r.in.Frames)-1]\n			r.in.Frames = r.in.Frames[:len(r.in.Frames)-1]\n",
		new: `			last := len(r.in.Frames) - 1
			f, left := r.in.Frames[last], r.in.Frames[:last]
			if mutant == "oldest undo first" {
				f, left = r.in.Frames[0], r.in.Frames[1:]
			}
			r.in.Frames = left
`,
	},
	{
		file: "settle.go",
		old:  `if !s.Late && o.word != "failed" {`,
		new:  `if !s.Late && (mutant == "a failed step is undone" || o.word != "failed") && (mutant != "an unknown outcome is not undone" || o.ok()) {`,
	},
	{
		file: "undo.go",
		old:  "	return len(r.in.Older) > 0 || len(r.in.Undos) > 0",
		new:  `	return mutant != "undone before every step is settled" && len(r.in.Older) > 0 || len(r.in.Undos) > 0`,
	},
	{
		file: "undo.go",
		old:  "if s.Status == edda.StepPending && !s.Late {\n			return true",
		new:  `if s.Status == edda.StepPending && !s.Late && mutant != "pending steps are not waited for" {` + "\n			return true",
	},
	{
		file: "undo.go",
		old:  "if !r.p.m.Parallel || len(r.in.Frames) == 0 {",
		new:  `if !r.p.m.Parallel && mutant != "undos at once" || len(r.in.Frames) == 0 {`,
	},
	{
		file: "apply.go",
		old:  "slices.Contains(a.cell.Instance.Recent, ev.ID)",
		new:  `mutant != "duplicates are not known" && slices.Contains(a.cell.Instance.Recent, ev.ID)`,
	},
	{
		file: "apply.go",
		old:  "	a.queue, a.unparked = slices.Clone(a.cell.Parked), true\n",
		new: `	if mutant != "parked events are lost at the start" {
		a.queue, a.unparked = slices.Clone(a.cell.Parked), true
	}
`,
	},
	{
		file: "actions.go",
		old:  "	r.in.Older = append(r.in.Older, s)\n",
		new: `	if mutant != "a superseded round is forgotten" {
		r.in.Older = append(r.in.Older, s)
	}
`,
	},
	{
		file: "undo.go",
		old:  "	if r.in.Past {\n",
		new:  `	if r.in.Past && mutant != "the point of no return is forgotten" {` + "\n",
	},
	{
		file: "wake.go",
		old:  "	last.Arm = append(last.Arm, first.at)\n",
		new: `	if mutant != "the due row is not moved" {
		last.Arm = append(last.Arm, first.at)
	}
`,
	},
	{
		file: "run.go",
		old:  "	out.Steps = withRoom(in.Steps)\n",
		new: `	if mutant != "a transition shares the steps of the one before" {
		out.Steps = withRoom(in.Steps)
	}
`,
	},
	{
		file: "hold.go",
		old:  "	if a.unparked && !a.applyAllParked(e.N, behind) {",
		new:  `	if mutant != "a held event is applied before the parked ones" && a.unparked && !a.applyAllParked(e.N, behind) {`,
	},
}

// mutants names each defect, and the variant of the property test that must find it.
var mutants = map[string]string{
	"oldest undo first":                               "plain",
	"an unknown outcome is not undone":                "plain",
	"a failed step is undone":                         "plain",
	"undone before every step is settled":             "plain",
	"pending steps are not waited for":                "plain",
	"undos at once":                                   "plain",
	"duplicates are not known":                        "plain",
	"parked events are lost at the start":             "plain",
	"a superseded round is forgotten":                 "plain",
	"the point of no return is forgotten":             "must",
	"the due row is not moved":                        "plain",
	"a transition shares the steps of the one before": "plain",
	"a held event is applied before the parked ones":  "plain",
}

// mutantVar is the environment variable that turns a defect on.
const mutantVar = "EDDA_MUTANT"

// TestMutantsAreNoticed builds the tests once with every defect in copies of the files. It runs them
// with one defect at a time, and expects the tests to fail; with none it expects them to pass.
func TestMutantsAreNoticed(t *testing.T) {
	const property = "TestAnyInterleavingKeepsThePromises"
	binary := buildMutants(t)
	run := func(t *testing.T, mutant, variant, checks string) (string, error) {
		t.Helper()
		// Seeds are fixed, so that each run is the same. Nothing is shrunk, because a failure is enough.
		cmd := exec.Command(binary, "-test.run", "^"+property+"$/^"+variant+"$", "-rapid.seed=1", "-rapid.checks="+checks, "-rapid.shrinktime=1ns", "-rapid.nofailfile")
		cmd.Env = append(os.Environ(), mutantVar+"="+mutant, "GOGC=400")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, variant := range []string{"plain", "must"} {
		t.Run("none of them, "+variant, func(t *testing.T) {
			t.Parallel()
			if out, err := run(t, "none", variant, "50"); err != nil || !strings.HasSuffix(out, "PASS\n") {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
	for mutant, variant := range mutants {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, mutant, variant, "1000")
			if err == nil {
				t.Fatalf("no test failed")
			}
			if !strings.Contains(out, "--- FAIL: "+property+"/"+variant) {
				t.Fatalf("it failed otherwise: %v\n%s", err, out)
			}
		})
	}
}

// buildMutants builds the tests of the package with all edits, and returns the binary.
func buildMutants(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{"mutant.go": "package saga\n\nimport \"os\"\n\nvar mutant = os.Getenv(\"" + mutantVar + "\")\n"}
	for _, e := range edits {
		if texts[e.file] == "" {
			source, err := os.ReadFile(e.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[e.file] = string(source)
		}
		if n := strings.Count(texts[e.file], e.old); n != 1 {
			t.Fatalf("the text to replace is in %s %d times: %s", e.file, n, e.old)
		}
		texts[e.file] = strings.Replace(texts[e.file], e.old, e.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		here, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[here] = filepath.Join(dir, file)
		if err := os.WriteFile(replace[here], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutants.test")
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-o", binary, "-overlay", overlay, "-vet=off", ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOGC=400") // the flags of the normal build, and quicker
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}
