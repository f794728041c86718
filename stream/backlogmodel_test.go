package stream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"edda"
	"edda/internal/backoff"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// The kinds of messages of a stream.
const (
	relevant = iota
	foreign  // delivered, but no input
	filtered // filtered out
	deleted  // in the stream when the end was read, and deleted before its delivery
	kinds
)

// message is one message of a stream.
type message struct {
	kind  int
	event edda.Event
	delay time.Duration // from the message before to this delivery
}

// fakeStream is a stream as its reader sees it.
type fakeStream struct {
	messages []message
	atEnd    int           // messages when the end was read
	at       time.Time     // when the end was read
	opens    time.Duration // how long the reader takes to read the end
}

// end returns the last message that matched the filters when the end was read.
func (v *fakeStream) end() (seq uint64) {
	for _, m := range v.messages[:v.atEnd] {
		if m.kind != filtered {
			seq = m.event.Seq
		}
	}
	return seq
}

// wanted returns the expected events of the backlog, and the later ones.
func (v *fakeStream) wanted(upto time.Time) (past, later []edda.Event) {
	for i, m := range v.messages {
		switch {
		case m.kind != relevant:
		case i < v.atEnd && !m.event.Time.After(upto):
			past = append(past, m.event)
		default:
			later = append(later, m.event)
		}
	}
	return past, later
}

var (
	someKind  = rapid.IntRange(0, kinds-1)
	someDelay = rapid.Custom(func(t *rapid.T) time.Duration {
		if rapid.IntRange(0, 19).Draw(t, "slow") == 0 {
			return time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second
		}
		return time.Duration(rapid.IntRange(0, 3).Draw(t, "ms")) * time.Millisecond
	})
)

// drawStreams stores random messages in three streams on one clock, and reads the end of each at
// some time.
func drawStreams(t *rapid.T) []*fakeStream {
	streams := []*fakeStream{{}, {}, {}}
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ends := rapid.SliceOfN(rapid.IntRange(0, 60), len(streams), len(streams)).Draw(t, "ends")
	for n := range rapid.IntRange(0, 60).Draw(t, "messages") + 1 {
		for i, v := range streams {
			if v.at.IsZero() && n >= ends[i] {
				v.readEnd(clock)
			}
		}
		clock = clock.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "gap")))
		i := rapid.IntRange(0, len(streams)-1).Draw(t, "stream")
		streams[i].store(i, someKind.Draw(t, "kind"), &clock, someDelay.Draw(t, "delay"))
	}
	for _, v := range streams {
		if v.at.IsZero() {
			v.readEnd(clock)
		}
		v.opens = someDelay.Draw(t, "opens")
	}
	return streams
}

func (v *fakeStream) readEnd(at time.Time) { v.atEnd, v.at = len(v.messages), at }

// store appends a message. Messages after the read of the end are delivered, and have a later store
// time.
func (v *fakeStream) store(stream, kind int, clock *time.Time, delay time.Duration) {
	if !v.at.IsZero() {
		kind %= deleted
		if clock.Equal(v.at) {
			*clock = clock.Add(1)
		}
	}
	seq := uint64(len(v.messages) + 1)
	v.messages = append(v.messages, message{kind: kind, delay: delay, event: edda.Event{
		ID: fmt.Sprintf("%d-%d", stream, seq), Stream: fmt.Sprint(stream), Seq: seq, Time: *clock,
	}})
}

// flow feeds the reader.
func (v *fakeStream) feed(ctx context.Context, r *reader) error {
	_ = backoff.Wait(ctx, v.opens)
	r.mu.Lock()
	r.atStart = backlog{opened: true, at: v.at, end: v.end()}
	r.mu.Unlock()
	signal(r.wake)
	for _, m := range v.messages {
		if m.kind == filtered || m.kind == deleted {
			continue
		}
		_ = backoff.Wait(ctx, m.delay)
		if err := v.deliver(ctx, r, m); err != nil {
			return err
		}
	}
	if r.position() < v.end() { // a call of Ends finds that nothing more comes
		_ = backoff.Wait(ctx, time.Second)
		r.noteEmpty(uint64(len(v.messages)))
	}
	return nil
}

func (v *fakeStream) deliver(ctx context.Context, r *reader, m message) error {
	if m.kind == foreign {
		r.advance(m.event.Seq, m.event.Time, false)
		return nil
	}
	return r.enqueue(ctx, m.event)
}

