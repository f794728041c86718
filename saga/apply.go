package saga

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"edda"
	"edda/internal/jsonvalue"
)

// Apply applies one event to the cell of one target. It returns the new cell and the transitions
// in order. Each parked or held event that the event releases is a transition of its own. Apply
// does not change the cell that it is given.
func (s *Set) Apply(cell edda.Cell, t Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	cell.Key = t.Key
	a := &application{set: s, cell: cell, versions: t.Versions, crowded: t.Crowded, payload: t.payload, out: t.Room}
	if t.Dead != nil {
		a.dead(ev, t.Dead)
		return a.cell, a.out
	}
	a.apply(ev)
	a.followUp()
	a.rearm()
	return a.cell, a.out
}

// application applies one event, and the events that it releases, to one cell.
type application struct {
	set      *Set
	cell     edda.Cell
	versions []int
	out      []edda.Transition
	queue    []edda.Entry // released events, to be applied next
	unparked bool         // the queue has parked events, not held ones
	// acted is when an operator redrove the event being applied. If the event is parked, its time
	// to wait counts from then.
	acted   time.Time
	crowded bool     // the tenant may park no more
	payload *decoded // of the event that came; nil if it is not decoded yet
}

func (a *application) add(tr edda.Transition) {
	tr.Key = a.cell.Key
	if tr.Instance != nil {
		a.cell.Instance = tr.Instance
	}
	a.out = append(a.out, tr)
}

// unchanged records an event that changes nothing, with its fate and one output.
func (a *application) unchanged(ev edda.Event, fate edda.Fate, word string) {
	a.add(edda.Transition{Event: ev, Fate: fate, Outputs: []edda.Output{{Word: word, Name: nameOf(ev)}}})
}

// dead records an event that became a dead letter.
func (a *application) dead(ev edda.Event, d *edda.DeadLetter) {
	a.add(edda.Transition{Event: ev, Fate: edda.FateDead, Dead: d, Outputs: []edda.Output{{Word: "dead", Name: nameOf(ev), Reason: d.Reason}}})
}

// followUp applies the released events, each as a transition of its own. A poison one stops it,
// and the events after it stay held.
func (a *application) followUp() {
	for len(a.queue) > 0 {
		e := a.queue[0]
		a.queue = a.queue[1:]
		if a.unparked {
			a.applyParked(e)
			continue
		}
		if !a.applyHeld(e) {
			return
		}
	}
}

