package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"edda"
)

var errDiskFull = edda.Classify(edda.Temporary, "no space left on device")

func TestFullDiskLosesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e0", "add", "k"))
		settle()
		position := w.position("A").Seq
		w.gate.set(true, nil)
		for i := 1; i <= 4; i++ { // two of them are in flight
			w.streams.publish("A", event(fmt.Sprintf("e%d", i), "add", "k"))
			settle()
		}
		w.gate.set(false, errDiskFull)
		time.Sleep(time.Minute)
		settle()
		if err := w.engine.Healthy(); !errors.Is(err, edda.Temporary) {
			t.Errorf("health: %v", err)
		}
		fetched := w.streams.fetched
		for i := range 5 * maxBatch {
			w.streams.publish("A", event(fmt.Sprintf("later%d", i/128), "add", fmt.Sprintf("other%d", i%128)))
		}
		time.Sleep(time.Minute)
		if got := w.streams.fetched - fetched; got > maxBatch {
			t.Errorf("the intake took %d events while the disk was full", got)
		}
		if got := w.position("A").Seq; got != position {
			t.Errorf("the position went from %d to %d while the disk was full", position, got)
		}
		w.gate.set(false, nil)
		time.Sleep(commitBackoffMax)
		settle()
		if err := w.engine.Healthy(); err != nil {
			t.Errorf("health after: %v", err)
		}
		w.wantLog(key("k"), "e0", "e1", "e2", "e3", "e4")
		for i := range 128 {
			w.wantLog(key(fmt.Sprintf("other%d", i)), many(5*maxBatch/128, numbered("later"))...)
		}
		if got := w.logs.FilterMessageSnippet("the store").Len(); got != 2 {
			t.Errorf("%d lines for one failure and its end", got)
		}
	})
}

// TestSetsBehindAFailedOneAreNotCommitted: a batch was evaluated on top of one whose commit failed.
// It must not be committed even if the disk works again by then.
func TestSetsBehindAFailedOneAreNotCommitted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.set(true, nil)
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		before := w.gate.count()
		w.gate.failNext(errDiskFull)
		time.Sleep(time.Minute)
		settle()
		w.wantLog(key("k"), "e1", "e2")
		if got := w.gate.count() - before; got != 1 {
			t.Errorf("%d sets after the failure, want both events in one", got)
		}
		if got := w.metric("edda_transitions_total", "handled", "counter"); got != 2 {
			t.Errorf("handled: %v", got)
		}
	})
}

func TestFailedReadIsRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.setViewError(errDiskFull)
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.streams.publish("A", event("e2", "add", "k"))
		time.Sleep(time.Minute)
		if w.engine.Healthy() == nil {
			t.Error("healthy while nothing can be read")
		}
		w.gate.setViewError(nil)
		time.Sleep(commitBackoffMax)
		settle()
		w.wantLog(key("k"), "e1", "e2")
		if err := w.engine.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

func TestInputThatTheStoreRefusesBecomesADeadLetter(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.change(func() { w.streams.held = true })
		for i := range 5 {
			w.streams.publish("A", event(fmt.Sprintf("a%d", i), "add", "k"))
		}
		w.streams.publish("A", event("bad", "add", strings.Repeat("long", 20_000)))
		for i := range 5 {
			w.streams.publish("A", event(fmt.Sprintf("b%d", i), "add", "k"))
		}
		w.streams.change(func() { w.streams.held = false })
		settle()
		w.wantLog(key("k"), "a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2", "b3", "b4")
		letters, err := w.db.DeadLetters("", 10)
		if err != nil || len(letters) != 1 || letters[0].Event.ID != "bad" || letters[0].Reason != edda.DeadPoison {
			t.Fatalf("dead letters: %+v, %v", letters, err)
		}
		if err := w.engine.Healthy(); err != nil {
			t.Errorf("the disk is well: %v", err)
		}
		if got := w.position("A").Seq; got != 11 {
			t.Errorf("position %d", got)
		}
	})
}

func TestPanicIsADeadLetterThatHoldsItsKey(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		w.streams.publish("A", event("bad", "panic", "k"))
		w.streams.publish("A", event("e2", "add", "another"))
		settle()
		w.wantLog(key("another"), "e2")
		cell := w.cell(key("k"))
		if len(cell.Held) != 1 || cell.Held[0].Event.ID != "bad" || cell.Instance.Held != cell.Held[0].DeadLetter {
			t.Fatalf("the key is not held: %+v", cell)
		}
		letter, found, err := w.db.DeadLetter(cell.Instance.Held)
		if err != nil || !found || !strings.Contains(letter.Error, "apply fails") || letter.Reason != edda.DeadPoison {
			t.Errorf("dead letter: %+v, %v", letter, err)
		}
	})
}

func TestPanicInRoutingIsADeadLetter(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("bad", "lost", "k"))
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.wantLog(key("k"), "e1")
		if letters, err := w.db.DeadLetters("", 10); err != nil || len(letters) != 1 || letters[0].Event.ID != "bad" {
			t.Errorf("dead letters: %+v, %v", letters, err)
		}
	})
}

func TestPanicOfATimerRemovesItsRow(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "wakepanic", "k"))
		settle()
		due := w.cell(key("k")).Instance.Armed
		time.Sleep(time.Until(due))
		w.wake(row("k", due))
		rows, _, err := w.db.Due(time.Now().Add(time.Hour), 10)
		if err != nil || len(rows) != 0 {
			t.Errorf("rows: %v, %v", rows, err)
		}
		if letters, _ := w.db.DeadLetters("", 10); len(letters) != 1 {
			t.Errorf("dead letters: %+v", letters)
		}
		if armed := w.cell(key("k")).Instance.Armed; !armed.IsZero() {
			t.Errorf("still armed for %v", armed)
		}
	})
}

func TestMalformedEventsAreDeadLetters(t *testing.T) {
	inWorld(t, func(w *world) {
		bad := event("bad", "", "")
		bad.Malformed, bad.Error = edda.DeadUndecodable, "not JSON"
		w.streams.publish("A", bad)
		w.streams.publish("A", event("homeless", "nokey", "secret-key"))
		settle()
		letters, err := w.db.DeadLetters("", 10)
		if err != nil || len(letters) != 2 {
			t.Fatalf("dead letters: %+v, %v", letters, err)
		}
		if got := w.metric("edda_dead_letters_total", edda.DeadUndecodable); got != 1 {
			t.Errorf("undecodable: %v", got)
		}
		if got := w.position("A").Seq; got != 2 {
			t.Errorf("position %d", got)
		}
	})
}

func TestDeadLettersAndIncidentsAreLoggedOnceWithoutPayloads(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, typ := range []string{"panic", "nokey", "incident"} {
			ev := event("id-"+typ, typ, typ)
			ev.Trace, ev.Payload = "trace-"+typ, []byte(`"s3cret"`)
			w.streams.publish("A", ev)
		}
		settle()
		lines := w.logs.All()
		if len(lines) != 3 {
			t.Fatalf("%d lines: %v", len(lines), lines)
		}
		for _, line := range lines {
			fields := fmt.Sprint(line.ContextMap())
			for _, want := range []string{"tenant:acme", "event:id-", "trace:trace-", "saga:", "correlation:"} {
				if !strings.Contains(fields, want) {
					t.Errorf("%s: no %s in %s", line.Message, want, fields)
				}
			}
			if strings.Contains(fields, "s3cret") {
				t.Errorf("a payload in the log: %s", fields)
			}
		}
	})
}
