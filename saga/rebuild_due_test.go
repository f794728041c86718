package saga

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
)

// repinned rebuilds rows with one version throughout.
func repinned(t *testing.T, was, s *Set, version int, rows []Past) Rebuilt {
	t.Helper()
	b := Rebuilder{Newest: Pin{Version: version}, Repin: Pin{Version: version}}
	b.Decide = func(pins ...Pin) (Decider, error) {
		if pins[0] == b.Repin {
			return s, nil
		}
		return was, nil
	}
	built, err := b.Rebuild(edda.Key{Tenant: "t", Saga: "shop", Correlation: "K"}, rows)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// lateSaga has a timer, a deadline, a step with a due and a repeating timer.
const lateSaga = `saga: shop
version: 1
key: event.id
deadline: 1h30m
state: {log: ""}
on:
  Go: {start: true, do: [{timer: soon, after: 1h}, {timer: tick, every: 25m}, {effect: slow, with: {}, due: 70m}]}
  Step: {set: {log: "=state.log + ' step'"}}
  timer.soon: {set: {log: "=state.log + ' soon'"}, do: [{effect: ship, with: {}}]}
  timer.tick: {set: {log: "=state.log + ' tick'"}}
  slow.timeout: {set: {log: "=state.log + ' slow'"}}
  saga.deadline: {set: {log: "=state.log + ' deadline'"}, do: [{event: Over}]}
`

// Under load and after a downtime, due timers fire after events that were stored after their time.
// Rebuilt with --newest they must not overtake those events. The manifest has not changed, so the
// result may not either.
func TestLateTimerKeepsItsPlaceInHistory(t *testing.T) {
	set := setOf(t, lateSaga)
	payload := json.RawMessage(`{"id":"K"}`)
	event := func(id, kind string, after time.Duration) edda.Event {
		return edda.Event{Kind: edda.KindEvent, ID: id, Tenant: "t", Type: kind, Time: testStart.Add(after), Payload: payload}
	}
	var cell edda.Cell
	var all []edda.Transition
	for _, ev := range []edda.Event{event("e1", "Go", 0), event("e2", "Step", 61*time.Minute), event("e3", "Step", 100*time.Minute)} {
		next, trs := set.Apply(cell, one(t, set, ev), ev)
		cell, all = next, append(all, trs...)
	}
	cell, fired := set.Wake(cell, time.Time{}, testStart.Add(101*time.Minute))
	all = append(all, fired...)
	if got := string(cell.Instance.State); got != `{"log":" step step soon slow deadline tick"}` {
		t.Fatal(got)
	}
	var sent []edda.Work
	for i := range all {
		sent = append(sent, all[i].Work...)
	}
	for _, version := range []string{"version: 1", "version: 2"} {
		s := setOf(t, strings.Replace(lateSaga, "version: 1", version, 1))
		built := repinned(t, set, s, int(version[len(version)-1]-'0'), past(all))
		if got, want := string(built.Cell.Instance.State), string(cell.Instance.State); got != want {
			t.Errorf("%s: %s, it was %s", version, got, want)
		}
		if got, want := idsOf(built.Work), idsOf(sent); !slices.Equal(got, want) {
			t.Errorf("built again it sends %s, it sent %s", got, want)
		}
	}
}

// A restored store takes the same inputs again. Their order may differ where two streams and the
// timers race. The command of a timer must be the same, or its effect is called under a second
// idempotency key.
func TestLateTimerDerivesTheSameCommandID(t *testing.T) {
	set := setOf(t, lateSaga)
	payload := json.RawMessage(`{"id":"K"}`)
	start := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", Time: testStart, Payload: payload}
	step := edda.Event{Kind: edda.KindEvent, ID: "e2", Tenant: "t", Type: "Step", Time: testStart.Add(61 * time.Minute), Payload: payload}
	began, _ := set.Apply(edda.Cell{}, one(t, set, start), start)
	ship := func(cell edda.Cell, horizon time.Duration) string {
		_, trs := set.Wake(cell, time.Time{}, testStart.Add(horizon))
		for i := range trs {
			for _, w := range trs[i].Work {
				return w.ID
			}
		}
		t.Fatal("nothing was sent")
		return ""
	}
	stepped, _ := set.Apply(began, one(t, set, step), step)
	if inTime, late := ship(began, 60*time.Minute), ship(stepped, 62*time.Minute); inTime != late {
		t.Errorf("in time it is %s, and late %s", inTime, late)
	}
}

// An event that waited longer than its park: is applied all the same, if its instance started before
// a wake.
func TestEventUnparkedAfterItsExpiryIsUnparkedAgain(t *testing.T) {
	set := setOf(t, strings.Replace(lateSaga, "Step: {", "Step: {park: 1m, ", 1))
	payload := json.RawMessage(`{"id":"K"}`)
	early := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Step", Time: testStart, Payload: payload}
	start := edda.Event{Kind: edda.KindEvent, ID: "e2", Tenant: "t", Type: "Go", Time: testStart.Add(2 * time.Minute), Payload: payload}
	cell, all := set.Apply(edda.Cell{}, one(t, set, early), early)
	cell, trs := set.Apply(cell, one(t, set, start), start)
	if got := string(cell.Instance.State); got != `{"log":" step"}` {
		t.Fatal(got)
	}
	built := repinned(t, set, set, 1, past(append(all, trs...)))
	if got := string(built.Cell.Instance.State); got != `{"log":" step"}` || len(built.Dead) > 0 {
		t.Errorf("%s, dead %v", got, built.Dead)
	}
}

func idsOf(work []edda.Work) (ids []string) {
	for _, w := range work {
		ids = append(ids, w.ID)
	}
	return ids
}
