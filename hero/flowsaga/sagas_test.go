package flowsaga_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/flowsaga"
	"edda/internal/testkit"
	"edda/saga"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// desk applies events to one flow, and keeps the due index as the store does.
type desk struct {
	t    failer
	s    flowsaga.Sagas
	cell edda.Cell
	rows []time.Time
	// parts are as the store has them; after every second step the cell is read from there.
	parts map[uint64]json.RawMessage
	steps int
	work  []flow.Batch
	ids   []string
}

type failer interface {
	Fatalf(format string, args ...any)
}

func newDesk(t failer) *desk {
	set, err := saga.NewSet()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &desk{t: t, s: flowsaga.With(set), cell: edda.Cell{Key: flowsaga.Key("acme", 7, 33)}, parts: map[uint64]json.RawMessage{}}
}

func (d *desk) signal(at time.Time, id, name string, payload any) []edda.Transition {
	raw, err := json.Marshal(payload)
	if err != nil {
		d.t.Fatalf("%v", err)
	}
	return d.apply(edda.Event{Kind: edda.KindSignal, ID: id, Tenant: "acme", Key: d.cell.Key, Type: name, Payload: raw, Time: at})
}

func (d *desk) apply(ev edda.Event) []edda.Transition {
	targets := d.s.Route(ev)
	if len(targets) != 1 || targets[0].Key != d.cell.Key {
		d.t.Fatalf("routed to %v", targets)
	}
	before, _ := json.Marshal(d.cell)
	cell, out := d.s.Apply(d.cell, targets[0], ev)
	if after, _ := json.Marshal(d.cell); !bytes.Equal(before, after) {
		d.t.Fatalf("the cell given was changed")
	}
	d.take(cell, out)
	return out
}

func (d *desk) take(cell edda.Cell, out []edda.Transition) {
	d.cell = cell
	for _, tr := range out {
		for _, p := range tr.Parts {
			if d.parts[p.N] = p.Data; p.Data == nil {
				delete(d.parts, p.N)
			}
		}
		for _, row := range tr.Arm {
			if !slices.ContainsFunc(d.rows, row.Equal) {
				d.rows = append(d.rows, row)
			}
		}
		for _, row := range tr.Disarm {
			d.rows = slices.DeleteFunc(d.rows, row.Equal)
		}
		for _, w := range tr.Work {
			var b flow.Batch
			if err := json.Unmarshal(w.Payload, &b); err != nil {
				d.t.Fatalf("%v", err)
			}
			d.work = append(d.work, b)
			d.ids = append(d.ids, w.ID)
		}
	}
	d.check()
	if d.steps++; d.steps%2 == 0 {
		d.read()
	}
}

// read is the cell as it comes from the store.
func (d *desk) read() {
	if d.cell.Instance == nil {
		return
	}
	if d.cell.Instance.Parts != len(d.parts) {
		d.t.Fatalf("the instance has %d parts, and %d are stored", d.cell.Instance.Parts, len(d.parts))
	}
	in := *d.cell.Instance
	in.Memo = nil
	d.cell.Instance, d.cell.Parts = &in, nil
	for _, n := range slices.Sorted(maps.Keys(d.parts)) {
		d.cell.Parts = append(d.cell.Parts, edda.Part{N: n, Data: d.parts[n]})
	}
}

// check checks that there is at most one row, early enough for the next due time.
func (d *desk) check() {
	in := d.cell.Instance
	if in == nil || in.Status.Finished() {
		return
	}
	next := d.state().Next()
	if len(d.rows) > 1 || !next.IsZero() && (len(d.rows) == 0 || d.rows[0].After(next)) {
		d.t.Fatalf("due at %v, but the rows are %v", next, d.rows)
	}
	if len(d.rows) == 1 && !d.rows[0].Equal(in.Armed) {
		d.t.Fatalf("armed %v, but the row is %v", in.Armed, d.rows[0])
	}
}

func (d *desk) state() flow.State {
	parts := []flow.StatePart{}
	for _, n := range slices.Sorted(maps.Keys(d.parts)) {
		parts = append(parts, flow.StatePart{N: n, Data: d.parts[n]})
	}
	s, err := flow.Unpack(d.cell.Instance.State, parts)
	if err != nil {
		d.t.Fatalf("%v", err)
	}
	return s
}

