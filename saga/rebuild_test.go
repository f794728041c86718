package saga

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
)

// past is the part of transitions that the store keeps.
func past(trs []edda.Transition) []Past {
	var rows []Past
	for _, tr := range trs {
		if tr.Fate == "" || tr.Fate == edda.FateIgnored {
			continue
		}
		row := Past{Event: tr.Event, Fate: tr.Fate, Outputs: tr.Outputs}
		if tr.Instance != nil {
			row.Version = tr.Instance.Version
		}
		rows = append(rows, row)
	}
	return rows
}

// rebuilderOf decides with one set for all versions.
func rebuilderOf(s *Set, newest Pin) Rebuilder {
	return Rebuilder{Newest: newest, Decide: func(...Pin) (Decider, error) { return s, nil }}
}

// rebuild rebuilds the cell from the stored history: the same cell must come out, and the same
// work.
func (w *world) rebuild() {
	var trs []edda.Transition
	for _, s := range w.shown {
		var tr edda.Transition
		if err := json.Unmarshal(s.raw, &tr); err != nil {
			w.t.Fatal(err)
		}
		trs = append(trs, tr)
	}
	built, err := rebuilderOf(w.set, Pin{Version: 1}).Rebuild(w.cell.Key, past(trs))
	if err != nil {
		w.t.Fatal(err)
	}
	cell := Adopt(built.Cell, w.cell, false)
	if got, want := encoded(w.t, cell), encoded(w.t, w.cell); !bytes.Equal(got, want) {
		w.t.Fatalf("built again it is\n%s\nand was\n%s", got, want)
	}
	if got, want := encoded(w.t, built.Work), encoded(w.t, w.sent); !bytes.Equal(got, want) {
		w.t.Fatalf("built again it sends\n%s\nand sent\n%s", got, want)
	}
	w.rebuildRepinned(past(trs))
}

// rebuildRepinned rebuilds the cell with one version throughout, as --newest does. If the cell ran
// on that version, the result must be the same.
func (w *world) rebuildRepinned(rows []Past) {
	b := rebuilderOf(w.set, Pin{Version: 1})
	b.Repin = Pin{Version: 1}
	built, err := b.Rebuild(w.cell.Key, rows)
	if err != nil {
		w.t.Fatal(err)
	}
	cell := Adopt(built.Cell, w.cell, false)
	if got, want := encoded(w.t, cell), encoded(w.t, w.cell); !bytes.Equal(got, want) {
		w.t.Fatalf("with its own version throughout it is\n%s\nand was\n%s", got, want)
	}
	if got, want := idsOf(built.Work), idsOf(w.sent); !slices.Equal(got, want) {
		w.t.Fatalf("with its own version throughout it sends\n%s\nand sent\n%s", got, want)
	}
}

// one is the only target of an event.
func one(t *testing.T, s *Set, ev edda.Event) Target {
	t.Helper()
	targets := s.Route(ev)
	if len(targets) != 1 || targets[0].Dead != nil {
		t.Fatalf("%s goes to %v", ev.Type, targets)
	}
	return targets[0]
}

const timedSaga = `saga: shop
version: 1
key: event.id
state: {log: ""}
on:
  Go: {start: true, do: [{timer: soon, after: 1h}]}
  Step: {set: {log: "=state.log + ' step'"}}
  timer.soon: {set: {log: "=state.log + ' timer'"}, do: [{event: Fired}]}
`

// timed is the history of two events, three hours apart, with the timers between.
func timed(t *testing.T, s *Set) (edda.Cell, []edda.Transition) {
	t.Helper()
	payload := json.RawMessage(`{"id":"K"}`)
	first := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", Time: testStart, Payload: payload}
	second := edda.Event{Kind: edda.KindEvent, ID: "e2", Tenant: "t", Type: "Step", Time: testStart.Add(3 * time.Hour), Payload: payload}
	cell, all := s.Apply(edda.Cell{}, one(t, s, first), first)
	cell, fired := s.Wake(cell, testStart.Add(time.Hour), second.Time.Add(-1))
	all = append(all, fired...)
	cell, last := s.Apply(cell, one(t, s, second), second)
	return cell, append(all, last...)
}

func TestRepinnedTimersFireBetweenEvents(t *testing.T) {
	cell, trs := timed(t, setOf(t, timedSaga))
	if got := string(cell.Instance.State); got != `{"log":" timer step"}` {
		t.Fatal(got)
	}
	later := setOf(t, strings.NewReplacer("version: 1", "version: 2", "after: 1h", "after: 2h").Replace(timedSaga))
	never := setOf(t, strings.NewReplacer("version: 1", "version: 2", "after: 1h", "after: 4h").Replace(timedSaga))
	for want, set := range map[string]*Set{`{"log":" timer step"}`: later, `{"log":" step"}`: never} {
		b := rebuilderOf(set, Pin{Version: 2})
		b.Repin = Pin{Version: 2}
		built, err := b.Rebuild(cell.Key, past(trs))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(built.Cell.Instance.State); got != want || built.Cell.Instance.Version != 2 || built.Pin != b.Repin {
			t.Errorf("%s, version %d, not %s", got, built.Cell.Instance.Version, want)
		}
		if strings.Contains(want, "timer") && (len(built.Work) != 1 || !built.Work[0].Time.Equal(testStart.Add(2*time.Hour))) {
			t.Errorf("work %+v", built.Work)
		}
	}
}

