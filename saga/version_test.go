package saga

import (
	"strings"
	"testing"
	"time"

	"edda"
	"edda/manifests"
)

// pilot runs a saga's text as a test of a manifest does.
type pilot struct {
	*tester
	t *testing.T
}

func newPilot(t *testing.T, text string) pilot {
	w := &tester{now: testStart, cells: map[edda.Key]edda.Cell{}, fired: map[string]time.Time{}}
	p := pilot{w, t}
	p.runs(text)
	return p
}

// runs replaces the text of the saga, also for existing instances.
func (p pilot) runs(text string) {
	p.t.Helper()
	f, problems := manifests.Parse("saga.yaml", []byte(text))
	if problems.Failed() {
		p.t.Fatal(problems)
	}
	program, problems := Compile(f.Sagas[0], Options{})
	if program == nil {
		p.t.Fatal(problems)
	}
	set, err := NewSet(program)
	if err != nil {
		p.t.Fatal(err)
	}
	p.p, p.set = program, set
}

// sends applies a step and expects one piece of work.
func (p pilot) sends(s manifests.TestStep) edda.Work {
	p.t.Helper()
	seen := len(p.all)
	if _, err := p.step(&s); err != nil {
		p.t.Fatal(err)
	}
	var work []edda.Work
	for _, tr := range p.all[seen:] {
		work = append(work, tr.Work...)
	}
	if len(work) != 1 {
		p.t.Fatalf("%s sends %+v", describeStep(&s), work)
	}
	return work[0]
}

func (p pilot) gives(s manifests.TestStep) {
	p.t.Helper()
	if _, err := p.step(&s); err != nil {
		p.t.Fatal(err)
	}
}

const shipped = `
saga: shipped
key: event.id
on:
  Go: {start: true, do: [{effect: ship, must: true, VERSION undo: {effect: recall, VERSION with: {n: 1}}}]}
  signal.stop: {do: [{undo: ship}]}
`

func shippedAt(version string) string { return strings.ReplaceAll(shipped, "VERSION", version) }

func goes() manifests.TestStep {
	return manifests.TestStep{Input: "event", Name: "Go", ID: "e1", Data: map[string]any{"id": "K"}}
}

// TestARetryKeepsTheVersionOfItsInput: the input was evaluated for the first call, even if the
// manifest has changed.
func TestARetryKeepsTheVersionOfItsInput(t *testing.T) {
	p := newPilot(t, shippedAt("version: 1,"))
	if w := p.sends(goes()); w.EffectVersion != 1 {
		t.Fatalf("sent %+v", w)
	}
	p.gives(manifests.TestStep{Input: "failed", Name: "ship"})
	p.runs(shippedAt("version: 2,"))
	if w := p.sends(manifests.TestStep{Input: "operator", Name: "retry", Step: "ship"}); w.EffectVersion != 1 || w.Attempt != 2 {
		t.Errorf("the retry sends %+v", w)
	}
	p.gives(manifests.TestStep{Input: "ok", Name: "ship"})
	if w := p.sends(manifests.TestStep{Input: "signal", Name: "stop"}); w.Name != "recall" || w.EffectVersion != 2 {
		t.Errorf("the undo, evaluated now, sends %+v", w)
	}
	p.gives(manifests.TestStep{Input: "failed", Name: "ship.undo"})
	p.runs(shippedAt("version: 3,"))
	if w := p.sends(manifests.TestStep{Input: "operator", Name: "retry", Step: "ship.undo"}); w.EffectVersion != 2 || w.Attempt != 2 {
		t.Errorf("the undo's retry sends %+v", w)
	}
}

// TestAVersionChangesNoID: a saga that starts to name a version sends nothing twice.
func TestAVersionChangesNoID(t *testing.T) {
	without, with := newPilot(t, shippedAt("")), newPilot(t, shippedAt("version: 7,"))
	for _, s := range []manifests.TestStep{
		goes(), {Input: "ok", Name: "ship"}, {Input: "signal", Name: "stop"},
	} {
		if s.Input == "ok" {
			without.gives(s)
			with.gives(s)
			continue
		}
		a, b := without.sends(s), with.sends(s)
		if a.ID != b.ID || a.IdempotencyKey != b.IdempotencyKey || a.EffectVersion != 0 || b.EffectVersion != 7 {
			t.Errorf("without a version %+v, with one %+v", a, b)
		}
	}
}

func TestATestMayExpectAVersion(t *testing.T) {
	out := edda.Output{Word: "effect", Name: "ship", Version: 2}
	for want, matched := range map[any]bool{2: true, 1: false, 0: false, "2": false} {
		e := manifests.Expect{Word: "effect", Fields: map[string]any{"effect": "ship", "version": want}}
		if matches(e, out) != matched {
			t.Errorf("version %v against %d", want, out.Version)
		}
	}
	if !matches(manifests.Expect{Word: "effect", Fields: map[string]any{"effect": "ship"}}, out) {
		t.Error("a test that asks for none does not match")
	}
}
