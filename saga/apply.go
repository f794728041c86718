package saga

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"edda"
	"edda/internal/jsonvalue"
)

// Apply gives one event to the cell of one target. It returns the cell
// afterwards and what changed, in order: parked or held events that the event
// released follow as transitions of their own. The cell given is not changed.
func (s *Set) Apply(cell edda.Cell, t Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	cell.Key = t.Key
	a := &application{set: s, cell: cell, versions: t.Versions, crowded: t.Crowded, payload: t.payload, out: t.Room}
	if t.Dead != nil {
		a.add(edda.Transition{Event: ev, Fate: edda.FateDead, Dead: t.Dead,
			Outputs: []edda.Output{{Word: "dead", Name: nameOf(ev), Reason: t.Dead.Reason}}})
		return a.cell, a.out
	}
	a.apply(ev)
	a.followUp()
	a.rearm()
	return a.cell, a.out
}

// application is the events that go to one cell, one after another.
type application struct {
	set      *Set
	cell     edda.Cell
	versions []int
	out      []edda.Transition
	queue    []edda.Entry // unparked or released, to be applied next
	unparked bool         // what the queue holds
	// acted is when an operator took the event out of the dead letters that is
	// applied now: where it is parked, it has its whole time from then on.
	acted   time.Time
	crowded bool     // the tenant may park no more
	payload *decoded // of the event that came, if it is decoded
}

func (a *application) add(tr edda.Transition) {
	tr.Key = a.cell.Key
	if tr.Instance != nil {
		a.cell.Instance = tr.Instance
	}
	a.out = append(a.out, tr)
}

// followUp applies what was released, each as a transition of its own; one
// that is poison stops it, and the rest stays held.
func (a *application) followUp() {
	for len(a.queue) > 0 {
		e := a.queue[0]
		a.queue = a.queue[1:]
		if a.unparked {
			a.takeParked(e)
			continue
		}
		if !a.takeHeld(e) {
			return
		}
	}
}

func (a *application) takeParked(e edda.Entry) {
	a.cell.Parked = withoutEntry(a.cell.Parked, e.N)
	a.versions = a.set.allVersions(a.cell.Key.Saga)
	n := len(a.out)
	a.apply(e.Event)
	if len(a.out) == n {
		return
	}
	first := &a.out[n]
	first.Unpark = append(first.Unpark, e.N)
	first.Outputs = append([]edda.Output{{Word: "unparked", Name: nameOf(e.Event)}}, first.Outputs...)
}

// nameOf is how people call an event: its type, or what it is about.
func nameOf(ev edda.Event) string {
	switch ev.Kind {
	case edda.KindSignal:
		return "signal." + ev.Type
	case edda.KindSchedule:
		return "schedule." + ev.Type
	case edda.KindAnswer:
		return ev.Step + "." + ev.Type
	case edda.KindResult:
		step := ev.Step
		if step == "" {
			step = ev.Type
		}
		return step + "." + outcomeOf(ev).word
	case edda.KindOperator:
		return strings.TrimSpace(ev.Type + " " + ev.Step)
	case edda.KindTimer:
		return strings.TrimSuffix(ev.Type+ev.Step, ".")
	}
	return ev.Type
}

func withoutEntry(list []edda.Entry, n uint64) []edda.Entry {
	return slices.DeleteFunc(slices.Clone(list), func(e edda.Entry) bool { return e.N == n })
}

// apply decides what becomes of one event.
func (a *application) apply(ev edda.Event) {
	switch {
	case a.begins(ev) && len(a.cell.Key.Correlation) > edda.MaxKey:
		a.refuseKey(ev)
	case a.duplicate(ev):
		a.repeated(ev)
	case len(a.cell.Held) > 0 && !passesHold(ev):
		a.queueUp(ev)
	case ev.Kind == edda.KindOperator:
		a.operator(ev)
	case a.starts(ev):
		a.start(ev)
	case a.cell.Instance == nil:
		a.missing(ev)
	case ev.Kind == edda.KindStart:
		a.refuseStart(ev, "exists", "the key is in use")
	default:
		a.advance(ev)
	}
}

// begins tells whether the event would be the first of its key that anything is kept of.
func (a *application) begins(ev edda.Event) bool {
	if a.cell.Instance != nil || len(a.cell.Parked) > 0 || len(a.cell.Held) > 0 {
		return false
	}
	switch ev.Kind {
	case edda.KindEvent, edda.KindSchedule, edda.KindStart:
		return true
	}
	return ev.Kind == edda.KindSignal && a.starts(ev)
}

