package saga

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"edda"
	"edda/expression"
	"edda/internal/jsonvalue"
)

// maxShown bounds the bytes of inputs stored with a poison event.
const maxShown = 4 << 10

// run is one transition in progress: a private copy of the instance, and the transition with what
// the run has emitted so far. The caller drops the transition of a failed run.
type run struct {
	p    *Program
	key  edda.Key
	tr   *edda.Transition // filled by the run
	ev   *edda.Event      // of the transition
	now  time.Time
	in   *edda.Instance // a copy that the run may change
	path string         // of the handler or action under way, for errors

	payload   decoded  // of the event
	settled   decoded  // the data of a step's outcome
	before    document // the state at the start
	state     *document
	stateSet  bool      // a set or an unset has run
	event     *decoded  // what expressions see as event
	guarded   int       // handlers whose conditions were false
	emitted   []string  // ids of the steps and groups of this transition
	runs      []string  // the paths that ran, one entry for each time
	buffer    [5]string // the first memory of runs and emitted: few transitions need more
	actions   int
	budget    expression.Budget
	isLate    bool // the trigger came too late
	unbounded bool // limits do not apply, because the instance is ending
}

// poisonError says that an event cannot be applied with the current program.
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

// newRun starts a transition, which has only its event yet, on an instance that it may change.
func newRun(p *Program, in *edda.Instance, tr *edda.Transition) *run {
	ev := &tr.Event
	r := &run{p: p, key: in.Key, tr: tr, ev: ev, in: in}
	r.runs, r.emitted = r.buffer[:0:3], r.buffer[3:3]
	r.payload, r.before = decoded{raw: ev.Payload}, document{decoded{raw: in.State}}
	r.event, r.state = &r.payload, &r.before
	r.budget = expression.NewBudget(p.o.MaxEvaluation)
	r.now = clockMillis(ev.Time)
	if r.now.Before(in.Updated) {
		r.now = in.Updated
	}
	r.in.Updated = r.now
	r.in.Revision++
	return r
}

// execute runs the whole transition: it checks the payload, calls do, checks the limits and
// completes the transition.
func (r *run) execute(do func(*run) error) error {
	// An event or a signal is decoded by its expressions. Any other payload is stored as it came, and
	// one that can never be read is refused: a result that is nested too deep has no undo.
	if r.ev.Kind != edda.KindEvent && r.ev.Kind != edda.KindSignal && !r.event.done {
		if err := jsonvalue.Check(r.ev.Payload); err != nil {
			return r.poison("payload: %v", err)
		}
	}
	if err := do(r); err != nil {
		return err
	}
	if err := r.spend(0); err != nil { // the budget may have run out where a failure is not poison
		return err
	}
	if err := r.saveState(); err != nil {
		return err
	}
	fate := edda.FateHandled
	switch ran := len(r.tr.Handlers) > 0; {
	case r.isLate && !ran:
		fate = edda.FateLate
	case r.guarded > 0 && !ran:
		fate = edda.FateGuarded
	}
	// The event is a duplicate from now on. A late result is not: a late timer or a restored store may
	// still send its command, and then the result is needed.
	if r.ev.Kind != edda.KindTimer && (r.ev.Kind != edda.KindResult || fate != edda.FateLate) {
		r.in.Recent = remembered(r.in.Recent, r.ev.ID)
	}
	// The results, frames and timers of an instance grow with every round of a loop. While it ends it
	// may have any size, because its steps must be undone.
	if r.running() && !r.unbounded {
		if n := r.in.Size(); n > r.p.o.MaxInstance {
			return r.poison("the instance is about %d bytes with its steps, frames and timers, more than the limit of %d: let children do the rounds, or keep what is large outside", n, r.p.o.MaxInstance)
		}
	}
	r.tr.Key, r.tr.Fate, r.tr.Instance = r.key, fate, r.in
	return nil
}

// evaluation is the budget for expressions and their values; nil while the instance ends.
func (r *run) evaluation() *expression.Budget {
	if r.unbounded {
		return nil
	}
	return &r.budget
}

// spend pays for what an expression reads or writes.
func (r *run) spend(steps int) error {
	if b := r.evaluation(); !b.Spend(steps) {
		return r.poison("what this event sets off is too much: what its expressions do and give passed the budget of %d steps: let several events or a child do it, or keep what is large outside", b.Of())
	}
	return nil
}

// clone copies the parts of an instance that a transition changes in place. JSON values and the
// recent ids never change, so both share them.
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

// withRoom returns a copy with room for one more, because most transitions add a step.
func withRoom(steps []edda.Step) []edda.Step {
	if len(steps) == 0 {
		return nil
	}
	return append(make([]edda.Step, 0, len(steps)+1), steps...)
}

// fresh makes an instance that starts now, in the generation after prev's.
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

const deadlineName = "deadline"

func (r *run) ordinal() int {
	r.in.Ordinal++
	return r.in.Ordinal
}

func (r *run) view() view {
	return view{state: r.state, steps: r.in.Steps, groups: r.in.Groups}
}

func (r *run) running() bool { return r.in.Status == edda.StatusRunning }

func (r *run) output(o edda.Output) { r.tr.Outputs = append(r.tr.Outputs, o) }

// id derives the id of what a path of this transition emits. It has the time of the trigger and
// not of the instance, because that depends on what was applied before. A restored store takes the
// inputs in another order.
func (r *run) id(path string) string {
	return commandID(r.key, r.in.Generation, r.ev.ID, clockMillis(r.ev.Time), path)
}

// send queues work and adds the fields that all work has.
func (r *run) send(w edda.Work) {
	w.From, w.Time = r.key, r.now
	w.Correlation, w.Causation, w.Trace = r.correlation(), r.ev.ID, r.ev.Trace
	if w.Trace == "" {
		w.Trace = r.in.Trace
	}
	r.tr.Work = append(r.tr.Work, w)
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

// metaOf returns the fields of the trigger that expressions see as meta.
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

// seen has the parts of A & B, by their names with and without the aggregate's type.
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

// saveState encodes a changed state and checks its size and its schema.
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
	if r.p.schema != nil && !r.unbounded {
		state, err := r.state.object()
		if err == nil {
			err = validate(r.p.schema, state)
		}
		if err != nil {
			return r.poison("state violates its schema: %v", err)
		}
	}
	r.in.State = raw
	return nil
}

// remembered returns a new list, because instances of a key share Recent.
func remembered(recent []string, id string) []string {
	recent = recent[max(0, len(recent)+1-recentIDs):]
	return append(append(make([]string, 0, len(recent)+1), recent...), id)
}

// step returns the latest round of a step, or nil.
func (r *run) step(id string) *edda.Step {
	for i := range r.in.Steps {
		if r.in.Steps[i].ID == id {
			return &r.in.Steps[i]
		}
	}
	return nil
}
