package saga

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda"
	"edda/internal/jsonvalue"
)

// TestAnyInterleavingKeepsThePromises runs sagas with random events, results, answers, verbs and
// clocks. It checks every transition against the model and against a second evaluation.
func TestAnyInterleavingKeepsThePromises(t *testing.T) {
	for _, v := range variants() {
		set := setOf(t, v.text)
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) { interleave(rt, set, v) })
		})
	}
}

const maxInputs = 45 // fewer than the event ids that an instance remembers

func interleave(t *rapid.T, set *Set, v variant) {
	w := newWorld(t, set, v)
	n := rapid.IntRange(5, maxInputs).Draw(t, "inputs")
	if rapid.IntRange(0, 2).Draw(t, "early events") > 0 {
		w.give(w.event("Go"))
	}
	for range n {
		w.act()
		w.check()
	}
	w.checkShown(w.shown)
	w.replay()
	w.rebuild()
}

// world keeps the state that the store, the scheduler and the effect workers would.
type world struct {
	t       *rapid.T
	set     *Set
	v       variant
	now     time.Time
	cell    edda.Cell
	rows    []time.Time // of the due index
	model   *model
	n       int
	inputs  []input
	results [][]byte // the transitions of each input
	shown   []shown
	given   []edda.Event    // applied so far, to be given again
	seen    map[string]bool // events that an instance has taken
	marks   []string        // those of the input under way
	ids     map[string]bool // of all work
	sent    []edda.Work
}

// input is an event, or a row that came due.
type input struct {
	ev           edda.Event
	row, horizon time.Time
}

// shown is a transition, and its encoding when it was returned.
type shown struct {
	tr  edda.Transition
	raw []byte
}

func newWorld(t *rapid.T, set *Set, v variant) *world {
	return &world{
		t: t, set: set, v: v, now: testStart.Add(time.Hour), model: newModel(v),
		cell: edda.Cell{Key: edda.Key{Tenant: "t", Saga: "shop", Correlation: "K"}},
		seen: map[string]bool{}, ids: map[string]bool{},
	}
}

// encoded writes as the store does.
func encoded(t interface{ Fatalf(string, ...any) }, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatalf("encode: %v", err)
	}
	return buf.Bytes()
}

func (w *world) run(cell edda.Cell, in input) (edda.Cell, []edda.Transition) {
	if in.ev.Kind == "" {
		return w.set.Wake(cell, in.row, in.horizon)
	}
	targets := w.set.Route(in.ev)
	if len(targets) != 1 || targets[0].Dead != nil {
		w.t.Fatalf("%s goes to %v", in.ev.Type, targets)
	}
	return w.set.Apply(cell, targets[0], in.ev)
}

// take applies one input three times, once from the stored form of the cell. All results must
// agree to the byte.
func (w *world) take(in input) []edda.Transition {
	before := encoded(w.t, w.cell)
	next, trs := w.run(w.cell, in)
	first := encoded(w.t, []any{next, trs})
	var stored edda.Cell
	if err := json.Unmarshal(before, &stored); err != nil {
		w.t.Fatal(err)
	}
	for _, again := range []edda.Cell{w.cell, stored} {
		cell, others := w.run(again, in)
		if second := encoded(w.t, []any{cell, others}); !bytes.Equal(first, second) {
			w.t.Fatalf("two runs differ:\n%s\n%s", first, second)
		}
	}
	if after := encoded(w.t, w.cell); !bytes.Equal(before, after) {
		w.t.Fatalf("the cell given is changed:\n%s\n%s", before, after)
	}
	w.cell = next
	w.inputs, w.results = append(w.inputs, in), append(w.results, first)
	for _, tr := range trs {
		w.shown = append(w.shown, shown{tr, encoded(w.t, tr)})
		w.note(tr)
	}
	return trs
}

// note records the effects of one transition on the world.
func (w *world) note(tr edda.Transition) {
	wanted := tr.Event.Kind == edda.KindResult && tr.Fate == edda.FateLate // the result may be needed when it comes again
	if tr.Instance != nil && tr.Hold == nil && !wanted {
		w.marks = append(w.marks, tr.Event.ID)
	}
	for _, gone := range tr.Disarm {
		w.rows = slices.DeleteFunc(w.rows, func(t time.Time) bool { return t.Equal(gone) })
	}
	w.rows = append(w.rows, tr.Arm...)
	for _, work := range tr.Work {
		if w.ids[work.ID] {
			w.t.Fatalf("the id %s is used twice, at last for %s %s", work.ID, work.Kind, work.Name)
		}
		w.ids[work.ID] = true
		w.sent = append(w.sent, work)
	}
	w.model.see(tr)
	for _, p := range w.model.problems {
		w.t.Fatalf("%s\nat %s %s %s %s: %s", p, tr.Fate, tr.Event.Kind, tr.Event.Type, tr.Event.Step, encoded(w.t, tr.Outputs))
	}
}

