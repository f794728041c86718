package flowsaga

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/saga"
)

const (
	// recentIDs bounds the event ids by which a flow knows a repeated event.
	recentIDs = 64
	// maxLooks bounds the deadlines of one wake. The next wake follows at once.
	maxLooks = 256
)

// application applies one event, or the passed deadlines, to one flow.
type application struct {
	cell edda.Cell
	out  []edda.Transition
	// was is the decoded state of the instance read.
	read *edda.Instance
	was  flow.State
}

func (a *application) add(tr edda.Transition) {
	tr.Key = a.cell.Key
	if tr.Instance != nil {
		a.cell.Instance = tr.Instance
	}
	a.out = append(a.out, tr)
}

func (a *application) apply(ev edda.Event) {
	in := a.cell.Instance
	switch {
	case in != nil && !ev.Redriven && slices.Contains(in.Recent, ev.ID):
		a.settle(ev, edda.FateDuplicate, "duplicate", "")
	case holds(ev):
		a.release(ev)
	case ev.Kind == edda.KindSignal && ev.Type == signalStart:
		a.start(ev)
	case in == nil:
		a.dead(ev, edda.DeadNoInstance, "there is no such flow")
	case in.Status.Finished():
		a.settle(ev, edda.FateLate, "late", "")
	default:
		a.advance(ev)
	}
}

// settle records an event that changes nothing.
func (a *application) settle(ev edda.Event, fate edda.Fate, word, reason string) {
	a.add(edda.Transition{Event: ev, Fate: fate, Outputs: []edda.Output{{Word: word, Name: nameOf(ev), Reason: reason}}})
}

func nameOf(ev edda.Event) string {
	if ev.Kind == edda.KindSignal {
		return "signal." + ev.Type
	}
	return ev.Type
}

func (a *application) dead(ev edda.Event, reason, why string) {
	d := &edda.DeadLetter{
		ID:     saga.CommandID(a.cell.Key, 0, ev.ID, ev.Time, "dead/"+reason),
		Reason: reason, Key: a.cell.Key, Event: ev, Error: why, Time: ev.Time.UTC().Truncate(time.Millisecond),
	}
	a.add(edda.Transition{Event: ev, Fate: edda.FateDead, Dead: d, Outputs: []edda.Output{{Word: "refused", Name: nameOf(ev), Reason: reason}}})
}

