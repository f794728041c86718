// Package sourcetest is the suite that every source of the engine passes.
package sourcetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"edda"
	"edda/engine"
)

// Fixture is a source with streams to read.
type Fixture struct {
	Source engine.Source
	// Store stores an event of an aggregate, in a stream of its own or in one with others,
	// and says where it lies.
	Store func(ev edda.Event) edda.Checkpoint
	// Past says that the source tells what was stored before it began to read.
	Past bool
	// Broken stores what cannot be an input; nil: there is no such thing.
	Broken func()
}

// Open gives a test a subject of its own, as long as the test runs, that has the events
// already when it begins to read. The test may be in a synctest bubble.
type Open func(t *testing.T, before []edda.Event, test func(t *testing.T, s Fixture))

// patience bounds what should come or end soon.
const patience = 10 * time.Second

// Run tests what engine.Source promises.
func Run(t *testing.T, open Open) {
	for _, tt := range []struct {
		name   string
		before int
		test   func(*testing.T, Fixture)
	}{
		{"events come once, in their order, and never more than asked for", 40, ordered},
		{"what was stored before comes as the past", 10, past},
		{"what comes later is waited for", 0, later},
		{"where nothing waits nothing is given, at once", 0, nothing},
		{"events are who fetched them's to keep and to change", 0, memory},
		{"the ends cover all that was stored before they were asked for", 5, ends},
		{"what cannot be an input comes as malformed", 0, broken},
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

// event is the one of a number.
func event(n int) edda.Event {
	return edda.Event{
		Kind: edda.KindEvent, ID: id(n), Tenant: "acme", Type: "Placed", AggregateType: "Order", AggregateID: fmt.Sprintf("order-%d", n%3),
		Payload: json.RawMessage(payload(n)),
	}
}

func id(n int) string      { return fmt.Sprintf("event-%04d", n) }
func payload(n int) string { return fmt.Sprintf(`{"n":%d,"filled":"%064d"}`, n, n) }

// await takes up to most events, once there are some, within patience.
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

// fetch takes until there are n events, at most so many at once.
func (s Fixture) fetch(t *testing.T, n, most int) (out []edda.Event) {
	t.Helper()
	for len(out) < n {
		got := s.await(most)
		if len(got.Events) > most {
			t.Errorf("%d events came where %d were asked for", len(got.Events), most)
		}
		if len(got.Events) == 0 {
			t.Fatalf("only %d of %d events came", len(out), n)
		}
		out = append(out, got.Events...)
	}
	return out
}

// wantEvents wants events from a number on.
func wantEvents(t *testing.T, got []edda.Event, from int) {
	t.Helper()
	seq := map[string]uint64{}
	for i, ev := range got {
		if ev.ID != id(from+i) || string(ev.Payload) != payload(from+i) || ev.Tenant != "acme" || ev.Malformed != "" {
			t.Fatalf("number %d is %s of %q with %s", from+i, ev.ID, ev.Tenant, ev.Payload)
		}
		if ev.Stream == "" || ev.Seq <= seq[ev.Stream] {
			t.Errorf("%s lies at %d of %q, behind %d", ev.ID, ev.Seq, ev.Stream, seq[ev.Stream])
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
		t.Errorf("%d events came again", len(more.Events))
	}
}

func past(t *testing.T, s Fixture) {
	if !s.Past {
		return // it knows no past
	}
	for n := range 10 {
		got := s.await(1)
		if len(got.Events) != 1 || got.Events[0].ID != id(n) || !got.Past {
			t.Fatalf("number %d of the past is %+v", n, got)
		}
	}
	// The source finds out where its past ends when it has read that far: on a busy machine some
	// of what comes meanwhile counts as past.
	for n, end := 10, time.Now().Add(patience); ; n++ {
		s.Store(event(n))
		got := s.await(1)
		if len(got.Events) != 1 || got.Events[0].ID != id(n) || time.Now().After(end) {
			t.Fatalf("what was stored later is %+v", got)
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
		t.Fatalf("before anything was stored %+v came", got)
	case <-time.After(10 * time.Millisecond): // it waits
	}
	s.Store(event(0))
	got := <-came
	wantEvents(t, append(got.Events, s.fetch(t, 1-len(got.Events), 10)...), 0)
}

func nothing(t *testing.T, s Fixture) {
	if got := s.Source.Take(10); len(got.Events) > 0 {
		t.Errorf("nothing gives %+v", got)
	}
}

// memory overwrites what was fetched, but for every other event, which is looked at in the end.
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
			t.Errorf("number %d became %s with %s", n, ev.ID, ev.Payload)
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
				t.Errorf("the end is %+v", end)
			}
		}
		for stream, seq := range at {
			if need[stream] < seq {
				t.Errorf("%s must be applied up to %d, and %d was stored before", stream, need[stream], seq)
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
			t.Errorf("all of %s came up to %d, and %d is needed", end.Stream, reached[end.Stream], end.Need)
		}
	}
}

func broken(t *testing.T, s Fixture) {
	if s.Broken == nil {
		return // its events are values already
	}
	s.Store(event(0))
	s.Broken()
	s.Store(event(1))
	got := s.fetch(t, 3, 10)
	wantEvents(t, got[:1], 0)
	wantEvents(t, got[2:], 1)
	if got[1].Malformed == "" || got[1].Stream == "" || got[1].Seq == 0 {
		t.Errorf("what is broken is %+v", got[1])
	}
}