// give applies an event and checks its fate.
func (w *world) give(ev edda.Event) {
	before := w.cell
	trs := w.take(input{ev: ev})
	if len(trs) == 0 || trs[0].Event.ID != ev.ID || trs[0].Fate == "" {
		w.t.Fatalf("the event %s has no fate", ev.ID)
	}
	for _, tr := range trs[1:] {
		if tr.Event.ID == ev.ID {
			w.t.Fatalf("the event %s has two fates", ev.ID)
		}
	}
	w.checkFate(ev, trs[0].Fate, before)
	for _, id := range w.marks {
		w.seen[id] = true
	}
	w.marks = nil
	w.given = append(w.given, ev)
}

func (w *world) checkFate(ev edda.Event, got edda.Fate, before edda.Cell) {
	held := len(before.Held) > 0
	duplicate := w.seen[ev.ID] || queued(before, ev.ID)
	switch {
	case duplicate != (got == edda.FateDuplicate):
		w.t.Fatalf("%s %s: fate %s, seen before: %t", ev.Type, ev.ID, got, duplicate)
	case got == edda.FateHeld && !held, held && !duplicate && ev.Kind != edda.KindOperator && got != edda.FateHeld:
		w.t.Fatalf("%s: fate %s, the key was held: %t", ev.ID, got, held)
	}
	if released := held && len(w.cell.Held) == 0 || len(w.cell.Held) > 0 && held && w.cell.Held[0].Event.ID != before.Held[0].Event.ID; released && before.Instance != nil {
		w.seen[before.Held[0].Event.ID] = true // applied, or given up
	}
}

// queued reports whether an event waits in a cell.
func queued(c edda.Cell, id string) bool {
	same := func(e edda.Entry) bool { return e.Event.ID == id }
	return slices.ContainsFunc(c.Parked, same) || slices.ContainsFunc(c.Held, same)
}

// check checks the invariants of the cell.
func (w *world) check() {
	w.checkShown(w.shown[max(0, len(w.shown)-3):])
	if len(w.cell.Held) > 0 {
		w.checkHeld()
		return
	}
	if w.cell.Instance != nil && len(w.cell.Parked) > 0 {
		w.t.Fatalf("parked beside an instance: %s", encoded(w.t, w.cell.Parked))
	}
	if due, what := firstDue(w.cell); !due.IsZero() && !slices.ContainsFunc(w.rows, func(r time.Time) bool { return !r.After(due) }) {
		w.t.Fatalf("%s is due at %s, and the rows are %v", what, due, w.rows)
	}
}

func (w *world) checkHeld() {
	for i, e := range w.cell.Held {
		if (i == 0) != (e.DeadLetter != "") || i > 0 && e.N <= w.cell.Held[i-1].N {
			w.t.Fatalf("held: %s", encoded(w.t, w.cell.Held))
		}
	}
}

func (w *world) checkShown(all []shown) {
	for _, s := range all {
		if now := encoded(w.t, s.tr); !bytes.Equal(now, s.raw) {
			w.t.Fatalf("a transition was changed after it was returned:\n%s\n%s", s.raw, now)
		}
	}
}

// firstDue is the earliest thing due in a cell, read from its record.
func firstDue(c edda.Cell) (first time.Time, what string) {
	note := func(at time.Time, name string) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first, what = at, name
		}
	}
	in := c.Instance
	if in == nil {
		for _, e := range c.Parked {
			note(e.Expires, "parked "+e.Event.ID)
		}
		return first, what
	}
	if in.Status.Finished() {
		return first, what
	}
	for _, t := range in.Timers {
		note(t.Due, "timer "+t.Name)
	}
	for _, s := range append(slices.Clone(in.Steps), in.Older...) {
		if s.Status == edda.StepPending && !s.Late {
			note(s.Due, "step "+s.ID)
		}
	}
	for _, u := range in.Undos {
		if !u.Failed {
			note(u.Due, u.Step)
		}
	}
	return first, what
}

// advance moves the clock and fires rows as the scheduler would, sometimes a stale one.
func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	if rapid.IntRange(0, 9).Draw(w.t, "stale row") == 0 {
		w.take(input{row: w.now.Add(-d / 2), horizon: w.now})
	}
	for range 200 {
		slices.SortFunc(w.rows, time.Time.Compare)
		if len(w.rows) == 0 || w.rows[0].After(w.now) {
			break
		}
		w.take(input{row: w.rows[0], horizon: w.now})
	}
	if due, what := firstDue(w.cell); len(w.cell.Held) == 0 && !due.IsZero() && !due.After(w.now) {
		w.t.Fatalf("%s was due at %s, and it is %s", what, due, w.now)
	}
}

// replay applies all inputs to an empty cell, with the same result.
func (w *world) replay() {
	cell := edda.Cell{Key: w.cell.Key}
	for i, in := range w.inputs {
		next, trs := w.run(cell, in)
		if got := encoded(w.t, []any{next, trs}); !bytes.Equal(got, w.results[i]) {
			w.t.Fatalf("input %d gives something else in a replay:\n%s\n%s", i, w.results[i], got)
		}
		cell = next
	}
}

