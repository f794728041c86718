package saga

import (
	"fmt"
	"strings"
	"testing"

	"edda"
)

const queues = `saga: queues
key: event.id
on:
  Go: {start: true}
  Add: {do: [{event: Added, with: {n: =event.n}}]}
  Break: {set: {n: "=1 + nil"}}
`

func (l *line) add(n int) []edda.Transition {
	return l.event("Add", fmt.Sprintf(`{"id":"K","n":%d}`, n))
}

func wantFull(t *testing.T, trs []edda.Transition, why string) {
	t.Helper()
	if len(trs) != 1 || trs[0].Fate != edda.FateDead || trs[0].Dead == nil || trs[0].Dead.Reason != edda.DeadFull {
		t.Fatalf("transitions %+v, want one dead letter for want of room", trs)
	}
	if tr := trs[0]; tr.Park != nil || tr.Hold != nil || tr.Instance != nil || !strings.Contains(tr.Dead.Error, why) || tr.Dead.Event.ID != tr.Event.ID {
		t.Errorf("transition %+v with %+v, want no more than a dead letter that says %q", tr, tr.Dead, why)
	}
}

func TestEventsBeyondTheParkLimitAreDeadLetters(t *testing.T) {
	l := limited(t, queues, Options{MaxQueue: 2})
	l.want(l.add(1), "parked Add")
	l.want(l.add(2), "parked Add")
	wantFull(t, l.add(3), "2 events wait already")
	l.want(l.event("Go", `{"id":"K"}`), "unparked Add, event Added, unparked Add, event Added")
	l.want(l.add(4), "event Added")
}

func TestAnEventRefusedForWantOfRoomMayComeAgain(t *testing.T) {
	l := limited(t, queues, Options{MaxQueue: 1})
	l.add(1)
	wantFull(t, l.add(2), "1 events wait")
	l.event("Go", `{"id":"K"}`)
	l.n = 1 // the next one has the id of the one that was turned away
	l.want(l.add(2), "event Added")
}

func TestBytesBeyondTheParkLimitAreDeadLetters(t *testing.T) {
	l := limited(t, queues, Options{MaxQueueBytes: 100})
	large := `{"id":"K","text":"` + strings.Repeat("x", 200) + `"}`
	l.want(l.event("Add", large), "parked Add") // one always fits
	wantFull(t, l.add(2), "more than 100")
}

func TestACrowdedTenantParksNothingAndItsInstancesContinue(t *testing.T) {
	l := limited(t, queues, Options{})
	target := l.set.Route(edda.Event{Kind: edda.KindEvent, Type: "Add", Tenant: "t", Payload: []byte(`{"id":"K"}`)})[0]
	target.Crowded = true
	_, trs := l.set.Apply(l.cell, target, edda.Event{Kind: edda.KindEvent, Type: "Add", ID: "a", Tenant: "t", Time: l.now, Payload: []byte(`{"id":"K"}`)})
	wantFull(t, trs, "the tenant may park no more events")
	l.event("Go", `{"id":"K"}`)
	_, trs = l.set.Apply(l.cell, target, edda.Event{Kind: edda.KindEvent, Type: "Add", ID: "b", Tenant: "t", Time: l.now, Payload: []byte(`{"id":"K"}`)})
	l.want(trs, "event Added")
}

func TestEventsBeyondTheHoldLimitAreDeadLetters(t *testing.T) {
	l := limited(t, queues, Options{MaxQueue: 3})
	l.event("Go", `{"id":"K"}`)
	l.want(l.event("Break", `{"id":"K"}`), "dead Break poison")
	l.want(l.add(1), "held Add")
	l.want(l.add(2), "held Add")
	wantFull(t, l.add(3), "3 events wait already behind a poison event")
	l.want(l.operator(edda.VerbDrop), "event Added, event Added")
	l.want(l.add(4), "event Added")
}

func TestParkedEventsFitBehindAPoisonOneAmongThem(t *testing.T) {
	l := limited(t, queues, Options{MaxQueue: 3})
	l.event("Break", `{"id":"K"}`)
	l.add(1)
	l.add(2)
	l.want(l.event("Go", `{"id":"K"}`), "unparked Break, dead Break poison, unparked Add, held Add, unparked Add, held Add")
	if len(l.cell.Held) != 3 || len(l.cell.Parked) != 0 {
		t.Errorf("%d held, %d parked", len(l.cell.Held), len(l.cell.Parked))
	}
}

// A loop with an undo pushes a frame each round.
const loop = `saga: loop
key: event.id
on:
  Go: {start: true}
  Round: {do: [{effect: a, with: {text: "=event.text"}, undo: un_a}]}
  a.ok: {}
  Stop: {do: [{fail: enough}]}
`

func TestAnInstanceBeyondItsLimitIsPoisonAndCanBeUndone(t *testing.T) {
	l := limited(t, loop, Options{MaxInstance: 8 << 10})
	l.event("Go", `{"id":"K"}`)
	text := strings.Repeat("x", 500)
	rounds := 0
	for ; rounds < 100; rounds++ {
		trs := l.event("Round", `{"id":"K","text":"`+text+`"}`)
		if said(trs) == "dead Round poison" {
			if d := trs[0].Dead; !strings.Contains(d.Error, "more than the limit of 8192") {
				t.Errorf("error %q", d.Error)
			}
			break
		}
		l.result("a", edda.Succeeded, `{}`)
		if len(l.cell.Held) > 0 {
			break
		}
	}
	if frames := len(l.cell.Instance.Frames); frames < 2 || frames > 20 || l.cell.Instance.Size() > 8<<10 {
		t.Fatalf("%d frames, %d bytes after %d rounds", frames, l.cell.Instance.Size(), rounds)
	}
	frames := len(l.cell.Instance.Frames)
	l.operator(edda.VerbCancel)
	for range 2 * frames {
		if l.cell.Instance.Status.Finished() {
			break
		}
		if len(l.cell.Held) > 0 {
			l.operator(edda.VerbDrop)
		}
		if l.cell.Instance.Steps[0].Status == edda.StepPending { // its result was given up
			l.result("a", edda.Succeeded, `{}`)
		}
		if undos := l.cell.Instance.Undos; len(undos) > 0 {
			l.give(edda.Event{Kind: edda.KindResult, CommandID: undos[0].Command, Outcome: edda.Succeeded, Payload: []byte(`{}`)})
		}
	}
	if in := l.cell.Instance; in.Status != edda.StatusUndone {
		t.Errorf("status %s with %d frames, want everything undone", in.Status, len(in.Frames))
	}
}