// start starts a flow. A flow that ended in error resumes where it failed. A running or
// finished one does not change.
func (a *application) start(ev edda.Event) {
	var d flow.Definition
	if err := json.Unmarshal(ev.Payload, &d); err != nil {
		a.dead(ev, edda.DeadPoison, "definition: "+err.Error())
		return
	}
	state, in := d.State(), a.cell.Instance
	switch {
	case in == nil:
	case !in.Status.Finished():
		a.settle(ev, edda.FateGuarded, "guarded", "it runs already")
		return
	case in.Status == edda.StatusDone:
		a.settle(ev, edda.FateLate, "late", "it is finished, and has its results")
		return
	default:
		before, err := a.state()
		if err != nil {
			a.dead(ev, edda.DeadPoison, err.Error())
			return
		}
		state = d.Resume(before)
	}
	now := ev.Time.UTC().Truncate(time.Millisecond)
	fresh := &edda.Instance{
		Key: a.cell.Key, Version: version, Hash: hash, Generation: 1, Status: edda.StatusRunning,
		Started: now, Updated: now, Correlation: ev.Correlation, Trace: ev.Trace,
	}
	if in != nil {
		fresh.Generation, fresh.Revision, fresh.Recent, fresh.Armed = in.Generation+1, in.Revision, in.Recent, in.Armed
		fresh.Updated = later(now, in.Updated)
	}
	next, acts := state.Start(fresh.Updated)
	a.step(fresh, ev, next, acts)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// copyOf returns a copy of the instance, which its next step may change.
func copyOf(in *edda.Instance, at time.Time) *edda.Instance {
	out := *in
	out.Updated = later(at.UTC().Truncate(time.Millisecond), in.Updated)
	return &out
}

// advance applies an event to a running flow.
func (a *application) advance(ev edda.Event) {
	state, err := a.state()
	if err != nil {
		a.dead(ev, edda.DeadPoison, err.Error())
		return
	}
	in := copyOf(a.cell.Instance, ev.Time)
	next, acts, err := decide(state, in.Updated, ev)
	if err != nil {
		a.dead(ev, edda.DeadPoison, err.Error())
		return
	}
	a.step(in, ev, next, acts)
}

// decide applies an event to the state.
func decide(s flow.State, now time.Time, ev edda.Event) (flow.State, []flow.Act, error) {
	switch {
	case ev.Kind == edda.KindSignal && ev.Type == signalReport:
		var r hero.Report
		if err := json.Unmarshal(ev.Payload, &r); err != nil {
			return s, nil, fmt.Errorf("report: %w", err)
		}
		next, acts, _ := s.Report(now, r)
		return next, acts, nil
	case ev.Kind == edda.KindSignal && ev.Type == signalMet:
		var m met
		if err := json.Unmarshal(ev.Payload, &m); err != nil {
			return s, nil, fmt.Errorf("prerequisite: %w", err)
		}
		next, acts, _ := s.Prerequisite(now, m.Name)
		return next, acts, nil
	case ev.Kind == edda.KindSignal && ev.Type == signalCancel,
		ev.Kind == edda.KindOperator && (ev.Type == edda.VerbCancel || ev.Type == edda.VerbTerminate):
		next, acts := s.Cancel(now)
		return next, acts, nil
	}
	return s, nil, fmt.Errorf("a flow takes no %s %s", ev.Kind, ev.Type)
}

// met is the payload of the signal that a prerequisite holds.
type met struct {
	Name string `json:"name"`
}

// memo keeps a flow's state, decoded, with its instance.
type memo struct{ state *flow.State }

// Size returns the size of the state.
func (m memo) Size() int { return m.state.Size() }

// stateOf reads a flow's state. The caller must not change it.
func stateOf(cell edda.Cell) (s flow.State, err error) {
	in := cell.Instance
	switch m, ok := in.Memo.(memo); {
	case ok:
		return *m.state, nil
	case in.Parts == 0: // written whole by an older edda
		err = json.Unmarshal(in.State, &s)
	default:
		parts := make([]flow.StatePart, len(cell.Parts))
		for i, p := range cell.Parts {
			parts[i] = flow.StatePart(p)
		}
		s, err = flow.Unpack(in.State, parts)
	}
	if err != nil {
		return s, fmt.Errorf("state of %s: %w", in.Key, err)
	}
	return s, nil
}

// state returns the state of the cell.
func (a *application) state() (flow.State, error) {
	if a.read == a.cell.Instance && a.read != nil {
		return a.was, nil
	}
	s, err := stateOf(a.cell)
	if err == nil {
		a.read, a.was = a.cell.Instance, s
	}
	return s, err
}

// pack returns the next state's head, and the parts that differ from the stored ones.
func (a *application) pack(next flow.State) (head json.RawMessage, changed []flow.StatePart, parts int, err error) {
	if in := a.cell.Instance; in == nil || in.Parts == 0 {
		return next.Pack(nil)
	}
	was, err := a.state()
	if err != nil {
		return nil, nil, 0, err
	}
	return next.Pack(&was)
}

// step records the change of one event, in an instance that the caller made.
func (a *application) step(in *edda.Instance, ev edda.Event, next flow.State, acts []flow.Act) {
	head, changed, parts, err := a.pack(next)
	if err != nil {
		a.dead(ev, edda.DeadPoison, err.Error())
		return
	}
	in.State, in.Parts, in.Memo = head, parts, memo{&next}
	in.Revision++
	if ev.Kind != edda.KindTimer && !numbered(ev) {
		in.Recent = append(slices.Clone(in.Recent), ev.ID)
		in.Recent = in.Recent[max(0, len(in.Recent)-recentIDs):]
	}
	tr := edda.Transition{Event: ev, Fate: edda.FateHandled, Handlers: []string{nameOf(ev)}, Instance: in, Outputs: outputs(acts)}
	if len(acts) == 0 {
		tr.Fate, tr.Handlers = edda.FateGuarded, nil
		tr.Outputs = []edda.Output{{Word: "guarded", Name: nameOf(ev)}}
	}
	if next.Ended() {
		in.Ended, in.Status, in.Reason = in.Updated, edda.StatusDone, ""
		if next.Status == hero.FlowError {
			in.Status, in.Reason = edda.StatusFailed, next.Reason
		}
		tr.Outputs = append(tr.Outputs, edda.Output{Word: "end", Name: string(in.Status), Reason: in.Reason})
	}
	for _, p := range changed {
		tr.Parts = append(tr.Parts, edda.Part(p))
	}
	a.cell.Parts = nil // the memo has them
	if len(acts) > 0 {
		tr.Work = []edda.Work{work(in, ev, next, acts)}
	}
	a.add(tr)
}

// numbered reports whether the event is a report that names its attempt. A repeated one changes
// nothing, so its id, one of several for each job, need not be kept.
func numbered(ev edda.Event) bool {
	var r struct {
		Attempt uint32 `json:"attempt"`
	}
	return ev.Kind == edda.KindSignal && ev.Type == signalReport && json.Unmarshal(ev.Payload, &r) == nil && r.Attempt > 0
}

// work returns the acts of one step as work, under an id derived from the step.
func work(in *edda.Instance, ev edda.Event, s flow.State, acts []flow.Act) edda.Work {
	d := s.Definition
	b := flow.Batch{FlowID: d.FlowID, CallerID: d.CallerID, ContextID: d.ContextID, Acts: acts}
	if s.Ended() {
		for _, n := range d.Nodes {
			b.Jobs = append(b.Jobs, hero.JobKey(n.CallerID, n.ID))
		}
	}
	payload, _ := json.Marshal(b) // strings and numbers always have JSON
	return edda.Work{
		ID: saga.CommandID(in.Key, in.Generation, ev.ID, in.Updated, "acts"), Kind: edda.WorkMessage, Name: flow.WorkName,
		From: in.Key, Payload: payload, Time: in.Updated, Correlation: in.Key.Correlation, Causation: ev.ID, Trace: in.Trace,
	}
}

func outputs(acts []flow.Act) []edda.Output {
	var out []edda.Output
	for _, a := range acts {
		node := strconv.FormatUint(uint64(a.Node), 10)
		switch a.Kind {
		case flow.ActDispatch:
			out = append(out, edda.Output{Word: "dispatch", Step: node, Attempt: int(a.Attempt)})
		case flow.ActStop:
			out = append(out, edda.Output{Word: "stop", Step: node})
		case flow.ActNode:
			out = append(out, edda.Output{Word: "node", Name: string(a.Status), Step: node, Reason: clip(a.Result[hero.ResultError])})
		}
	}
	return out
}

// maxReason bounds a node's error in the history, in bytes.
const maxReason = 200

func clip(s string) string {
	if len(s) > maxReason {
		return cut(s, maxReason) + "…"
	}
	return s
}

// wake handles the deadlines up to the horizon, in order, one transition each. The last
// transition removes the due row that woke the flow, and arms the next one.
func (a *application) wake(row, horizon time.Time) {
	if in := a.cell.Instance; in != nil && in.Armed.Equal(row) {
		used := *in
		used.Armed = time.Time{}
		a.cell.Instance = &used
	}
	a.look(horizon)
	if len(a.out) == 0 {
		a.add(edda.Transition{Instance: a.cell.Instance})
	}
	a.rearm()
	if in := a.cell.Instance; in == nil || !in.Armed.Equal(row) {
		last := &a.out[len(a.out)-1]
		last.Disarm = append(last.Disarm, row)
	}
}

// look applies the deadlines up to the horizon.
func (a *application) look(horizon time.Time) {
	for range maxLooks {
		in := a.cell.Instance
		if in == nil || in.Status.Finished() {
			return
		}
		state, err := a.state()
		if err != nil {
			return
		}
		due := state.Next()
		if due.IsZero() || due.After(horizon) {
			return
		}
		ev := dueEvent(in, due)
		next, acts := state.Tick(due)
		a.step(copyOf(in, due), ev, next, acts)
	}
}

func dueEvent(in *edda.Instance, due time.Time) edda.Event {
	return edda.Event{
		Kind: edda.KindTimer, Timer: edda.TimerNamed, Type: "due", Tenant: in.Key.Tenant, Key: in.Key, Time: due,
		ID:          "timer/flow/" + strconv.FormatInt(due.UnixMilli(), 10),
		Correlation: in.Correlation, Trace: in.Trace,
	}
}

// rearm moves the flow's row of the due index to an earlier deadline. A row that is too early
// stays: its wake finds no deadline and arms the next row.
func (a *application) rearm() {
	in := a.cell.Instance
	if in == nil || in.Status.Finished() || len(a.out) == 0 {
		return
	}
	last := &a.out[len(a.out)-1]
	state, err := a.state()
	if err != nil || last.Instance != in {
		return
	}
	due := state.Next()
	if due.IsZero() || !in.Armed.IsZero() && !due.Before(in.Armed) {
		return
	}
	if !in.Armed.IsZero() {
		last.Disarm = append(last.Disarm, in.Armed)
	}
	last.Arm = append(last.Arm, due)
	in.Armed = due
}