// wake fires the row, as the scheduler does when its time has come.
func (d *desk) wake(horizon time.Time) []edda.Transition {
	row := d.rows[0]
	cell, out := d.s.Wake(d.cell, row, horizon)
	d.take(cell, out)
	if slices.ContainsFunc(d.rows, row.Equal) && !d.cell.Instance.Armed.Equal(row) {
		d.t.Fatalf("the row that woke it is still there")
	}
	return out
}

func definition(t failer, retries uint8) flow.Definition {
	var jobs []hero.Job
	for id := uint32(1); id <= 4; id++ {
		jobs = append(jobs, hero.Job{ID: id, CallerID: 12, ContextID: 7, ScriptType: hero.ScriptPython, Timeout: 10, Retries: retries})
	}
	jobs[1].Dependends, jobs[2].Dependends, jobs[3].Dependends = []uint32{1}, []uint32{1}, []uint32{2, 3}
	jobs[3].Prerequisites = []string{"go"}
	d, err := flow.Define(hero.Flow{ID: 33, CallerID: 12, ContextID: 7, Jobs: []uint32{1, 2, 3, 4}}, jobs)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

func report(node uint32, status hero.NodeStatus) hero.Report {
	return hero.Report{ContextID: 7, FlowID: 33, Node: node, Status: status, Result: map[string]string{"output": "x"}}
}

func fate(t *testing.T, out []edda.Transition, want edda.Fate) {
	t.Helper()
	if len(out) != 1 || out[0].Fate != want {
		t.Fatalf("want one transition that is %s, have %+v", want, out)
	}
}

func TestAFlowRunsAsAnInstance(t *testing.T) {
	d := newDesk(t)
	fate(t, d.signal(epoch, "s1", "start", definition(t, 0)), edda.FateHandled)
	fate(t, d.signal(epoch, "s1", "start", definition(t, 0)), edda.FateDuplicate)
	fate(t, d.signal(epoch, "s2", "start", definition(t, 0)), edda.FateGuarded)
	for i, node := range []uint32{1, 2, 3} {
		fate(t, d.signal(epoch.Add(time.Duration(i)), fmt.Sprint("r", node), "report", report(node, hero.NodeCompleted)), edda.FateHandled)
	}
	fate(t, d.signal(epoch.Add(time.Second), "r3", "report", report(3, hero.NodeCompleted)), edda.FateDuplicate)
	fate(t, d.signal(epoch.Add(time.Second), "r3b", "report", report(3, hero.NodeCompleted)), edda.FateGuarded)
	fate(t, d.signal(epoch.Add(time.Second), "m", "met", map[string]string{"name": "go"}), edda.FateHandled)
	out := d.signal(epoch.Add(2*time.Second), "r4", "report", report(4, hero.NodeCompleted))
	fate(t, out, edda.FateHandled)
	in := d.cell.Instance
	if in.Status != edda.StatusDone || !in.Ended.Equal(epoch.Add(2*time.Second)) || in.Revision != 7 {
		t.Fatalf("%+v", in)
	}
	last := d.work[len(d.work)-1]
	if !slices.Equal(last.Jobs, []string{"job:12:1", "job:12:2", "job:12:3", "job:12:4"}) || last.ContextID != 7 {
		t.Fatalf("%+v", last)
	}
	fate(t, d.signal(epoch.Add(time.Hour), "r5", "report", report(4, hero.NodeFailed)), edda.FateLate)
	fate(t, d.signal(epoch.Add(time.Hour), "s3", "start", definition(t, 0)), edda.FateLate)
	d.rows = append(d.rows[:0], in.Armed)
	if d.wake(epoch.Add(time.Hour)); len(d.rows) != 0 {
		t.Fatalf("a finished flow keeps the rows %v", d.rows)
	}
}

func TestTheSameInputsGiveTheSameWork(t *testing.T) {
	run := func() []string {
		d := newDesk(t)
		d.signal(epoch, "s1", "start", definition(t, 1))
		d.signal(epoch.Add(1), "r1", "report", report(1, hero.NodeFailed))
		d.wake(epoch.Add(time.Minute))
		d.signal(epoch.Add(time.Minute), "c", "cancel", nil)
		return d.ids
	}
	first := run()
	if len(first) < 3 || !slices.Equal(first, run()) {
		t.Fatalf("ids %v, then %v", first, run())
	}
	slices.Sort(first)
	if len(slices.Compact(first)) != len(run()) {
		t.Fatalf("two pieces of work share an id: %v", first)
	}
}

func TestAFlowInErrorGoesOnWhereItFailed(t *testing.T) {
	d := newDesk(t)
	d.signal(epoch, "s1", "start", definition(t, 0))
	d.signal(epoch.Add(1), "r1", "report", report(1, hero.NodeCompleted))
	d.signal(epoch.Add(2), "r2", "report", report(2, hero.NodeFailed))
	d.signal(epoch.Add(3), "r3", "report", report(3, hero.NodeCompleted))
	if in := d.cell.Instance; in.Status != edda.StatusFailed || in.Reason == "" {
		t.Fatalf("%+v", in)
	}
	fate(t, d.signal(epoch.Add(4), "s2", "start", definition(t, 0)), edda.FateHandled)
	acts := d.work[len(d.work)-1].Acts
	if d.cell.Instance.Generation != 2 || acts[1].Kind != flow.ActDispatch || acts[1].Node != 2 || acts[1].Attempt != 1001 {
		t.Fatalf("generation %d: %+v", d.cell.Instance.Generation, acts)
	}
}

func TestWhatIsNotForAFlowIsRefused(t *testing.T) {
	d := newDesk(t)
	for name, payload := range map[string]any{"report": report(1, hero.NodeCompleted), "met": map[string]string{}, "cancel": nil} {
		out := d.signal(epoch, "x"+name, name, payload)
		if fate(t, out, edda.FateDead); out[0].Dead.Reason != edda.DeadNoInstance {
			t.Fatalf("%+v", out[0].Dead)
		}
	}
	fate(t, d.signal(epoch, "a", "start", "no definition"), edda.FateDead)
	d.signal(epoch, "s1", "start", definition(t, 0))
	for id, name := range map[string]string{"b": "report", "c": "met", "d": "dance"} {
		if out := d.signal(epoch, id, name, []int{1}); out[0].Fate != edda.FateDead || out[0].Dead.Error == "" {
			t.Fatalf("%s: %+v", name, out)
		}
	}
	fate(t, d.apply(edda.Event{Kind: edda.KindOperator, ID: "o", Type: edda.VerbCancel, Key: d.cell.Key, Tenant: "acme", Time: epoch}), edda.FateHandled)
	if d.cell.Instance.Reason != "cancelled" {
		t.Fatalf("%+v", d.cell.Instance)
	}
}

func TestOtherSagasAreLeftToTheOther(t *testing.T) {
	set, err := saga.NewSet()
	testkit.Must(t, err)
	s := flowsaga.With(set)
	if got := s.Route(edda.Event{Kind: edda.KindEvent, Type: "OrderPlaced"}); got != nil {
		t.Fatalf("%+v", got)
	}
	got := s.Route(edda.Event{Kind: edda.KindSignal, Type: "x", Key: edda.Key{Saga: "order", Correlation: "1"}})
	if len(got) != 1 || got[0].Dead == nil {
		t.Fatalf("%+v", got)
	}
	if _, out := s.Apply(edda.Cell{}, got[0], edda.Event{}); out[0].Fate != edda.FateDead {
		t.Fatalf("%+v", out)
	}
}

func TestKeys(t *testing.T) {
	context, id, err := flowsaga.FlowOf(flowsaga.Key("acme", 7, 33))
	if err != nil || context != 7 || id != 33 {
		t.Fatal(context, id, err)
	}
	for _, bad := range []edda.Key{{Saga: "order", Correlation: "7-33"}, {Saga: flowsaga.Saga, Correlation: "7"}, {Saga: flowsaga.Saga, Correlation: "7-4294967296"}} {
		if _, _, err := flowsaga.FlowOf(bad); err == nil {
			t.Fatalf("%v was taken", bad)
		}
	}
}

// After any events in any order the rows of the due index are right, and a flow without
// further events ends.
func TestEveryFlowEndsAndItsRowsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t)
		now := epoch
		d.signal(now, "s", "start", definition(t, uint8(rapid.IntRange(0, 2).Draw(t, "retries"))))
		for i := range rapid.IntRange(0, 30).Draw(t, "inputs") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			if len(d.rows) > 0 && !d.rows[0].After(now) {
				d.wake(now)
			}
			status := rapid.SampledFrom([]hero.NodeStatus{hero.NodeRunning, hero.NodeCompleted, hero.NodeFailed}).Draw(t, "status")
			d.signal(now, fmt.Sprint("r", i), "report", report(uint32(rapid.IntRange(1, 4).Draw(t, "node")), status))
			if rapid.IntRange(0, 9).Draw(t, "met") == 0 {
				d.signal(now, fmt.Sprint("m", i), "met", map[string]string{"name": "go"})
			}
		}
		for i := 0; !d.cell.Instance.Status.Finished(); i++ {
			if i > 100 || len(d.rows) == 0 {
				t.Fatalf("it never ends: rows %v, %+v", d.rows, d.state())
			}
			d.wake(d.rows[0])
		}
	})
}

