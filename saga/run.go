package saga

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"edda"
	"edda/expression"
	"edda/internal/jsonvalue"
)

// maxShown bounds the inputs kept with a poison event.
const maxShown = 4 << 10

// run is one transition under way: a private copy of the instance, and what it
// has emitted so far. When it fails, it is dropped whole.
type run struct {
	p    *Program
	key  edda.Key
	ev   edda.Event
	now  time.Time
	in   *edda.Instance // a clone, ours to change
	path string         // of the handler or action under way, for errors

	given     decoded  // the payload
	told      decoded  // what became of a step
	before    document // the state
	state     *document
	stateSet  bool // state differs from in.State
	event     *decoded
	handled   []string
	guarded   int
	out       []edda.Output
	work      []edda.Work
	settled   []string
	emitted   map[string]bool // step ids of this transition
	runs      map[string]int  // how often each path ran
	room      room
	actions   int
	budget    expression.Budget
	isLate    bool // the trigger came too late
	unbounded bool // must not fail for a limit: it is the way to an end
}

// poisonError is an event that can never be applied as things are.
type poisonError struct {
	path, source, inputs, message string
}

func (e *poisonError) Error() string {
	if e.source == "" {
		return e.message
	}
	return fmt.Sprintf("%s: in %s", e.message, e.source)
}

func (r *run) poison(format string, args ...any) error {
	return &poisonError{path: r.path, message: fmt.Sprintf(format, args...)}
}

