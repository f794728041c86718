// Package sourcetest is the test suite that every [engine.Source] passes.
package sourcetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"edda"
	"edda/engine"
)

// Fixture is a source under test, with its streams.
type Fixture struct {
	Source engine.Source
	// Store stores an event of an aggregate in any stream, and returns its position.
	Store func(ev edda.Event) edda.Checkpoint
	// Past says that the source marks events stored before it began to read.
	Past bool
	// Broken stores a message that cannot be an input; nil if the source has none.
	Broken func()
}

// Open runs the test with a source of its own, whose streams hold the given events before it
// begins to read. The test may run in a synctest bubble.
type Open func(t *testing.T, before []edda.Event, test func(t *testing.T, s Fixture))

// patience bounds a wait for what should happen soon.
const patience = 10 * time.Second

// Run tests what engine.Source promises.
func Run(t *testing.T, open Open) {
	for _, tt := range []struct {
		name   string
		before int
		test   func(*testing.T, Fixture)
	}{
		{"events come once, in order, and never more than max", 40, ordered},
		{"events stored before come as the past", 10, past},
		{"a later event is signalled", 0, later},
		{"take of an empty source returns at once", 0, nothing},
		{"the caller may keep and change events", 0, memory},
		{"the end offsets cover everything stored before the call", 5, ends},
		{"a message that cannot be an input comes as malformed", 0, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before []edda.Event
			for n := range tt.before {
				before = append(before, event(n))
			}
			open(t, before, tt.test)
		})
	}
}

// event makes the event of number n.
func event(n int) edda.Event {
	return edda.Event{
		Kind: edda.KindEvent, ID: id(n), Tenant: "acme", Type: "Placed", AggregateType: "Order", AggregateID: fmt.Sprintf("order-%d", n%3),
		Payload: json.RawMessage(payload(n)),
	}
}

func id(n int) string      { return fmt.Sprintf("event-%04d", n) }
func payload(n int) string { return fmt.Sprintf(`{"n":%d,"filled":"%064d"}`, n, n) }

// await waits for events, at most for patience, and takes up to most of them.
func (s Fixture) await(most int) engine.Fetched {
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		if got := s.Source.Take(most); len(got.Events) > 0 {
			return got
		}
		select {
		case <-s.Source.Ready():
		case <-end.C:
			return engine.Fetched{}
		}
	}
}

// fetch takes n events, up to most of them at once.
func (s Fixture) fetch(t *testing.T, n, most int) (out []edda.Event) {
	t.Helper()
	for len(out) < n {
		got := s.await(most)
		if len(got.Events) > most {
			t.Errorf("%d events, more than max %d", len(got.Events), most)
		}
		if len(got.Events) == 0 {
			t.Fatalf("only %d of %d events", len(out), n)
		}
		out = append(out, got.Events...)
	}
	return out
}

// wantEvents expects consecutive events from number from on.
func wantEvents(t *testing.T, got []edda.Event, from int) {
	t.Helper()
	seq := map[string]uint64{}
	for i, ev := range got {
		if ev.ID != id(from+i) || string(ev.Payload) != payload(from+i) || ev.Tenant != "acme" || ev.Malformed != "" {
			t.Fatalf("number %d is %s of %q with %s", from+i, ev.ID, ev.Tenant, ev.Payload)
		}
		if ev.Stream == "" || ev.Seq <= seq[ev.Stream] {
			t.Errorf("%s has sequence %d in %q, after %d", ev.ID, ev.Seq, ev.Stream, seq[ev.Stream])
		}
		seq[ev.Stream] = ev.Seq
	}
}

func ordered(t *testing.T, s Fixture) {
	got := s.fetch(t, 10, 1)
	got = append(got, s.fetch(t, 14, 7)...)
	got = append(got, s.fetch(t, 40-len(got), 1000)...)
	wantEvents(t, got, 0)
	for n := 40; n < 60; n++ {
		s.Store(event(n))
	}
	wantEvents(t, s.fetch(t, 20, 6), 40)
	if more := s.Source.Take(10); len(more.Events) > 0 {
		t.Errorf("%d events were redelivered", len(more.Events))
	}
}