func TestContinueFiresTimersBetweenEvents(t *testing.T) {
	set := setOf(t, timedSaga)
	cell, _ := timed(t, set)
	payload := json.RawMessage(`{"id":"K"}`)
	events := []edda.Event{
		{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", Time: testStart, Payload: payload},
		{Kind: edda.KindEvent, ID: "e2", Tenant: "t", Type: "Step", Time: testStart.Add(3 * time.Hour), Payload: payload},
	}
	got, trs := Continue(edda.Cell{Key: cell.Key}, set, []int{1}, events)
	if string(got.Instance.State) != string(cell.Instance.State) || got.Instance.Revision != cell.Instance.Revision {
		t.Errorf("%+v\n%+v", got.Instance, cell.Instance)
	}
	var fates []string
	for _, row := range past(trs) {
		fates = append(fates, row.Event.ID)
	}
	if len(fates) != 3 || fates[0] != "e1" || fates[2] != "e2" {
		t.Errorf("transitions of %v", fates)
	}
}

// A wake that panicked left a row without a timer's name.
func TestFailedWakeCountsARevisionAndFiresNothing(t *testing.T) {
	set := setOf(t, timedSaga)
	cell, trs := timed(t, set)
	rows := append(past(trs), Past{Event: edda.Event{Kind: edda.KindTimer, ID: "due:K", Time: testStart.Add(5 * time.Hour)}, Fate: edda.FateDead, Version: 1})
	built, err := rebuilderOf(set, Pin{Version: 1}).Rebuild(cell.Key, rows)
	if err != nil || built.Cell.Instance.Revision != cell.Instance.Revision+1 || string(built.Cell.Instance.State) != string(cell.Instance.State) {
		t.Errorf("%+v, %v", built.Cell.Instance, err)
	}
}

// A published verb of that name is no mark of a replay.
func TestOnlyAReplayMarksHistory(t *testing.T) {
	set := setOf(t, timedSaga)
	cell, trs := timed(t, set)
	ev, err := Mark(cell.Key, "forged", testStart.Add(5*time.Hour), "mallory", Pin{Version: 9})
	if err != nil {
		t.Fatal(err)
	}
	after, forged := set.Apply(cell, one(t, set, ev), ev)
	built, err := rebuilderOf(set, Pin{Version: 1}).Rebuild(cell.Key, past(append(trs, forged...)))
	if err != nil || built.Pin != (Pin{}) || built.Cell.Instance.Revision != after.Instance.Revision {
		t.Errorf("%+v, %v", built, err)
	}
}

// A released event that is parked again expires by itself. The expiry is an input, though the
// event is marked as released.
func TestAReleasedEventThatIsParkedExpiresAgain(t *testing.T) {
	set := setOf(t, strings.Replace(timedSaga, "Go: {start: true, ", `Go: {start: true, set: {log: "=state.log + event.by"}, `, 1))
	at := func(id, name string, n int) edda.Event {
		return edda.Event{Kind: edda.KindEvent, ID: id, Tenant: "t", Type: name, Time: testStart.Add(time.Duration(n) * time.Minute), Payload: json.RawMessage(`{"id":"K","by":null}`)}
	}
	var cell edda.Cell
	var all []edda.Transition
	give := func(ev edda.Event) {
		next, trs := set.Apply(cell, one(t, set, ev), ev)
		cell, all = next, append(all, trs...)
	}
	give(at("e1", "Go", 0)) // poison
	give(at("e2", "Step", 1))
	give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbDrop, ID: "m1", Tenant: "t", Key: cell.Key, Time: testStart.Add(2 * time.Minute)})
	if len(cell.Parked) != 1 || !cell.Parked[0].Event.Redriven {
		t.Fatalf("%+v", cell)
	}
	next, trs := set.Wake(cell, cell.Parked[0].Expires, cell.Parked[0].Expires)
	cell, all = next, append(all, trs...)
	built, err := rebuilderOf(set, Pin{Version: 1}).Rebuild(cell.Key, past(all))
	if err != nil || len(built.Cell.Parked) != 0 || len(built.Cell.Held) != 0 || len(built.Dead) != 2 {
		t.Errorf("%+v, %v", built, err)
	}
}
