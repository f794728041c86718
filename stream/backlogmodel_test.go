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

// What a message of a stream is to the source.
const (
	ours    = iota
	foreign // delivered, and not meant for the sagas
	unseen  // the filters leave it out
	gone    // it was there when the end was looked for, and is not delivered
	kinds
)

// drop is one message of a stream.
type drop struct {
	kind  int
	event edda.Event
	delay time.Duration // until the reader has it, after the one before
}

// river is a stream as its reader meets it.
type river struct {
	messages []drop
	looked   int           // how many there were when the end was looked for
	at       time.Time     // when that was
	opens    time.Duration // how long the reader takes until then
}

// end is the last message that the filters let through when the end was looked for.
func (v *river) end() (seq uint64) {
	for _, m := range v.messages[:v.looked] {
		if m.kind != unseen {
			seq = m.event.Seq
		}
	}
	return seq
}

// wanted are the events that are to come, and which of them are of the past.
func (v *river) wanted(upto time.Time) (past, later []edda.Event) {
	for i, m := range v.messages {
		switch {
		case m.kind != ours:
		case i < v.looked && !m.event.Time.After(upto):
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

// drawRivers stores messages at random in three streams, on one clock, and looks for
// the end of each at some moment.
func drawRivers(t *rapid.T) []*river {
	rivers := []*river{{}, {}, {}}
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ends := rapid.SliceOfN(rapid.IntRange(0, 60), len(rivers), len(rivers)).Draw(t, "ends")
	for n := range rapid.IntRange(0, 60).Draw(t, "messages") + 1 {
		for i, v := range rivers {
			if v.at.IsZero() && n >= ends[i] {
				v.look(clock)
			}
		}
		clock = clock.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "gap")))
		i := rapid.IntRange(0, len(rivers)-1).Draw(t, "stream")
		rivers[i].store(i, someKind.Draw(t, "kind"), &clock, someDelay.Draw(t, "delay"))
	}
	for _, v := range rivers {
		if v.at.IsZero() {
			v.look(clock)
		}
		v.opens = someDelay.Draw(t, "opens")
	}
	return rivers
}

func (v *river) look(at time.Time) { v.looked, v.at = len(v.messages), at }

// store stores one more. What comes after the look is delivered, and is later than it.
func (v *river) store(stream, kind int, clock *time.Time, delay time.Duration) {
	if !v.at.IsZero() {
		kind %= gone
		if clock.Equal(v.at) {
			*clock = clock.Add(1)
		}
	}
	seq := uint64(len(v.messages) + 1)
	v.messages = append(v.messages, drop{kind: kind, delay: delay, event: edda.Event{
		ID: fmt.Sprintf("%d-%d", stream, seq), Stream: fmt.Sprint(stream), Seq: seq, Time: *clock,
	}})
}

// flow reads it as a reader does.
func (v *river) flow(ctx context.Context, r *reader) error {
	_ = backoff.Wait(ctx, v.opens)
	r.mu.Lock()
	r.atStart = backlog{opened: true, at: v.at, end: v.end()}
	r.mu.Unlock()
	signal(r.wake)
	for _, m := range v.messages {
		if m.kind == unseen || m.kind == gone {
			continue
		}
		_ = backoff.Wait(ctx, m.delay)
		if err := v.deliver(ctx, r, m); err != nil {
			return err
		}
	}
	if r.position() < v.end() { // a look at the ends finds that nothing more comes
		_ = backoff.Wait(ctx, time.Second)
		r.noteEmpty(uint64(len(v.messages)))
	}
	return nil
}

func (v *river) deliver(ctx context.Context, r *reader, m drop) error {
	if m.kind == foreign {
		r.advance(m.event.Seq, m.event.Time, false)
		return nil
	}
	return r.enqueue(ctx, m.event)
}

// sourceOf is a source whose readers are to be fed.
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

// TestThePastIsSortedCompleteAndEnds feeds a source from streams of any kind, at any
// pace: empty and quiet ones, with messages that are gone or none of ours.
func TestThePastIsSortedCompleteAndEnds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rivers := drawRivers(rt)
		most := rapid.IntRange(1, 9).Draw(rt, "most")
		pause := someDelay.Draw(rt, "pause")
		var past, later []edda.Event
		var problem error
		synctest.Test(t, func(t *testing.T) {
			past, later, problem = drain(t.Context(), rivers, most, pause)
		})
		if problem != nil {
			rt.Fatal(problem)
		}
		judgePast(rt, rivers, past, later)
	})
}

// drain fetches until nothing comes any more.
func drain(ctx context.Context, rivers []*river, most int, pause time.Duration) (past, later []edda.Event, err error) {
	s := sourceOf(len(rivers))
	var flowing sync.WaitGroup
	defer flowing.Wait()
	for i, v := range rivers {
		flowing.Go(func() { _ = v.flow(ctx, s.readers[i]) }) // it has a buffer of its own
	}
	for {
		got, err := s.Fetch(ctx, most, time.Hour)
		switch {
		case err != nil:
			return nil, nil, err
		case len(got.Events) == 0:
			return past, later, s.ended(rivers)
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

// ended is an error where the past has not, although all of it is handled, or has
// although some is not.
func (s *Source) ended(rivers []*river) error {
	var store positions
	for i, v := range rivers {
		last := v.lastOurs()
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

// lastOurs is the last event that was there when the end was looked for.
func (v *river) lastOurs() (seq uint64) {
	for _, m := range v.messages[:v.looked] {
		if m.kind == ours {
			seq = m.event.Seq
		}
	}
	return seq
}

func judgePast(t *rapid.T, rivers []*river, past, later []edda.Event) {
	upto := rivers[0].at
	for _, v := range rivers {
		if v.at.Before(upto) {
			upto = v.at
		}
	}
	if !slices.IsSortedFunc(past, func(a, b edda.Event) int { return a.Time.Compare(b.Time) }) {
		t.Errorf("the past is not in order: %v", idsOf(past))
	}
	for i, v := range rivers {
		wantPast, wantLater := v.wanted(upto)
		if got, want := idsOf(of(past, i)), idsOf(wantPast); !slices.Equal(got, want) {
			t.Errorf("of the past of stream %d came %v, want %v", i, got, want)
		}
		if got, want := idsOf(of(later, i)), idsOf(wantLater); !slices.Equal(got, want) {
			t.Errorf("of stream %d came later %v, want %v", i, got, want)
		}
	}
}

// of are the events of one stream.
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