// refuseKey keeps an instance from beginning that no address and no cursor could name. Those
// that an older edda began go on.
func (a *application) refuseKey(ev edda.Event) {
	why := fmt.Sprintf("the key has %d bytes, more than %d: a hash of it, such as a uuid, names an instance as well", len(a.cell.Key.Correlation), edda.MaxKey)
	if ev.Kind == edda.KindStart {
		a.refuseStart(ev, edda.DeadNoKey, why)
		return
	}
	k := edda.Key{Tenant: a.cell.Key.Tenant, Saga: a.cell.Key.Saga}
	a.add(edda.Transition{Event: ev, Fate: edda.FateDead, Dead: deadLetter(ev, k, edda.DeadNoKey, why),
		Outputs: []edda.Output{{Word: "dead", Name: nameOf(ev), Reason: edda.DeadNoKey}}})
}

// duplicate tells whether the instance, or what waits for it, has seen the event.
// A dead letter that neither remembers does not count: retention or an operator may
// remove it, which is no event of the key, and a replay could not decide alike.
func (a *application) duplicate(ev edda.Event) bool {
	if ev.Kind == edda.KindTimer || ev.Redriven {
		return false
	}
	same := func(e edda.Entry) bool { return e.Event.ID == ev.ID }
	if slices.ContainsFunc(a.cell.Parked, same) || slices.ContainsFunc(a.cell.Held, same) || a.startedBy(ev) {
		return true
	}
	return a.cell.Instance != nil && slices.Contains(a.cell.Instance.Recent, ev.ID)
}

// repeated drops an event that was taken before. A result settles its command all
// the same: one that was sent again, by a replay, waits for it.
func (a *application) repeated(ev edda.Event) {
	tr := edda.Transition{Event: ev, Fate: edda.FateDuplicate, Outputs: []edda.Output{{Word: "duplicate", Name: nameOf(ev)}}}
	if ev.Kind == edda.KindResult {
		tr.Settled = []string{ev.CommandID}
	}
	a.add(tr)
}

// startedBy tells whether the event is the start that began the instance, sent
// again after more events than it remembers: to refuse it would fail the parent.
func (a *application) startedBy(ev edda.Event) bool {
	in := a.cell.Instance
	return in != nil && ev.Kind == edda.KindStart && ev.CommandID != "" && ev.CommandID == in.ParentCommand
}

// program is the version that the event meets: the instance's own, or the
// newest where there is none.
func (a *application) program() *Program {
	if a.cell.Instance == nil {
		return a.set.Newest(a.cell.Key.Saga)
	}
	return a.set.program(a.cell.Instance)
}

// starts tells whether the event begins an instance or a new generation of it,
// on the newest version.
func (a *application) starts(ev edda.Event) bool {
	p := a.set.Starts(a.cell.Key.Saga)
	in := a.cell.Instance
	if p == nil || !slices.Contains(a.versions, p.Version()) || in != nil && !in.Status.Finished() {
		return false
	}
	h := p.starter(ev)
	return h != nil && (in == nil || h.src.Restart)
}

// starter finds the handler by which the event may begin an instance.
func (p *Program) starter(ev edda.Event) *handler {
	for _, h := range p.candidates(ev) {
		if h.src.Start {
			return h
		}
	}
	return nil
}

// candidates lists the handlers an event may run.
func (p *Program) candidates(ev edda.Event) []*handler {
	switch ev.Kind {
	case edda.KindEvent, edda.KindSchedule:
		return p.match(ev)
	case edda.KindSignal:
		return p.named("signal." + ev.Type)
	case edda.KindStart:
		return p.childStart(ev.Type)
	}
	return nil
}

func (p *Program) named(trigger string) []*handler {
	if h := p.plain[trigger]; h != nil {
		return []*handler{h}
	}
	return nil
}

// childStart is the handler a parent asks for, or the only start handler.
func (p *Program) childStart(trigger string) []*handler {
	var starts []*handler
	for _, h := range p.handlers {
		if h.src.Start && (trigger == "" || h.trigger == trigger) {
			starts = append(starts, h)
		}
	}
	if len(starts) != 1 {
		return nil
	}
	return starts
}

// start begins an instance; then what was parked for it follows.
func (a *application) start(ev edda.Event) {
	p := a.set.Newest(a.cell.Key.Saga)
	in := p.fresh(a.cell.Key, ev, a.cell.Instance)
	ok := a.transition(p, in, ev, func(r *run) error {
		r.begin()
		return r.dispatch()
	})
	if !ok {
		return
	}
	a.queue, a.unparked = slices.Clone(a.cell.Parked), true
}