// The engine holds the event at which a step failed. The flow goes on, and an operator
// redrives or drops the event.
func TestAHeldEventIsReleased(t *testing.T) {
	for verb, want := range map[string]edda.Fate{edda.VerbRedrive: edda.FateHandled, edda.VerbDrop: edda.FateHandled} {
		d := newDesk(t)
		d.signal(epoch, "s1", "start", definition(t, 0))
		raw, err := json.Marshal(report(1, hero.NodeCompleted))
		testkit.Must(t, err)
		held := edda.Event{Kind: edda.KindSignal, ID: "r1", Tenant: "acme", Key: d.cell.Key, Type: "report", Payload: raw, Time: epoch}
		in := *d.cell.Instance
		in.Held = "D1"
		d.cell.Instance, d.cell.Held = &in, []edda.Entry{{N: 1, Event: held, DeadLetter: "D1"}}
		out := d.apply(edda.Event{Kind: edda.KindOperator, ID: "o1", Type: verb, Key: d.cell.Key, Tenant: "acme", Time: epoch})
		if out[0].Fate != want || !slices.Equal(out[0].Release, []uint64{1}) || !slices.Equal(out[0].Resolved, []string{"D1"}) || d.cell.Instance.Held != "" || d.cell.Held != nil {
			t.Fatalf("%s: %+v", verb, out)
		}
		done, _ := d.state().Node(1)
		if again := done.Status == hero.NodeCompleted; again != (verb == edda.VerbRedrive) || again != (len(out) == 2) {
			t.Fatalf("%s: node 1 is %s after %d transitions", verb, done.Status, len(out))
		}
		fate(t, d.apply(edda.Event{Kind: edda.KindOperator, ID: "o2", Type: verb, Key: d.cell.Key, Tenant: "acme", Time: epoch}), edda.FateLate)
	}
}