// sourceOf returns a source whose readers the test feeds.
func sourceOf(n int) *Source {
	s := &Source{wake: make(chan struct{}, 1), catchingUp: true, caughtUp: make(chan struct{})}
	for i := range n {
		s.readers = append(s.readers, &reader{
			name: fmt.Sprint(i), codec: wire.Codec{Grammar: wire.Grammar{NoTenancy: true}}, tenants: &s.tenants, buffer: newBuffer(),
			wake: s.wake, log: zap.NewNop(),
		})
	}
	return s
}

// TestTheBacklogIsSortedCompleteAndEnds: streams of any kind at any pace: empty and quiet ones,
// with deleted messages and messages that are no inputs.
func TestTheBacklogIsSortedCompleteAndEnds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		streams := drawStreams(rt)
		most := rapid.IntRange(1, 9).Draw(rt, "most")
		pause := someDelay.Draw(rt, "pause")
		var past, later []edda.Event
		var problem error
		synctest.Test(t, func(t *testing.T) {
			past, later, problem = drain(t.Context(), streams, most, pause)
		})
		if problem != nil {
			rt.Fatal(problem)
		}
		checkEvents(rt, streams, past, later)
	})
}

// drain fetches until nothing more comes.
func drain(ctx context.Context, streams []*fakeStream, most int, pause time.Duration) (past, later []edda.Event, err error) {
	s := sourceOf(len(streams))
	var feeding sync.WaitGroup
	defer feeding.Wait()
	for i, v := range streams {
		feeding.Go(func() { _ = v.feed(ctx, s.readers[i]) }) // each reader has a buffer of its own
	}
	for {
		got, err := s.Fetch(ctx, most, time.Hour)
		switch {
		case err != nil:
			return nil, nil, err
		case len(got.Events) == 0:
			return past, later, s.ended(streams)
		case len(got.Events) > most:
			return nil, nil, fmt.Errorf("%d events of at most %d", len(got.Events), most)
		case got.Past && len(later) > 0:
			return nil, nil, fmt.Errorf("%s is of the past, and comes after %s", got.Events[0].ID, later[0].ID)
		case got.Past:
			past = append(past, got.Events...)
		default:
			later = append(later, got.Events...)
		}
		_ = backoff.Wait(ctx, pause)
	}
}

// ended returns an error if the backlog has not ended although all of it is handled, or has ended
// before.
func (s *Source) ended(streams []*fakeStream) error {
	var store positions
	for i, v := range streams {
		last := v.lastInput()
		if last > 0 && testkit.Closed(s.CaughtUp()) {
			return fmt.Errorf("it has caught up before stream %d was handled", i)
		}
		store.commit(s.readers[i].name, last)
		s.readers[i].committed = store.committed
		s.checkCaughtUp()
	}
	if !testkit.Closed(s.CaughtUp()) || s.catchingUp {
		return fmt.Errorf("the past has no end: caught up is %t, of the past %t", testkit.Closed(s.CaughtUp()), s.catchingUp)
	}
	return nil
}

// lastInput returns the last input of the backlog.
func (v *fakeStream) lastInput() (seq uint64) {
	for _, m := range v.messages[:v.atEnd] {
		if m.kind == relevant {
			seq = m.event.Seq
		}
	}
	return seq
}

func checkEvents(t *rapid.T, streams []*fakeStream, past, later []edda.Event) {
	upto := streams[0].at
	for _, v := range streams {
		if v.at.Before(upto) {
			upto = v.at
		}
	}
	if !slices.IsSortedFunc(past, func(a, b edda.Event) int { return a.Time.Compare(b.Time) }) {
		t.Errorf("the past is not in order: %v", idsOf(past))
	}
	for i, v := range streams {
		wantPast, wantLater := v.wanted(upto)
		if got, want := idsOf(of(past, i)), idsOf(wantPast); !slices.Equal(got, want) {
			t.Errorf("of the past of stream %d came %v, want %v", i, got, want)
		}
		if got, want := idsOf(of(later, i)), idsOf(wantLater); !slices.Equal(got, want) {
			t.Errorf("of stream %d came later %v, want %v", i, got, want)
		}
	}
}

// of returns the events of one stream.
func of(events []edda.Event, stream int) (out []edda.Event) {
	for _, ev := range events {
		if ev.Stream == fmt.Sprint(stream) {
			out = append(out, ev)
		}
	}
	return out
}

func idsOf(events []edda.Event) (out []string) {
	for _, ev := range events {
		out = append(out, ev.ID)
	}
	return out
}