func (a *application) applyParked(e edda.Entry) {
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

// nameOf is the name of an event in outputs: its type, or what it is about.
func nameOf(ev edda.Event) string {
	switch ev.Kind {
	case edda.KindSignal:
		return "signal." + ev.Type
	case edda.KindSchedule:
		return "schedule." + ev.Type
	case edda.KindAnswer:
		return ev.Step + "." + ev.Type
	case edda.KindResult:
		return cmp.Or(ev.Step, ev.Type) + "." + outcomeOf(ev).word
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

// apply decides the fate of one event.
func (a *application) apply(ev edda.Event) {
	switch {
	case a.createsKey(ev) && len(a.cell.Key.Correlation) > edda.MaxKey:
		a.refuseKey(ev)
	case a.duplicate(ev):
		a.unchanged(ev, edda.FateDuplicate, "duplicate")
		if ev.Kind == edda.KindResult { // a command that a replay has sent again waits for it
			a.out[len(a.out)-1].Settled = []string{ev.CommandID}
		}
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

// createsKey reports whether the event would be the first that the store keeps anything of for its
// key.
func (a *application) createsKey(ev edda.Event) bool {
	if a.cell.Instance != nil || len(a.cell.Parked) > 0 || len(a.cell.Held) > 0 {
		return false
	}
	switch ev.Kind {
	case edda.KindEvent, edda.KindSchedule, edda.KindStart:
		return true
	}
	return ev.Kind == edda.KindSignal && a.starts(ev)
}

// refuseKey refuses an instance whose key is too long for an address and a cursor. Instances with
// such keys from an older version continue.
func (a *application) refuseKey(ev edda.Event) {
	why := fmt.Sprintf("the key has %d bytes, more than %d: a hash of it, such as a uuid, names an instance as well", len(a.cell.Key.Correlation), edda.MaxKey)
	if ev.Kind == edda.KindStart {
		a.refuseStart(ev, edda.DeadNoKey, why)
		return
	}
	k := edda.Key{Tenant: a.cell.Key.Tenant, Saga: a.cell.Key.Saga}
	a.dead(ev, deadLetter(ev, k, edda.DeadNoKey, why))
}

// duplicate reports whether the instance or its queues have seen the event. A dead letter that
// neither remembers does not count. Retention or an operator may remove it without an event of the
// key, so a replay could not decide alike.
func (a *application) duplicate(ev edda.Event) bool {
	if ev.Kind == edda.KindTimer || ev.Redriven {
		return false
	}
	if a.queued(ev) {
		return true
	}
	if a.cell.Instance == nil {
		return false
	}
	// The start that began the instance may come again after more events than the instance remembers.
	// Refusing it would fail the parent.
	began := ev.Kind == edda.KindStart && ev.CommandID != "" && ev.CommandID == a.cell.Instance.ParentCommand
	return began || slices.Contains(a.cell.Instance.Recent, ev.ID)
}

// queued reports whether the event is parked or held.
func (a *application) queued(ev edda.Event) bool {
	same := func(e edda.Entry) bool { return e.Event.ID == ev.ID }
	return slices.ContainsFunc(a.cell.Parked, same) || slices.ContainsFunc(a.cell.Held, same)
}

// program is the version that decides about the event: the instance's own, or the newest without
// an instance.
func (a *application) program() *Program {
	if a.cell.Instance == nil {
		return a.set.Newest(a.cell.Key.Saga)
	}
	return a.set.program(a.cell.Instance)
}

// starts reports whether the event starts an instance or a new generation of it, on the newest
// version.
func (a *application) starts(ev edda.Event) bool {
	p := a.set.Starts(a.cell.Key.Saga)
	in := a.cell.Instance
	if p == nil || !slices.Contains(a.versions, p.Version()) || in != nil && !in.Status.Finished() {
		return false
	}
	for _, h := range p.candidates(ev) {
		if h.src.Start {
			return in == nil || h.src.Restart
		}
	}
	return false
}

// candidates lists the handlers an event may run.
func (p *Program) candidates(ev edda.Event) []*handler {
	switch ev.Kind {
	case edda.KindEvent, edda.KindSchedule:
		return p.match(ev)
	case edda.KindSignal:
		return p.named("signal." + ev.Type)
	case edda.KindStart: // the handler that the parent asks for, or else the only one that starts
		var starts []*handler
		for _, h := range p.handlers {
			if h.src.Start && (ev.Type == "" || h.trigger == ev.Type) {
				starts = append(starts, h)
			}
		}
		if len(starts) == 1 {
			return starts
		}
	}
	return nil
}

func (p *Program) named(trigger string) []*handler {
	if h := p.plain[trigger]; h != nil {
		return []*handler{h}
	}
	return nil
}

// start starts an instance and queues the events that were parked for it.
func (a *application) start(ev edda.Event) {
	p := a.set.Newest(a.cell.Key.Saga)
	in := p.fresh(a.cell.Key, ev, a.cell.Instance)
	ok := a.transition(p, in, ev, func(r *run) error {
		if d := r.p.m.Deadline; d != nil { // armed before any other timer
			r.in.Timers = append(r.in.Timers, edda.Timer{Name: deadlineName, Due: r.now.Add(d.D), Order: r.ordinal(), Deadline: true})
		}
		return r.dispatch()
	})
	if !ok {
		return
	}
	a.queue, a.unparked = slices.Clone(a.cell.Parked), true
}

// advance applies the event to the instance.
func (a *application) advance(ev edda.Event) {
	p := a.program()
	if p == nil && a.cell.Instance.Status.Finished() {
		a.unchanged(ev, edda.FateLate, "late")
		return
	}
	if p == nil && ev.Kind == edda.KindOperator && ev.Type == edda.VerbTerminate {
		p = a.set.Newest(a.cell.Key.Saga) // terminate does not use the manifest
	}
	if p == nil {
		a.poison(nil, ev, errors.New("the version of the manifest it began with is not loaded"))
		return
	}
	if ev.Kind == edda.KindEvent && !slices.Contains(a.versions, p.Version()) {
		a.unchanged(ev, edda.FateIgnored, "ignored")
		return
	}
	a.transition(p, clone(a.cell.Instance), ev, (*run).dispatch)
}

// transition runs one transition on in, which it may change, and records it. If it fails, it
// records the poison event and returns false.
func (a *application) transition(p *Program, in *edda.Instance, ev edda.Event, do func(*run) error) bool {
	n := len(a.out)
	a.out = append(a.out, edda.Transition{Event: ev})
	r := newRun(p, in, &a.out[n])
	if a.payload != nil && a.payload.is(ev.Payload) { // the router has decoded it
		r.event = a.payload
	}
	if err := r.execute(do); err != nil {
		a.out = slices.Delete(a.out, n, n+1)
		a.failed(p, ev, err)
		return false
	}
	a.cell.Instance = in
	return true
}

// runTransition runs a transition that the caller adds, perhaps with more in it.
func runTransition(p *Program, in *edda.Instance, ev edda.Event, do func(*run) error) (edda.Transition, error) {
	made := edda.Transition{Event: ev}
	err := newRun(p, in, &made).execute(do)
	return made, err
}

// missing decides the fate of an event without an instance.
func (a *application) missing(ev edda.Event) {
	switch ev.Kind {
	case edda.KindEvent:
		a.park(a.set.Starts(a.cell.Key.Saga), ev)
	case edda.KindStart:
		a.refuseStart(ev, "unknown", "no start handler of the saga fits")
	case edda.KindResult:
		a.unchanged(ev, edda.FateLate, "late")
		a.out[len(a.out)-1].Settled = []string{ev.CommandID}
	default:
		a.noInstance(ev)
	}
}

// noInstance refuses an input that was addressed to an instance that does not exist.
func (a *application) noInstance(ev edda.Event) {
	d := deadLetter(ev, a.cell.Key, edda.DeadNoInstance, "there is no such instance")
	a.add(edda.Transition{Event: ev, Fate: edda.FateDead, Dead: d, Outputs: []edda.Output{{Word: "refused", Name: nameOf(ev), Reason: d.Reason}}})
}

// park parks an event that came before its instance. It drops the event if every handler says
// missing: drop. p is nil if no instance starts any more.
//
// The queues of a key and the parked events of a tenant are bounded. An event beyond the bound
// becomes a dead letter. So it is not lost: an operator can redrive it once there is room, and it
// blocks no other key and no other tenant. The key does not remember it, so the event may still be
// applied when it comes again.
func (a *application) park(p *Program, ev edda.Event) {
	var handlers []*handler
	if p != nil {
		handlers = p.match(ev)
	}
	i := slices.IndexFunc(handlers, func(h *handler) bool { return h.src.Missing != "drop" })
	if i < 0 {
		a.unchanged(ev, edda.FateIgnored, "dropped")
		return
	}
	why := ""
	if a.crowded {
		why = "the tenant may park no more events: start what those that wait are for, or let them expire"
	} else if why = noRoom(p.o, a.cell.Parked, ev); why != "" {
		why += " for an instance that has not begun"
	}
	if why != "" {
		a.dead(ev, deadLetter(ev, a.cell.Key, edda.DeadFull, why))
		return
	}
	e := edda.Entry{N: nextN(a.cell.Parked), Event: ev, Expires: clockMillis(later(ev.Time, a.acted)).Add(handlers[i].park)}
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

// noRoom says why a queue takes no more events; empty if it does.
func noRoom(o Options, queue []edda.Entry, ev edda.Event) string {
	if len(queue) >= o.MaxQueue {
		return fmt.Sprintf("%d events wait already", len(queue))
	}
	size := len(ev.Payload)
	for i := range queue {
		size += len(queue[i].Event.Payload)
	}
	if len(queue) > 0 && size > o.MaxQueueBytes {
		return fmt.Sprintf("%d bytes of events would wait, more than %d,", size, o.MaxQueueBytes)
	}
	return ""
}

func nextN(list []edda.Entry) uint64 {
	if len(list) == 0 {
		return 1
	}
	return list[len(list)-1].N + 1
}

// refuseStart tells a parent that its child did not start.
func (a *application) refuseStart(ev edda.Event, code, why string) {
	payload, _ := jsonvalue.Encode(map[string]any{"code": code, "message": why})
	w := edda.Work{
		ID: deriveID(ev.Time, "refuse", ev.ID), Kind: edda.WorkEnd, From: a.cell.Key, Target: ev.Parent, CommandID: ev.CommandID,
		Outcome: edda.Failed, Payload: payload, Name: a.cell.Key.Saga, Time: clockMillis(ev.Time),
		Correlation: ev.Correlation, Causation: ev.ID, Trace: ev.Trace,
	}
	a.add(edda.Transition{Event: ev, Fate: edda.FateHandled, Work: []edda.Work{w}, Outputs: []edda.Output{{Word: "refused", Name: "start", Reason: code}}})
}