// A dead letter of a flow that holds nothing is applied where the verb brings its
// event, and what an operator changed with it.
func TestADeadLetterOfAFlowIsRedriven(t *testing.T) {
	d := newDesk(t)
	d.signal(epoch, "s1", "start", definition(t, 0))
	raw, err := json.Marshal(report(1, hero.NodeCompleted))
	testkit.Must(t, err)
	dead := edda.Event{Kind: edda.KindSignal, ID: "r1", Tenant: "acme", Key: d.cell.Key, Type: "report", Payload: json.RawMessage(`"broken"`), Time: epoch}
	payload, err := json.Marshal(edda.Redrive{DeadLetter: "D1", Event: &dead, Data: raw})
	testkit.Must(t, err)
	verb := edda.Event{Kind: edda.KindOperator, ID: "o1", Type: edda.VerbRedrive, Key: d.cell.Key, Tenant: "acme", Time: epoch, Payload: payload}
	out := d.apply(verb)
	if len(out) != 2 || !slices.Equal(out[0].Resolved, []string{"D1"}) || out[1].Fate != edda.FateHandled || !out[1].Event.Redriven {
		t.Fatalf("%+v", out)
	}
	fate(t, d.apply(verb), edda.FateDuplicate)
	verb.ID, verb.Payload = "o2", json.RawMessage(`{"dead_letter":"D1"}`)
	if out := d.apply(verb); out[0].Fate != edda.FateLate || len(out[0].Resolved) != 0 {
		t.Fatalf("of what is gone: %+v", out)
	}
	dead.Payload, dead.Stream, dead.Seq = nil, "WORKFLOW_EVENTS", 7
	if payload, err = json.Marshal(edda.Redrive{DeadLetter: "D1", Event: &dead, Cut: 900}); err != nil {
		t.Fatal(err)
	}
	verb.ID, verb.Payload = "o3", payload
	if out := d.apply(verb); len(out) != 1 || out[0].Fate != edda.FateLate || len(out[0].Resolved) != 0 || !strings.Contains(out[0].Outputs[0].Reason, "nats stream get WORKFLOW_EVENTS 7") {
		t.Fatalf("without its payload: %+v", out)
	}
}

