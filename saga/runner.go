package saga

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"edda"
	"edda/manifests"
)

// testStart is the time at which every test starts.
var testStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testTenant is the tenant of a test's events unless they name another.
const testTenant = "default"

// TestResult is the outcome of one test of a manifest.
type TestResult struct {
	Saga, Name string
	Pos        manifests.Pos
	Passed     bool
	Diff       string // what was expected and what came, if it failed
}

// RunTests runs every test of a saga twice. Both runs must give the same outputs and ids to the
// byte.
func RunTests(m *manifests.Saga, o Options) ([]TestResult, manifests.Problems) {
	p, problems := Compile(m, o)
	if p == nil {
		return nil, problems
	}
	var out []TestResult
	for _, t := range m.Tests {
		res := TestResult{Saga: p.Saga(), Name: t.Name, Pos: t.Pos}
		first, diff := p.runTest(t)
		second, _ := p.runTest(t)
		if diff == "" && !bytes.Equal(first, second) {
			diff = "two runs gave different outputs or ids"
		}
		res.Passed, res.Diff = diff == "", diff
		out = append(out, res)
	}
	return out, problems
}

// tester drives one test in virtual time.
type tester struct {
	p      *Program
	set    *Set
	now    time.Time
	cells  map[edda.Key]edda.Cell
	order  []edda.Key // of the cells, by creation
	first  edda.Key   // the instance that steps mean
	n      int
	seq    uint64
	fired  map[string]time.Time // of schedules
	all    []edda.Transition
	errors []string // dead letters' errors, for the diff
	deaths []string // the same with their reasons, for the failures of later steps
}

// UpdatedExpects runs the tests of a saga, and returns new lists for the steps whose outputs differ
// from the expected ones. A step without expect is not compared, so it gets none.
func UpdatedExpects(m *manifests.Saga, o Options) []manifests.ExpectChange {
	p, _ := Compile(m, o)
	if p == nil {
		return nil
	}
	var out []manifests.ExpectChange
	for _, t := range m.Tests {
		p.runSteps(t, func(s *manifests.TestStep, outs []edda.Output) {
			out = append(out, manifests.ExpectChange{Step: s, Entries: updatedExpect(s, outs)})
		})
	}
	return out
}

// runTest returns a trace of all outputs, and how they differ from the expected ones.
func (p *Program) runTest(t *manifests.Test) ([]byte, string) { return p.runSteps(t, nil) }

// runSteps is runTest that goes on after a step whose outputs differ, if differs takes them.
func (p *Program) runSteps(t *manifests.Test, differs func(*manifests.TestStep, []edda.Output)) ([]byte, string) {
	set, err := NewSet(p)
	if err != nil {
		return nil, err.Error()
	}
	w := &tester{p: p, set: set, now: testStart, cells: map[edda.Key]edda.Cell{}, fired: map[string]time.Time{}}
	earlier, advanced := "", false
	failure := func(diff string) string {
		if diff != "" && advanced {
			diff = strings.TrimSuffix(diff, "\n") + "\n" + w.clock() + "\n"
		}
		return after(diff, earlier)
	}
	for i, step := range t.Steps {
		w.errors, w.deaths = nil, nil
		outs, err := w.step(step)
		advanced = advanced || step.Input == "advance"
		if err != nil {
			return w.trace(), failure(fmt.Sprintf("step %d (%s): %v", i+1, describeStep(step), err))
		}
		untaken := p.untaken(step, outs)
		title := fmt.Sprintf("step %d (%s)", i+1, describeStep(step))
		if diff := showDiff(title, compareOutputs(step, outs)); diff != "" && differs != nil {
			differs(step, outs)
		} else if diff != "" {
			if because := slices.Concat(untaken, w.errors); len(because) > 0 {
				diff += "  because: " + strings.Join(because, "\n           ") + "\n"
			}
			return w.trace(), failure(diff)
		}
		if !step.HasExpect {
			if len(untaken) > 0 {
				return w.trace(), after(title+": "+untaken[0]+"\n  if that is meant, say expect: ["+ignoredBy(outs)+"]", earlier)
			}
			for _, why := range w.deaths {
				earlier += fmt.Sprintf("\n  step %d %s", i+1, why) // a step that expects its outputs is no surprise
			}
		}
	}
	return w.trace(), failure(w.compareEnd(t.End))
}

// after adds what went wrong in earlier steps to a failure.
func after(failure, earlier string) string {
	if failure == "" || earlier == "" {
		return failure
	}
	return strings.TrimSuffix(failure, "\n") + earlier
}

// untaken says which events of a step no handler takes.
func (p *Program) untaken(s *manifests.TestStep, outs []edda.Output) []string {
	var out []string
	for _, o := range outs {
		if o.Word != "ignored" {
			continue
		}
		name := o.Name
		if s.AggregateType != "" && name == s.Name {
			name = s.AggregateType + "." + name
		}
		out = append(out, "was ignored: no handler takes "+name+didYouMean(name, p.takers(name)))
	}
	return out
}