func bounded(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// runs are those that are over: nothing that they gave refers to them.
var runs = sync.Pool{New: func() any { return &run{runs: map[string]int{}, emitted: map[string]bool{}} }}

const (
	// maxNoted is how much a run may have noted to be worth keeping.
	maxNoted = 64
	// maxWritten is how large the room for values may be, likewise: that of most payloads.
	maxWritten = 16 << 10
)

// newRun begins a transition on an instance that is its own to change.
func newRun(p *Program, in *edda.Instance, ev edda.Event) *run {
	r := runs.Get().(*run)
	r.p, r.key, r.ev, r.in = p, in.Key, ev, in
	r.given, r.before = decoded{raw: ev.Payload}, document{decoded{raw: in.State}}
	r.event, r.state = &r.given, &r.before
	r.budget = expression.NewBudget(p.o.MaxEvaluation)
	r.now = clockMillis(ev.Time)
	if r.now.Before(in.Updated) {
		r.now = in.Updated
	}
	r.in.Updated = r.now
	r.in.Revision++
	return r
}

// whole is the transition from its beginning to its end.
func (r *run) whole(do func(*run) error) (edda.Transition, error) {
	if err := r.checkPayload(); err != nil {
		return edda.Transition{}, err
	}
	if err := do(r); err != nil {
		return edda.Transition{}, err
	}
	return r.finish()
}

// over gives the run back. One that panicked is not.
func (r *run) over() {
	if len(r.runs)+len(r.emitted)+cap(r.out)+cap(r.room.ends) > maxNoted || cap(r.room.b) > maxWritten {
		return
	}
	clear(r.runs)
	clear(r.emitted)
	clear(r.out)
	*r = run{runs: r.runs, emitted: r.emitted, room: r.room, out: r.out[:0]}
	runs.Put(r)
}

// evaluation is what expressions and their values may still cost; nil on the way to an end.
func (r *run) evaluation() *expression.Budget {
	if r.unbounded {
		return nil
	}
	return &r.budget
}

// spend pays for what is read or written for an expression.
func (r *run) spend(steps int) error {
	if b := r.evaluation(); !b.Spend(steps) {
		return r.poison("what this event sets off is too much: what its expressions do and give passed the budget of %d steps: let several events or a child do it, or keep what is large outside", b.Of())
	}
	return nil
}

// know takes the payload of the event from who has decoded it.
func (r *run) know(payload *decoded) {
	if payload != nil && payload.is(r.ev.Payload) {
		r.event = payload
	}
}

// checkPayload refuses at once what would be kept as it came and could never be
// read: what is nested too deep in a result would make its undo impossible.
func (r *run) checkPayload() error {
	if r.ev.Kind == edda.KindEvent || r.ev.Kind == edda.KindSignal {
		return nil // its expressions read it now
	}
	if r.event.done {
		return nil
	}
	if err := jsonvalue.Check(r.ev.Payload); err != nil {
		return r.poison("payload: %v", err)
	}
	return nil
}

// clone copies everything of an instance that a transition changes in place.
// JSON values and the recent ids are never changed, so they are shared.
func clone(in *edda.Instance) *edda.Instance {
	out := *in
	out.Steps = withRoom(in.Steps)
	out.Older = slices.Clone(in.Older)
	out.Groups = slices.Clone(in.Groups)
	out.Frames = slices.Clone(in.Frames)
	out.Undos = slices.Clone(in.Undos)
	out.Timers = slices.Clone(in.Timers)
	out.Threads = slices.Clone(in.Threads)
	out.Seen = maps.Clone(in.Seen)
	out.Joined = slices.Clone(in.Joined)
	out.Incomplete = slices.Clone(in.Incomplete)
	out.Incidents = slices.Clone(in.Incidents)
	return &out
}

// withRoom is a copy with room for one more: most transitions add a step.
func withRoom(steps []edda.Step) []edda.Step {
	if len(steps) == 0 {
		return nil
	}
	return append(make([]edda.Step, 0, len(steps)+1), steps...)
}

// fresh is an instance that begins now, in the generation after prev's.
func (p *Program) fresh(key edda.Key, ev edda.Event, prev *edda.Instance) *edda.Instance {
	in := &edda.Instance{
		Key: key, Version: p.Version(), Hash: p.Hash(), Generation: 1, Status: edda.StatusRunning,
		State: p.initial, Started: clockMillis(ev.Time), Correlation: ev.Correlation, Trace: ev.Trace,
		Parent: ev.Parent,
	}
	if ev.Kind == edda.KindStart {
		in.ParentCommand = ev.CommandID
	}
	if prev != nil {
		in.Generation, in.Revision, in.Recent, in.Armed = prev.Generation+1, prev.Revision, prev.Recent, prev.Armed
		in.Updated = prev.Updated
	}
	return in
}

// begin arms what a new instance starts with: the deadline, before anything else.
func (r *run) begin() {
	if d := r.p.m.Deadline; d != nil {
		r.in.Timers = append(r.in.Timers, edda.Timer{Name: deadlineName, Due: r.now.Add(d.D), Order: r.ordinal(), Deadline: true})
	}
}

const deadlineName = "deadline"

func (r *run) ordinal() int {
	r.in.Ordinal++
	return r.in.Ordinal
}

func (r *run) view() view {
	return view{state: r.state, steps: r.in.Steps, groups: r.in.Groups}
}

// snapshot is the view that stays as it is while the run goes on.
func (r *run) snapshot() view {
	return view{state: r.state, steps: slices.Clone(r.in.Steps), groups: slices.Clone(r.in.Groups)}
}

func (r *run) running() bool { return r.in.Status == edda.StatusRunning }

func (r *run) output(o edda.Output) { r.out = append(r.out, o) }

// id derives the id of what a path of this transition emits. It carries the time
// of the trigger, not the instance's, which depends on what else was applied before:
// a restored store takes the same inputs in another order.
func (r *run) id(path string) string {
	return commandID(r.key, r.in.Generation, r.ev.ID, clockMillis(r.ev.Time), path)
}

func (r *run) uuid(name string) string { return r.id("uuid/" + r.path + "/" + name) }

// send queues work, with what everything emitted carries.
func (r *run) send(w edda.Work) {
	w.From, w.Time = r.key, r.now
	w.Correlation, w.Causation, w.Trace = r.correlation(), r.ev.ID, r.ev.Trace
	if w.Trace == "" {
		w.Trace = r.in.Trace
	}
	r.work = append(r.work, w)
}

func (r *run) correlation() string {
	switch {
	case r.ev.Correlation != "":
		return r.ev.Correlation
	case r.in.Correlation != "":
		return r.in.Correlation
	}
	return r.key.Correlation
}

// meta is what an expression sees of the trigger.
func (r *run) meta() any { return metaOf(r.ev) }

func metaOf(ev edda.Event) map[string]any {
	at := ev.Timestamp
	if at.IsZero() {
		at = ev.Time
	}
	return map[string]any{
		"id": ev.ID, "type": ev.Type, "version": ev.Version, "time": edda.FormatTime(at), "seq": int(ev.Seq),
		"aggregate":      map[string]any{"type": ev.AggregateType, "id": ev.AggregateID},
		"correlation_id": orNil(ev.Correlation), "causation_id": orNil(ev.Causation), "trace": orNil(ev.Trace),
		"tenant": ev.Tenant, "by": orNil(ev.By),
	}
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (r *run) sagaValue() any {
	return map[string]any{
		"name": r.p.Saga(), "status": string(r.in.Status), "reason": orNil(r.in.Reason),
		"gen": r.in.Generation, "version": r.in.Version,
	}
}

// seen is the parts of A & B, by their names with and without the aggregate's type.
func (r *run) seen() (any, error) {
	out := map[string]any{}
	for _, name := range sortedKeys(r.in.Seen) {
		v, err := jsonvalue.Decode(r.in.Seen[name])
		if err == nil {
			err = r.spend(expression.Read(v))
		}
		if err != nil {
			return nil, err
		}
		out[name] = v
		if _, short, ok := cutLast(name, "."); ok {
			out[short] = v
		}
	}
	return out, nil
}

// finish checks the limits and gives the transition.
func (r *run) finish() (edda.Transition, error) {
	if err := r.spend(0); err != nil { // it was passed where a failure is no poison
		return edda.Transition{}, err
	}
	if err := r.saveState(); err != nil {
		return edda.Transition{}, err
	}
	r.remember()
	if err := r.checkSize(); err != nil {
		return edda.Transition{}, err
	}
	return edda.Transition{
		Key: r.key, Event: r.ev, Fate: r.fate(), Handlers: r.handled,
		Outputs:  append([]edda.Output(nil), r.out...), // the list is the next run's
		Instance: r.in, Work: r.work, Settled: r.settled,
	}, nil
}

func (r *run) fate() edda.Fate {
	switch {
	case r.isLate && len(r.handled) == 0:
		return edda.FateLate
	case r.guarded > 0 && len(r.handled) == 0:
		return edda.FateGuarded
	}
	return edda.FateHandled
}

func (r *run) saveState() error {
	if !r.stateSet {
		return nil
	}
	raw, err := r.state.bytes()
	if err != nil {
		return r.poison("state: %v", err)
	}
	if len(raw) > r.p.o.MaxState && !r.unbounded {
		return r.poison("state is %d bytes, more than the limit of %d: keep what is large outside and refer to it", len(raw), r.p.o.MaxState)
	}
	if err := r.checkState(); err != nil && !r.unbounded {
		return r.poison("state violates its schema: %v", err)
	}
	r.in.State = raw
	return nil
}

func (r *run) checkState() error {
	if r.p.schema == nil {
		return nil
	}
	state, err := r.state.object()
	if err != nil {
		return err
	}
	return validate(r.p.schema, state)
}

// remember marks the event as taken, so that it is a duplicate from now on. A result
// that nothing waits for is not: should its command be sent after all, by a timer
// that is late or a store that was restored, its result is wanted when it comes again.
func (r *run) remember() {
	if r.ev.Kind == edda.KindTimer || r.ev.Kind == edda.KindResult && r.fate() == edda.FateLate {
		return
	}
	r.in.Recent = remembered(r.in.Recent, r.ev.ID)
}

// remembered is a list of its own: Recent is shared by the instances of a key.
func remembered(recent []string, id string) []string {
	recent = recent[max(0, len(recent)+1-recentIDs):]
	return append(append(make([]string, 0, len(recent)+1), recent...), id)
}

// emits notes the id of a step or a group: each may be emitted once.
func (r *run) emits(id string) {
	if r.emitted == nil {
		r.emitted = map[string]bool{}
	}
	r.emitted[id] = true
}

// step finds the latest round of a step.
func (r *run) step(id string) *edda.Step {
	for i := range r.in.Steps {
		if r.in.Steps[i].ID == id {
			return &r.in.Steps[i]
		}
	}
	return nil
}

func sortByIndex(steps []edda.Step) {
	sort.SliceStable(steps, func(i, j int) bool { return steps[i].Index < steps[j].Index })
}
