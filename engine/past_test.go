package engine

import (
	"testing"
	"time"

	"edda"
	"edda/saga"
)

// withPastTimer runs the test a minute after a timer came due and did not fire, as in a restored
// store. The events of its streams are of the past.
func withPastTimer(t *testing.T, test func(w *world, due time.Time)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.arm("pay", "k", time.Minute)
		settle()
		due := w.due(time.Now().Add(time.Hour))[0].Time
		time.Sleep(2 * time.Minute)
		w.streams.change(func() { w.streams.past = true })
		test(w, due)
	})
}

// store stores an event with a time that may be in the past.
func (s *streams) store(stream string, at time.Time, ev edda.Event) {
	s.change(func() {
		last := s.last[stream]
		last.Seq, last.Time = last.Seq+1, at.UTC()
		s.last[stream] = last
		ev.Stream, ev.Seq, ev.Time = stream, last.Seq, last.Time
		s.waiting = append(s.waiting, ev)
	})
}

func TestLateTimerFiresBeforeAPastEvent(t *testing.T) {
	withPastTimer(t, func(w *world, due time.Time) {
		w.streams.store("B", due.Add(time.Nanosecond), event("after", "add", "k"))
		settle()
		w.wantLog(key("k"), "pay", "timer-pay", "after")
		if rows := w.due(time.Now()); len(rows) != 0 {
			t.Errorf("rows left: %v", rows)
		}
		w.wake(row("k", due)) // the scheduler had read the row before
		w.wantLog(key("k"), "pay", "timer-pay", "after")
	})
}

func TestPastEventComesBeforeATimerOfTheSameMoment(t *testing.T) {
	withPastTimer(t, func(w *world, due time.Time) {
		w.streams.store("B", due, event("then", "add", "k"))
		settle()
		w.wantLog(key("k"), "pay", "then")
		w.wake(row("k", due))
		w.wantLog(key("k"), "pay", "then", "timer-pay")
	})
}

// TestPastResultComesAfterTheTimerThatSentItsCommand, also if the server's clock is behind ours and
// the result was stored before the timer was due.
func TestPastResultComesAfterTheTimerThatSentItsCommand(t *testing.T) {
	for name, test := range map[string]struct {
		behind time.Duration // of the server's clock
		fires  bool
	}{
		"one moment":            {0, true},
		"a clock behind":        {MaxSkew - time.Second, true},
		"a clock of long ago":   {MaxSkew + time.Second, false},
		"an id of no one known": {-1, false},
	} {
		t.Run(name, func(t *testing.T) {
			withPastTimer(t, func(w *world, due time.Time) {
				id := "no id of ours, but as long as one is"
				if test.behind >= 0 {
					id = saga.CommandID(key("k"), 1, "timer-pay", due, "reserve")
				}
				result := edda.Event{Kind: edda.KindResult, ID: "result", Tenant: key("k").Tenant, Key: key("k"), CommandID: id}
				w.streams.store("B", due.Add(-max(test.behind, 0)), result)
				settle()
				if want := []string{"pay", "timer-pay", "result"}; test.fires {
					w.wantLog(key("k"), want...)
					return
				}
				w.wantLog(key("k"), "pay", "result")
			})
		})
	}
}

// TestTimersFiredWithAPastEventSurviveAFailedCommit expects them to be evaluated again with the
// event.
func TestTimersFiredWithAPastEventSurviveAFailedCommit(t *testing.T) {
	withPastTimer(t, func(w *world, due time.Time) {
		w.gate.set(true, nil)
		w.streams.store("B", due.Add(time.Second), event("after", "add", "k"))
		settle()
		w.gate.failNext(errDiskFull)
		time.Sleep(time.Minute)
		settle()
		w.wantLog(key("k"), "pay", "timer-pay", "after")
	})
}

func TestDueRowsOfACell(t *testing.T) {
	by := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	armed := func(at time.Time) *edda.Instance { return &edda.Instance{Armed: at} }
	parked := func(at time.Time) []edda.Entry { return []edda.Entry{{Expires: at}} }
	for name, test := range map[string]struct {
		cell edda.Cell
		want time.Time // zero: none
	}{
		"nothing":      {cell: edda.Cell{}},
		"no timer":     {cell: edda.Cell{Instance: armed(time.Time{})}},
		"a timer":      {cell: edda.Cell{Instance: armed(by)}, want: by},
		"not yet":      {cell: edda.Cell{Instance: armed(by.Add(1))}},
		"a parked one": {cell: edda.Cell{Parked: parked(by)}, want: by},
		"one that may": {cell: edda.Cell{Parked: parked(by.Add(1))}},
		"a held key":   {cell: edda.Cell{Instance: armed(by), Parked: parked(by), Held: parked(by)}},
	} {
		if row, due := dueBy(test.cell, by); due != !test.want.IsZero() || !row.Equal(test.want) {
			t.Errorf("%s: due at %v (%t)", name, row, due)
		}
	}
}