// takers are the triggers that an ignored name may mean: signals for a signal, else what comes from
// outside the instance.
func (p *Program) takers(name string) []string {
	if !strings.HasPrefix(name, "signal.") {
		return p.outerTriggers()
	}
	var signals []string
	for _, h := range p.handlers {
		if strings.HasPrefix(h.trigger, "signal.") {
			signals = append(signals, h.trigger)
		}
	}
	return signals
}

// ignoredBy is the entry of expect for the first output that nothing takes.
func ignoredBy(outs []edda.Output) string {
	i := slices.IndexFunc(outs, func(o edda.Output) bool { return o.Word == "ignored" })
	return manifests.Flow(outputFields(outs[i]))
}

// trace encodes everything that came out.
func (w *tester) trace() []byte {
	raw, err := json.Marshal(w.all)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

func describeStep(s *manifests.TestStep) string {
	switch s.Input {
	case "advance":
		return "advance " + durationText(s.D)
	case "answer":
		return "answer " + s.Name + " with " + s.With
	case "operator":
		return strings.TrimSpace("operator " + s.Name + " " + s.Step)
	}
	return s.Input + " " + s.Name
}

func (w *tester) step(s *manifests.TestStep) ([]edda.Output, error) {
	if s.Input == "advance" {
		return w.advance(w.now.Add(s.D))
	}
	ev, err := w.event(s)
	if err != nil {
		return nil, err
	}
	return w.give(ev), nil
}

// give routes an event and applies it to its targets.
func (w *tester) give(ev edda.Event) []edda.Output {
	targets := w.set.Route(ev)
	if len(targets) == 0 {
		return []edda.Output{{Word: "ignored", Name: nameOf(ev)}}
	}
	var outs []edda.Output
	for _, t := range targets {
		cell, trs := w.set.Apply(w.cells[t.Key], t, ev)
		outs = append(outs, w.keep(t.Key, cell, trs)...)
	}
	return outs
}

func (w *tester) keep(k edda.Key, cell edda.Cell, trs []edda.Transition) []edda.Output {
	if _, known := w.cells[k]; !known && k.Correlation != "" {
		w.order = append(w.order, k)
		if w.first == (edda.Key{}) {
			w.first = k
		}
	}
	w.cells[k] = cell
	w.all = append(w.all, trs...)
	var outs []edda.Output
	for _, tr := range trs {
		outs = append(outs, tr.Outputs...)
		if tr.Dead != nil && tr.Dead.Error != "" {
			why := strings.TrimSpace(tr.Dead.Path + ": " + tr.Dead.Error + " " + tr.Dead.Source)
			w.errors = append(w.errors, why)
			w.deaths = append(w.deaths, "died: "+tr.Dead.Reason+": "+why)
		}
	}
	return outs
}

// event turns a test's step into the event the engine would see.
func (w *tester) event(s *manifests.TestStep) (edda.Event, error) {
	w.n++
	w.seq++
	ev := edda.Event{
		ID: cmp.Or(s.ID, fmt.Sprintf("test-%d", w.n)), Tenant: cmp.Or(s.Tenant, testTenant), Time: w.now, Stream: "TEST", Seq: w.seq,
		AggregateType: s.AggregateType, AggregateID: s.AggregateID, Version: s.Version, Correlation: s.Correlation, By: s.By,
	}
	var err error
	if ev.Payload, err = encode(s.Data); err != nil {
		return ev, err
	}
	switch {
	case s.Input != "event":
		return w.addressed(ev, s)
	case s.AggregateType == "schedule" && w.p.plain["schedule."+s.Name] != nil:
		ev.Kind, ev.Type, ev.AggregateType = edda.KindSchedule, s.Name, ""
		ev.Key = keyOf(w.p, ev.Tenant, "")
		return ev, nil
	}
	named := edda.NamedEvent(s.Name)
	ev.Kind, ev.Type, ev.FullType = edda.KindEvent, named.Type, named.FullType
	ev.AggregateType, ev.Version = cmp.Or(ev.AggregateType, named.AggregateType), cmp.Or(s.Version, named.Version, 1)
	return ev, nil
}

// addressed completes an event for one instance: the first, or the one that the step names.
func (w *tester) addressed(ev edda.Event, s *manifests.TestStep) (edda.Event, error) {
	ev.Key = w.first
	if s.Key != "" {
		ev.Key = keyOf(w.p, ev.Tenant, s.Key)
	}
	if ev.Key == (edda.Key{}) {
		return ev, fmt.Errorf("there is no instance yet: begin the test with an event, or name the instance with key")
	}
	ev.Tenant = ev.Key.Tenant
	switch s.Input {
	case "signal":
		ev.Kind, ev.Type = edda.KindSignal, s.Name
	case "answer":
		ev.Kind, ev.Step, ev.Type = edda.KindAnswer, s.Name, s.With
	case "operator":
		ev.Kind, ev.Type, ev.Step, ev.By = edda.KindOperator, s.Name, s.Step, cmp.Or(s.By, "test")
	default:
		return ev, w.resultStep(&ev, s)
	}
	return ev, nil
}

func (w *tester) resultStep(ev *edda.Event, s *manifests.TestStep) error {
	ev.Kind, ev.Step, ev.Type = edda.KindResult, s.Name, "effect"
	ev.Outcome = map[string]edda.Outcome{"ok": edda.Succeeded, "failed": edda.Failed, "timeout": edda.TimedOut}[s.Input]
	in := w.cells[ev.Key].Instance
	if in == nil {
		return fmt.Errorf("there is no instance %s", ev.Key)
	}
	if ev.CommandID = w.rejectable(in, s.Name); ev.CommandID != "" {
		ev.Type = commandEffect
		return nil
	}
	if ev.CommandID = commandOf(in, s.Name); ev.CommandID == "" {
		return fmt.Errorf("the instance has no step %q: it has %s", s.Name, strings.Join(stepNames(in), ", "))
	}
	return nil
}

// commandOf returns the command id for a result of the step: of its pending round, or else of an
// older one that is still tracked, or else of the last.
func commandOf(in *edda.Instance, name string) string {
	last := ""
	for _, u := range in.Undos {
		switch {
		case u.Step != name || u.Command == "": // it was never sent
		case !u.Failed:
			return u.Command
		default:
			last = u.Command
		}
	}
	if last != "" {
		return last
	}
	for _, s := range in.Steps {
		if s.ID == name {
			last = s.Command
			if s.Status == edda.StepPending {
				return last
			}
		}
	}
	for _, s := range in.Older {
		if s.ID == name {
			return s.Command
		}
	}
	if last == "" && strings.HasSuffix(name, ".undo") {
		return commandOf(in, strings.TrimSuffix(name, ".undo")) + ".undo" // settled long ago: its result is late
	}
	return last
}

// rejectable returns the latest command of that name that is no step, because it has neither an id
// nor an undo. It can be rejected all the same.
func (w *tester) rejectable(in *edda.Instance, name string) string {
	for _, s := range in.Steps {
		if s.ID == name {
			return ""
		}
	}
	for _, tr := range slices.Backward(w.all) {
		for _, work := range slices.Backward(tr.Work) {
			if tr.Key == in.Key && work.Kind == edda.WorkCommand && work.Step == name {
				return work.ID
			}
		}
	}
	return ""
}

func stepNames(in *edda.Instance) []string {
	var out []string
	for _, s := range in.Steps {
		out = append(out, s.ID)
	}
	for _, u := range in.Undos {
		out = append(out, u.Step)
	}
	if len(out) == 0 {
		return []string{"none"}
	}
	return out
}

// maxTestFires bounds what one advance of a test may fire, because a timer that arms itself for
// now would never end.
const maxTestFires = 20_000

// advance moves the clock, and fires everything that comes due on the way.
func (w *tester) advance(to time.Time) ([]edda.Output, error) {
	var outs []edda.Output
	for limit := len(w.all) + maxTestFires; len(w.all) < limit; {
		at, fire := w.nextDue(to)
		if fire == nil {
			w.now = to
			return outs, nil
		}
		if at.After(w.now) {
			w.now = at
		}
		outs = append(outs, fire()...)
	}
	return outs, fmt.Errorf("more than %d timers fired until %s: does one arm itself for now?", maxTestFires, edda.FormatTime(w.now))
}

// nextDue returns the earliest due time up to a time, over all keys, and a function that fires it.
func (w *tester) nextDue(to time.Time) (time.Time, func() []edda.Output) {
	best, fire := w.nextSchedule(to)
	for _, k := range w.order {
		cell := w.cells[k]
		at, ok := cellDue(cell)
		if !ok || at.After(to) || fire != nil && !at.Before(best) {
			continue
		}
		best, fire = at, func() []edda.Output {
			next, trs := w.set.Wake(cell, at, at)
			return w.keep(k, next, trs)
		}
	}
	return best, fire
}

// cellDue is when the cell comes due next.
func cellDue(cell edda.Cell) (time.Time, bool) {
	if len(cell.Held) > 0 {
		return time.Time{}, false
	}
	var at time.Time
	for _, e := range cell.Parked {
		if at.IsZero() || e.Expires.Before(at) {
			at = e.Expires
		}
	}
	if cell.Instance != nil {
		if d, ok := earliest(cell.Instance, time.Time{}); ok && (at.IsZero() || d.at.Before(at)) {
			at = d.at
		}
	}
	return at, !at.IsZero()
}

func (w *tester) nextSchedule(to time.Time) (time.Time, func() []edda.Output) {
	var best time.Time
	var fire func() []edda.Output
	for _, spec := range w.set.Schedules() {
		for _, tenant := range spec.Tenants {
			id := spec.Name + "/" + tenant
			last, ok := w.fired[id]
			if !ok {
				last = testStart
			}
			at := w.set.NextSchedule(spec.Saga, spec.Name, last)
			if at.IsZero() || at.After(to) || fire != nil && !at.Before(best) {
				continue
			}
			best, fire = at, func() []edda.Output {
				w.fired[id] = at
				return w.give(w.set.ScheduleEvent(spec.Saga, spec.Name, cmp.Or(tenant, testTenant), at))
			}
		}
	}
	return best, fire
}