func TestAFlowRemembersTheLastEventsOnly(t *testing.T) {
	d := newDesk(t)
	d.signal(epoch, "s1", "start", definition(t, 0))
	for i := range 100 {
		d.signal(epoch, fmt.Sprint("m", i), "met", map[string]string{"name": "else"})
	}
	if n := len(d.cell.Instance.Recent); n != 64 || d.cell.Instance.Recent[63] != "m99" {
		t.Fatalf("remembers %d", n)
	}
}

func TestNothingIsDoneBeforeItsTime(t *testing.T) {
	d := newDesk(t)
	d.signal(epoch, "s1", "start", definition(t, 0))
	out := d.wake(epoch.Add(time.Second))
	if len(out) != 1 || out[0].Fate != "" || len(out[0].Work) != 0 {
		t.Fatalf("a row that is too early did %+v", out)
	}
	if n, _ := d.state().Node(1); n.Status != hero.NodeDispatched {
		t.Fatalf("%+v", n)
	}
}

// An older edda kept the whole state in one row.
func TestAFlowOfAnOlderEddaGoesOn(t *testing.T) {
	d := newDesk(t)
	whole, _ := definition(t, 0).State().Start(epoch)
	raw, err := json.Marshal(whole)
	testkit.Must(t, err)
	d.cell.Instance = &edda.Instance{Key: d.cell.Key, Version: 1, Generation: 1, Status: edda.StatusRunning, Started: epoch, Updated: epoch, Revision: 1, State: raw, Armed: whole.Next()}
	d.rows = []time.Time{whole.Next()}
	fate(t, d.signal(epoch.Add(time.Second), "r1", "report", report(1, hero.NodeCompleted)), edda.FateHandled)
	if n := d.cell.Instance.Parts; n != 2 || len(d.parts) != n {
		t.Fatalf("%d parts, %d stored", n, len(d.parts))
	}
	for _, node := range []uint32{2, 3} {
		fate(t, d.signal(epoch.Add(2*time.Second), fmt.Sprint("r", node), "report", report(node, hero.NodeCompleted)), edda.FateHandled)
	}
	if done, _ := d.state().Node(3); done.Status != hero.NodeCompleted {
		t.Fatalf("%+v", done)
	}
}

// A flow that starts again with other jobs has no part of the earlier ones.
func TestTheNextStartOfASmallerFlowRemovesTheParts(t *testing.T) {
	d := newDesk(t)
	var jobs []hero.Job
	f := hero.Flow{ID: 33, CallerID: 12, ContextID: 7}
	for id := uint32(1); id <= 40; id++ {
		jobs = append(jobs, hero.Job{ID: id, CallerID: 12, ContextID: 7, ScriptType: hero.ScriptPython, Prerequisites: []string{fmt.Sprint("p", id)}})
		f.Jobs = append(f.Jobs, id)
	}
	large, err := flow.Define(f, jobs)
	testkit.Must(t, err)
	d.signal(epoch, "s1", "start", large)
	for id := 1; id <= 20; id++ {
		d.signal(epoch, fmt.Sprint("m", id), "met", map[string]string{"name": fmt.Sprint("p", id)})
	}
	if len(d.state().Met) != 20 || len(d.parts) != 1+5+3 {
		t.Fatalf("%d met, %d parts", len(d.state().Met), len(d.parts))
	}
	d.signal(epoch, "c", "cancel", nil)
	d.read()
	d.signal(epoch, "s2", "start", definition(t, 0))
	if n := d.cell.Instance.Parts; n != 1+1+3 || len(d.parts) != n {
		t.Fatalf("%d parts, %d stored", n, len(d.parts))
	}
}
