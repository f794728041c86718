package saga

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"edda"
)

// model follows one instance from outside: it sees inputs, fates and outputs, and none of the
// core's records.
type model struct {
	v        variant
	gen      int
	status   edda.Status
	steps    map[string]*modelStep // of this generation, by command id
	frames   []*modelFrame         // in the order of settlement
	undone   int                   // frames taken since the saga failed
	must     bool                  // a must step was emitted
	sequence int                   // of undos, in the order they went out
	problems []string
}

type modelStep struct {
	id       string
	undoable bool
	settled  bool
	stalled  bool
}

type frameState int

const (
	frameWaits frameState = iota
	frameGoes             // its undo is under way
	frameFailed
	frameOver // undone, rejected or skipped
)

type modelFrame struct {
	step, of string // the step and its command id
	state    frameState
	undo     string // command id of the pending or failed undo
	sequence int
	explicit bool
	skipped  bool
}

func newModel(v variant) *model { return &model{v: v, steps: map[string]*modelStep{}} }

func (m *model) wrong(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// see follows one transition.
func (m *model) see(tr edda.Transition) {
	if tr.Fate == edda.FateDuplicate || tr.Fate == edda.FateHeld || tr.Fate == edda.FateParked {
		m.silent(tr)
		return
	}
	if tr.Fate == edda.FateDead {
		m.silent(tr)
		return
	}
	if in := tr.Instance; in != nil && in.Generation != m.gen {
		v, problems := m.v, m.problems
		*m = *newModel(v)
		m.gen, m.status, m.problems = in.Generation, edda.StatusRunning, problems
	}
	before := m.status
	m.input(tr)
	if in := tr.Instance; in != nil {
		m.status = in.Status
	}
	if before == edda.StatusRunning && m.status != edda.StatusRunning {
		for _, f := range m.frames { // undos that failed while the saga ran are retried
			if f.state == frameFailed {
				f.state = frameWaits
			}
		}
	}
	m.outputs(tr, before)
}

// silent checks that an event that was not applied changed nothing.
func (m *model) silent(tr edda.Transition) {
	if len(tr.Work) > 0 {
		m.wrong("%s %s sends work", tr.Fate, tr.Event.ID)
	}
}

// input settles the step or undo that the event is about.
func (m *model) input(tr edda.Transition) {
	ev := tr.Event
	switch {
	case ev.Kind == edda.KindResult && ev.Type == commandEffect:
		m.rejected(ev)
	case ev.Kind == edda.KindResult:
		m.settle(tr, ev.CommandID, ev.Outcome)
	case ev.Kind == edda.KindTimer && ev.Timer == edda.TimerDue:
		m.settle(tr, ev.CommandID, edda.TimedOut)
	case ev.Kind == edda.KindOperator && (ev.Type == edda.VerbSkip || ev.Type == edda.VerbResolve):
		m.skip(ev)
	}
}

func (m *model) rejected(ev edda.Event) {
	if ev.Outcome == edda.Succeeded {
		return
	}
	for _, f := range m.frames {
		if f.of == ev.CommandID && f.state == frameWaits {
			f.state = frameOver
		}
	}
}

func (m *model) settle(tr edda.Transition, command string, o edda.Outcome) {
	if m.status.Finished() {
		return
	}
	if s := m.steps[command]; s != nil && !s.settled {
		if s.id == "m" && o != edda.Succeeded {
			s.stalled = true // it waits for an operator
			return
		}
		s.settled = true
		if s.undoable && o != edda.Failed {
			m.frames = append(m.frames, &modelFrame{step: s.id, of: command})
		}
		return
	}
	for _, f := range m.frames {
		if f.undo == command && f.state == frameGoes {
			f.state = frameOver
			if o != edda.Succeeded {
				f.state = frameFailed
			}
			return
		}
	}
	if tr.Event.Kind == edda.KindTimer && tr.Event.Step == "q" {
		return // the ask has nothing to undo
	}
	for _, out := range tr.Outputs {
		if out.Word != "late" && out.Word != "expired" && out.Name != "z" && tr.Event.Step != "z" {
			m.wrong("a result that nothing waits for (%s) does %s %s", command, out.Word, out.Name)
		}
	}
}

// skip removes the failed undo of that name that was sent first.
func (m *model) skip(ev edda.Event) {
	var first *modelFrame
	for _, f := range m.frames {
		if f.state == frameFailed && f.step+".undo" == ev.Step && (first == nil || f.sequence < first.sequence) {
			first = f
		}
	}
	if first != nil {
		first.state, first.skipped = frameOver, ev.Type == edda.VerbSkip
		return
	}
	for _, s := range m.steps {
		if s.id == ev.Step && s.stalled {
			s.settled = true
		}
	}
}

func (m *model) outputs(tr edda.Transition, before edda.Status) {
	ended := before.Finished()
	for _, o := range tr.Outputs {
		if ended && !m.allowedAfterEnd(o) {
			m.wrong("after the end: %s %s", o.Word, o.Name)
		}
		switch {
		case o.Undoes != "":
			m.undo(tr, o)
		case o.Word == "effect" || o.Word == "start":
			m.emitted(tr, o, before)
		case o.Word == "command" && o.Name == "Acc.Hold":
			m.frames = append(m.frames, &modelFrame{step: "hold", of: o.ID})
		case o.Word == "end":
			ended = true
			m.end(tr, o)
		case o.Word == "refused" && o.Name == "cancelled" && before == edda.StatusRunning && !m.must:
			m.wrong("cancel is refused without a must step")
		}
	}
}

func (m *model) allowedAfterEnd(o edda.Output) bool {
	switch o.Word {
	case "late", "duplicate", "held", "refused", "incident", "unparked", "expired":
		return true
	}
	return o.Name == "LateFact" || o.Name == "z"
}

func (m *model) emitted(tr edda.Transition, o edda.Output, before edda.Status) {
	if o.Name == "z" {
		return // of a late handler: the saga does not wait for it
	}
	if before != edda.StatusRunning && m.gen == tr.Instance.Generation && before != "" {
		m.wrong("%s is emitted while %s", o.Step, before)
	}
	if o.Attempt > 1 { // a retry replaces the round before
		for id, s := range m.steps {
			if s.id == o.Step && !s.settled {
				delete(m.steps, id)
			}
		}
	}
	m.must = m.must || o.Name == "m"
	m.steps[o.ID] = &modelStep{id: o.Step, undoable: o.Name != "m"}
}

// undo checks one emitted undo against the rules.
func (m *model) undo(tr edda.Transition, o edda.Output) {
	f := m.frame(o)
	if f == nil {
		return
	}
	retry := tr.Event.Kind == edda.KindOperator && tr.Event.Type == edda.VerbRetry
	switch {
	case retry && f.state != frameFailed:
		m.wrong("retry undoes %s (%s), which had not failed", o.Undoes, f.of)
	case !retry && f.state != frameWaits:
		m.wrong("%s (%s) is undone twice", o.Undoes, f.of)
	}
	f.explicit = m.status == edda.StatusRunning
	if !f.explicit && !retry {
		m.checkTurn(f)
	}
	m.sequence++
	f.state, f.undo, f.sequence = frameGoes, o.ID, m.sequence
	if o.Word == "command" {
		f.state = frameOver
	}
}

func (m *model) frame(o edda.Output) *modelFrame {
	var with struct {
		Of string `json:"of"`
	}
	if err := json.Unmarshal(o.With, &with); err != nil {
		m.wrong("undo of %s with %s", o.Undoes, o.With)
		return nil
	}
	for _, f := range m.frames {
		if f.of == with.Of {
			if f.step != o.Undoes {
				m.wrong("undo of %s says it undoes %s", f.step, o.Undoes)
			}
			return f
		}
	}
	m.wrong("%s (%s) is undone, but it never was ok or unknown", o.Undoes, with.Of)
	return nil
}

// checkTurn checks an undo of a failed saga: everything is settled, no other undo is pending, and
// no newer frame waits.
func (m *model) checkTurn(f *modelFrame) {
	m.undone++
	for _, s := range m.steps {
		if !s.settled {
			m.wrong("%s is undone while %s is not settled", f.step, s.id)
		}
	}
	newer := false
	for _, other := range m.frames {
		switch {
		case other == f:
			newer = true
		case other.explicit && other.state == frameGoes, !m.v.parallel && other.state == frameGoes:
			m.wrong("%s is undone while %s is", f.step, other.step)
		case newer && other.state == frameWaits:
			m.wrong("%s is undone before %s, which settled later", f.step, other.step)
		}
	}
	if m.must {
		m.wrong("%s is undone past a must step", f.step)
	}
}

func (m *model) end(tr edda.Transition, o edda.Output) {
	if o.Reason == "terminated" || o.Name == "done" {
		return
	}
	if m.must {
		m.wrong("past a must step the saga ends %s", o.Name)
	}
	for _, s := range m.steps {
		if !s.settled {
			m.wrong("the end while %s is not settled", s.id)
		}
	}
	var skipped []string
	for _, f := range m.frames {
		if f.state != frameOver {
			m.wrong("the end, and %s (%s) is not undone", f.step, f.of)
		}
		if f.skipped {
			skipped = append(skipped, f.step)
		}
	}
	m.checkEnd(o, skipped)
}

func (m *model) checkEnd(o edda.Output, skipped []string) {
	want := "undone"
	if m.undone == 0 || len(skipped) > 0 {
		want = "failed"
	}
	got := slices.Sorted(slices.Values(o.Incomplete))
	slices.Sort(skipped)
	if o.Name != want || strings.Join(got, " ") != strings.Join(skipped, " ") {
		m.wrong("the end is %s %v, not %s %v", o.Name, o.Incomplete, want, skipped)
	}
}