func past(t *testing.T, s Fixture) {
	if !s.Past {
		return // it marks no past
	}
	for n := range 10 {
		got := s.await(1)
		if len(got.Events) != 1 || got.Events[0].ID != id(n) || !got.Past {
			t.Fatalf("number %d of the past is %+v", n, got)
		}
	}
	// A source finds the end of its past when it has read that far. On a busy machine, some events
	// stored meanwhile count as past.
	for n, end := 10, time.Now().Add(patience); ; n++ {
		s.Store(event(n))
		got := s.await(1)
		if len(got.Events) != 1 || got.Events[0].ID != id(n) || time.Now().After(end) {
			t.Fatalf("an event stored later is %+v", got)
		}
		if !got.Past {
			return
		}
	}
}

func later(t *testing.T, s Fixture) {
	came := make(chan engine.Fetched, 1)
	go func() { came <- s.await(10) }()
	select {
	case got := <-came:
		t.Fatalf("%+v came before an event was stored", got)
	case <-time.After(10 * time.Millisecond): // still waiting
	}
	s.Store(event(0))
	got := <-came
	wantEvents(t, append(got.Events, s.fetch(t, 1-len(got.Events), 10)...), 0)
}

func nothing(t *testing.T, s Fixture) {
	if got := s.Source.Take(10); len(got.Events) > 0 {
		t.Errorf("an empty source gave %+v", got)
	}
}

// memory overwrites every other fetched event, and checks the rest at the end.
func memory(t *testing.T, s Fixture) {
	const all, most = 48, 8
	var kept []edda.Event
	for from := 0; from < all; from += most {
		for n := from; n < from+most; n++ {
			s.Store(event(n))
		}
		got := s.fetch(t, most, most)
		wantEvents(t, got, from)
		for i := range got {
			if i%2 == 0 {
				kept = append(kept, got[i])
				continue
			}
			for j := range got[i].Payload {
				got[i].Payload[j] = '!'
			}
			got[i] = edda.Event{ID: "poisoned"}
		}
	}
	for i, ev := range kept {
		if n := 2 * i; ev.ID != id(n) || string(ev.Payload) != payload(n) {
			t.Errorf("event %d changed to %s with %s", n, ev.ID, ev.Payload)
		}
	}
}

func ends(t *testing.T, s Fixture) {
	wantEvents(t, s.fetch(t, 5, 10), 0)
	at := map[string]uint64{}
	for n := 5; n < 20; n++ {
		put := s.Store(event(n))
		at[put.Stream] = put.Seq
		list, err := s.Source.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		need := map[string]uint64{}
		for _, end := range list {
			if need[end.Stream] = end.Need; end.Need > end.Last.Seq || end.Last.Stream != end.Stream {
				t.Errorf("end offset %+v", end)
			}
		}
		for stream, seq := range at {
			if need[stream] < seq {
				t.Errorf("%s needs only %d, and %d was stored before the call", stream, need[stream], seq)
			}
		}
	}
	reached := map[string]uint64{}
	for _, ev := range s.fetch(t, 15, 4) {
		reached[ev.Stream] = ev.Seq
	}
	list, err := s.Source.Ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range list {
		if _, ok := at[end.Stream]; ok && end.Need > reached[end.Stream] {
			t.Errorf("all events of %s came up to %d, and it needs %d", end.Stream, reached[end.Stream], end.Need)
		}
	}
}

func broken(t *testing.T, s Fixture) {
	if s.Broken == nil {
		return // it has no messages
	}
	s.Store(event(0))
	s.Broken()
	s.Store(event(1))
	got := s.fetch(t, 3, 10)
	wantEvents(t, got[:1], 0)
	wantEvents(t, got[2:], 1)
	if got[1].Malformed == "" || got[1].Stream == "" || got[1].Seq == 0 {
		t.Errorf("the broken message is %+v", got[1])
	}
}