// act draws one input.
func (w *world) act() {
	switch pick := rapid.IntRange(0, 99).Draw(w.t, "what"); {
	case pick < 26:
		w.give(w.event(rapid.SampledFrom(eventTypes(w.v)).Draw(w.t, "event")))
	case pick < 68:
		w.result()
	case pick < 74:
		w.answer()
	case pick < 79 && len(w.given) > 0:
		w.give(rapid.SampledFrom(w.given).Draw(w.t, "again"))
	case pick < 90:
		w.advance(time.Duration(rapid.IntRange(0, 9*60).Draw(w.t, "minutes")) * time.Minute)
	default:
		w.operate()
	}
}

func eventTypes(v variant) []string {
	out := []string{
		"Go", "Again", "Again", "Again", "Round", "Round", "Stop", "StopOne", "Back", "BackAll", "Soon", "Bad", "End", "End", "Done", "Late", "Late",
	}
	if v.must {
		out = append(out, "Pay", "Pay")
	}
	return out
}

func (w *world) id() string {
	w.n++
	return fmt.Sprintf("in-%d", w.n)
}

func (w *world) event(name string) edda.Event {
	ev := edda.Event{Kind: edda.KindEvent, ID: w.id(), Tenant: "t", Type: name, Time: w.now, Seq: uint64(w.n)}
	payload := map[string]any{"id": "K"}
	switch name {
	case "Go", "Round":
		payload["items"] = rapid.SampledFrom([]any{[]any{1, 2}, []any{"x"}, []any{}, []any{1, 2, 3}, "poison"}).Draw(w.t, "items")
	case "Bad":
		payload["by"] = rapid.SampledFrom([]any{nil, 1}).Draw(w.t, "by")
	}
	ev.Payload, _ = jsonvalue.Encode(payload)
	return ev
}

func (w *world) to(kind edda.Kind) edda.Event {
	return edda.Event{Kind: kind, ID: w.id(), Tenant: "t", Key: w.cell.Key, Time: w.now}
}

// result answers a command that was sent, mostly a pending one.
func (w *world) result() {
	var waiting, all []edda.Work
	for _, work := range w.sent {
		if work.Kind != edda.WorkEffect && work.Kind != edda.WorkStart && work.Kind != edda.WorkCommand {
			continue
		}
		all = append(all, work)
		if s := w.model.steps[work.ID]; s != nil && !s.settled || w.undoing(work.ID) {
			waiting = append(waiting, work)
		}
	}
	from := waiting
	if len(waiting) == 0 || rapid.IntRange(0, 9).Draw(w.t, "any") == 0 {
		from = all
	}
	if len(from) == 0 {
		return
	}
	work := rapid.SampledFrom(from).Draw(w.t, "work")
	ev := w.to(edda.KindResult)
	ev.Type, ev.Step, ev.CommandID = work.Name, work.Step, work.ID
	ev.Outcome = rapid.SampledFrom([]edda.Outcome{edda.Succeeded, edda.Succeeded, edda.Succeeded, edda.Failed, edda.TimedOut}).Draw(w.t, "outcome")
	ev.Payload = json.RawMessage(`{"html":"<&>"}`)
	if work.Kind == edda.WorkCommand {
		ev.Type, ev.Outcome = commandEffect, edda.Failed
	}
	w.give(ev)
}

func (w *world) undoing(command string) bool {
	return slices.ContainsFunc(w.model.frames, func(f *modelFrame) bool { return f.undo == command && f.state == frameGoes })
}

func (w *world) answer() {
	ev := w.to(edda.KindAnswer)
	ev.Step, ev.Type = "q", rapid.SampledFrom([]string{"yea", "yea", "nay", "odd"}).Draw(w.t, "choice")
	w.give(ev)
}

func (w *world) operate() {
	ev := w.to(edda.KindOperator)
	ev.Type = rapid.SampledFrom([]string{
		edda.VerbCancel, edda.VerbTerminate, edda.VerbRetry, edda.VerbRetry, edda.VerbSkip, edda.VerbResolve, edda.VerbRedrive, edda.VerbDrop,
	}).Draw(w.t, "verb")
	if len(w.cell.Held) > 0 && rapid.Bool().Draw(w.t, "release") {
		ev.Type = rapid.SampledFrom([]string{edda.VerbRedrive, edda.VerbDrop}).Draw(w.t, "how")
	}
	switch ev.Type {
	case edda.VerbRetry, edda.VerbSkip, edda.VerbResolve:
		steps := []string{"l.undo", "a", "m", "z"}
		if in := w.cell.Instance; in != nil {
			for _, i := range in.Incidents {
				steps = append(steps, i.Step, i.Step)
			}
		}
		ev.Step = rapid.SampledFrom(steps).Draw(w.t, "step")
	}
	w.give(ev)
}