// advance gives the event to the instance.
func (a *application) advance(ev edda.Event) {
	p := a.program()
	if p == nil && a.cell.Instance.Status.Finished() {
		a.add(edda.Transition{Event: ev, Fate: edda.FateLate, Outputs: []edda.Output{{Word: "late", Name: nameOf(ev)}}})
		return
	}
	if p == nil && ev.Kind == edda.KindOperator && ev.Type == edda.VerbTerminate {
		p = a.set.Newest(a.cell.Key.Saga) // terminating asks nothing of the manifest
	}
	if p == nil {
		a.poison(nil, ev, errors.New("the version of the manifest it began with is not loaded"))
		return
	}
	if ev.Kind == edda.KindEvent && !slices.Contains(a.versions, p.Version()) {
		a.add(edda.Transition{Event: ev, Fate: edda.FateIgnored, Outputs: []edda.Output{{Word: "ignored", Name: nameOf(ev)}}})
		return
	}
	a.transition(p, clone(a.cell.Instance), ev, (*run).dispatch)
}

// transition runs one transition on an instance of its own and records it, or the
// poison it met.
func (a *application) transition(p *Program, in *edda.Instance, ev edda.Event, do func(*run) error) bool {
	tr, err := runTransition(p, in, ev, func(r *run) error {
		r.know(a.payload)
		return do(r)
	})
	if err != nil {
		a.failed(p, ev, err)
		return false
	}
	a.add(tr)
	return true
}

func runTransition(p *Program, in *edda.Instance, ev edda.Event, do func(*run) error) (edda.Transition, error) {
	r := newRun(p, in, ev)
	tr, err := r.whole(do)
	r.over()
	return tr, err
}

// missing decides about an event for an instance that is not there.
func (a *application) missing(ev edda.Event) {
	switch ev.Kind {
	case edda.KindEvent:
		a.park(a.set.Starts(a.cell.Key.Saga), ev)
	case edda.KindStart:
		a.refuseStart(ev, "unknown", "no start handler of the saga fits")
	case edda.KindResult:
		a.add(edda.Transition{Event: ev, Fate: edda.FateLate, Settled: []string{ev.CommandID}, Outputs: []edda.Output{{Word: "late", Name: nameOf(ev)}}})
	default:
		a.noInstance(ev)
	}
}

// noInstance refuses what somebody sent to an instance that is not there.
func (a *application) noInstance(ev edda.Event) {
	d := deadLetter(ev, a.cell.Key, edda.DeadNoInstance, "there is no such instance")
	a.add(edda.Transition{Event: ev, Fate: edda.FateDead, Dead: d, Outputs: []edda.Output{{Word: "refused", Name: nameOf(ev), Reason: d.Reason}}})
}

// park keeps an event that came before its instance, or drops it where every
// handler says so.
func (a *application) park(p *Program, ev edda.Event) {
	var h *handler
	if p != nil { // else no instance will come any more
		h = p.parker(ev)
	}
	if h == nil {
		a.add(edda.Transition{Event: ev, Fate: edda.FateIgnored, Outputs: []edda.Output{{Word: "dropped", Name: nameOf(ev)}}})
		return
	}
	if why := a.noRoomToPark(p, ev); why != "" {
		a.turnAway(ev, why)
		return
	}
	e := edda.Entry{N: nextN(a.cell.Parked), Event: ev, Expires: clockMillis(later(ev.Time, a.acted)).Add(h.park)}
	a.cell.Parked = append(slices.Clone(a.cell.Parked), e)
	a.add(edda.Transition{
		Event: ev, Fate: edda.FateParked, Park: &e, Outputs: []edda.Output{{Word: "parked", Name: nameOf(ev)}},
		Arm: []time.Time{e.Expires},
	})
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// parker is the handler that wants the event kept.
func (p *Program) parker(ev edda.Event) *handler {
	for _, h := range p.match(ev) {
		if h.src.Missing != "drop" {
			return h
		}
	}
	return nil
}

func nextN(list []edda.Entry) uint64 {
	if len(list) == 0 {
		return 1
	}
	return list[len(list)-1].N + 1
}

// refuseStart tells a parent that its child could not start.
func (a *application) refuseStart(ev edda.Event, code, why string) {
	payload, _ := jsonvalue.Encode(map[string]any{"code": code, "message": why})
	w := edda.Work{
		ID: deriveID(ev.Time, "refuse", ev.ID), Kind: edda.WorkEnd, From: a.cell.Key, Target: ev.Parent, CommandID: ev.CommandID,
		Outcome: edda.Failed, Payload: payload, Name: a.cell.Key.Saga, Time: clockMillis(ev.Time),
		Correlation: ev.Correlation, Causation: ev.ID, Trace: ev.Trace,
	}
	a.add(edda.Transition{Event: ev, Fate: edda.FateHandled, Work: []edda.Work{w}, Outputs: []edda.Output{{Word: "refused", Name: "start", Reason: code}}})
}
