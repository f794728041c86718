package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// thisRun publishes echoes, and leaves them out.
var thisRun = wire.Codec{Run: "r2"}

// home is a source with the publisher of the same process.
type home struct {
	*world
	t         *testing.T
	src       *Source
	publisher *Publisher
	made      int  // works so far
	facts     bool // and nothing else
}

// inHome runs f with a source that hears the facts called "heard" alone.
func inHome(t *testing.T, f func(ctx context.Context, h *home)) {
	t.Helper()
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Codec: thisRun, Hears: func(_, fact string) bool { return fact == "heard" }})
		defer stop()
		f(ctx, newHome(t, w, src))
	})
}

// newHome waits until the source reads.
func newHome(t *testing.T, w *world, src *Source) *home {
	synctest.Wait()
	h := &home{world: w, t: t, src: src, publisher: NewPublisher(w.js, thisRun)}
	h.publisher.Tell(src.Published)
	return h
}

// own are copies of results and facts, in turns.
func (h *home) own(n int, fact string) []edda.Work {
	out := make([]edda.Work, n)
	for i := range out {
		h.made++
		if id := fmt.Sprint("w", h.made); i%2 == 0 && !h.facts {
			out[i] = copyOf(h.t, id)
		} else {
			out[i] = edda.Work{Kind: edda.WorkFact, ID: id, Name: fact, From: edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}, Time: noon}
		}
	}
	return out
}

func (h *home) deliver(ctx context.Context, works []edda.Work) {
	h.t.Helper()
	if errs := h.publisher.Deliver(ctx, works); errs != nil {
		h.t.Fatal(errs)
	}
}

// settle publishes so much of our own that reading rests, and takes what was read until then.
func (h *home) settle(ctx context.Context) {
	h.t.Helper()
	h.deliver(ctx, h.own(2*pauseAfter, "silent"))
	h.takeSilent(ctx)
	if !h.rests(ctx) {
		h.t.Fatal("nothing but our own came, and it is read")
	}
}

// rests tells whether the stream is not read, as everybody sees.
func (h *home) rests(ctx context.Context) bool {
	h.t.Helper()
	_, err := h.js.Consumer(ctx, wire.WorkflowEvents, wire.ConsumerName("saga", "", ""))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		h.t.Fatal(err)
	}
	if gone := err != nil; gone != h.src.paused() {
		h.t.Fatalf("the consumer is gone: %v; reading rests: %v", gone, h.src.paused())
	}
	return err != nil
}

// takeSilent takes what waits, which must be facts that nobody hears.
func (h *home) takeSilent(ctx context.Context) {
	h.t.Helper()
	for _, ev := range h.waiting(ctx) {
		if ev.Type != "silent" {
			h.t.Fatalf("there comes %+v", ev)
		}
	}
}

// waiting takes all that comes within a moment, which is less than a rest needs to end.
func (h *home) waiting(ctx context.Context) (out []edda.Event) {
	h.t.Helper()
	for {
		got, err := h.src.Fetch(ctx, 1024, pauseLook/50)
		if err != nil {
			h.t.Fatal(err)
		}
		if len(got.Events) == 0 {
			return out
		}
		out = append(out, got.Events...)
	}
}

func TestOurOwnMessagesWereReadBack(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		h.settle(ctx)
		h.deliver(ctx, h.own(5000, "silent"))
		if came := h.waiting(ctx); len(came) > 0 {
			t.Errorf("%d came, the first %+v", len(came), came[0])
		}
		if end := ends(ctx, t, h.src, wire.WorkflowEvents); end.Need > 2*pauseAfter || end.Last.Seq != 2*pauseAfter+5000 || !h.rests(ctx) {
			t.Errorf("the end is %+v", end)
		}
	})
}

// TestWhatOthersPublishIsRead where it lies between our own messages as soon as the next
// of those is acknowledged, behind the last of them a moment later.
func TestWhatOthersPublishIsRead(t *testing.T) {
	tests := map[string]struct {
		followed func(*home) []edda.Work
		within   time.Duration
	}{
		"between our own":    {func(h *home) []edda.Work { return h.own(2, "silent") }, pauseLook / 2},
		"behind our own":     {func(*home) []edda.Work { return nil }, 2 * pauseLook},
		"before our own was": {func(h *home) []edda.Work { return []edda.Work{copyOf(h.t, "foreign")} }, 2 * pauseLook},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inHome(t, func(ctx context.Context, h *home) {
				h.settle(ctx)
				began := time.Now()
				h.result("acme", "foreign", jetstream.WithMsgID(wire.ResultID("foreign")))
				h.deliver(ctx, test.followed(h))
				got := fetch(ctx, t, h.src, 1)[0]
				if took := time.Since(began); got.CommandID != "foreign" || took > test.within {
					t.Errorf("%s later came %+v", took, got)
				}
			})
		})
	}
}

func TestFactsThatAreHeardAreRead(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		h.settle(ctx)
		fact := h.own(2, "heard")[1]
		h.deliver(ctx, []edda.Work{fact})
		if got := fetch(ctx, t, h.src, 1)[0]; got.ID != fact.ID || got.Type != "heard" {
			t.Errorf("%+v", got)
		}
		h.deliver(ctx, h.own(3*pauseAfter, "heard"))
		if got := fetch(ctx, t, h.src, 3*pauseAfter/2); h.rests(ctx) {
			t.Errorf("reading rests behind %d facts", len(got))
		}
	})
}

// TestASlowStreamIsRead: to rest is worth it only where much comes.
func TestASlowStreamIsRead(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		const rounds = 200
		for range rounds {
			h.deliver(ctx, h.own(pauseAfter/80, "silent"))
			time.Sleep(pauseWithin / 40)
			if h.src.paused() {
				t.Fatal("reading rests")
			}
		}
	})
}

// TestAStreamOfManyIsRead for a while, once somebody else wrote to it.
func TestAStreamOfManyIsRead(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		h.settle(ctx)
		h.result("acme", "foreign")
		h.deliver(ctx, h.own(3*pauseAfter, "silent"))
		h.waiting(ctx)
		if h.rests(ctx) {
			t.Error("reading rests at once")
		}
		time.Sleep(readAtLeast)
		h.settle(ctx)
	})
}

func TestReadingGoesOnWithOtherTenants(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		h.settle(ctx)
		h.src.SetTenants(wire.Tenants{"acme", "globex"})
		h.result("globex", "theirs")
		if got := fetch(ctx, t, h.src, 1)[0]; got.CommandID != "theirs" {
			t.Errorf("%+v", got)
		}
	})
}

// TestMessagesWereSkippedWhereTheServerLostOurOwn: it came back without the last ones, and
// others took their places.
func TestMessagesWereSkippedWhereTheServerLostOurOwn(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		before, other := t.TempDir(), t.TempDir()
		w.restart(func() { copyAll(t, w.dir, before) })
		for i := range 3 * pauseAfter {
			w.result("acme", fmt.Sprint("foreign", i))
		}
		w.restart(func() {
			copyAll(t, w.dir, other)
			copyAll(t, before, w.dir)
		})
		src, err := OpenSource(ctx, w.js, nil, SourceOptions{Codec: thisRun, Hears: func(string, string) bool { return false }})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- src.Run(ctx) }()
		h := newHome(t, w, src)
		h.settle(ctx)
		w.restart(func() { copyAll(t, other, w.dir) })
		select {
		case err = <-ended:
		case <-time.After(time.Minute):
		}
		wantError(t, err, edda.Permanent, wire.WorkflowEvents, "wrote others in their place")
	})
}

// TestWhatWaitsToBeReadIsNoneOfOurOwn: a reader that has no room is far behind what is
// acknowledged.
func TestWhatWaitsToBeReadIsNoneOfOurOwn(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		const foreign = bufferEvents + 500
		for i := range foreign {
			h.result("acme", fmt.Sprint("foreign", i))
		}
		h.deliver(ctx, h.own(2*pauseAfter, "silent"))
		for i, id := range theirs(fetch(ctx, t, h.src, foreign)) {
			if id != fmt.Sprint("foreign", i) {
				t.Fatalf("after %d comes %s", i, id)
			}
		}
	})
}

func TestWhenReadingMayRest(t *testing.T) {
	tests := map[string]struct {
		own  ownTail
		past uint64
		want uint64 // what counts as read then; zero: it may not
	}{
		"nothing is our own":        {},
		"all behind it is":          {own: ownTail{from: 6, to: 9, id: "w9"}, want: 9},
		"more than that is":         {own: ownTail{from: 2, to: 9, id: "w9"}, want: 9},
		"what was read is":          {own: ownTail{from: 2, to: 4, id: "w4"}, want: 5},
		"something else is between": {own: ownTail{from: 7, to: 9, id: "w9"}},
		"the past is not over":      {own: ownTail{from: 6, to: 9, id: "w9"}, past: 7},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &reader{read: 5, at: noon, tail: test.own, families: []wire.Family{wire.FamilyResult}, atStart: backlog{end: test.past}}
			if may := r.beginPause(); may != (test.want > 0) || may != r.paused() {
				t.Fatal(may)
			}
			if test.want > 0 && (r.read != test.want || (r.read > 5) != (r.id == test.own.id) || (r.read == 5) != r.at.Equal(noon)) {
				t.Errorf("read up to %d, %q of %s", r.read, r.id, r.at)
			}
		})
	}
}

// TestAnEndWaitsForAnAck: that a message of our own is behind what counts as read does not
// mean that somebody will apply it.
func TestAnEndWaitsForAnAck(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		h.facts = true
		h.settle(ctx)
		kept := ends(ctx, t, h.src, wire.WorkflowEvents).Need
		works := h.own(2, "silent")
		if errs := NewPublisher(h.js, wire.Codec{}).Deliver(ctx, works); errs != nil { // which tells nobody
			t.Fatal(errs)
		}
		time.AfterFunc(pauseLook/4, func() {
			for i := range works {
				h.src.Published(wire.WorkflowEvents, uint64(2*pauseAfter+1+i), &works[i])
			}
		})
		began := time.Now()
		wantEnd(t, ends(ctx, t, h.src, wire.WorkflowEvents), kept, 2*pauseAfter+2)
		if took := time.Since(began); took > pauseLook/2 || !h.src.paused() {
			t.Errorf("it took %s", took)
		}
	})
}

// TestReadingGoesOnWhereTheServerWasAway: only then is the stream held against what is known of it.
func TestReadingGoesOnWhereTheServerWasAway(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		h.settle(ctx)
		h.src.Recheck()
		synctest.Wait()
		if h.rests(ctx) {
			t.Error("reading rests")
		}
		if o := h.src.readers[2].tail; o.from > 0 {
			t.Errorf("what the server had when it was there still counts: %+v", o)
		}
	})
}

// TestThatTheServerWasAwayWasForgotten where it came as reading was about to rest.
func TestThatTheServerWasAwayWasForgotten(t *testing.T) {
	for range 50 {
		r := &reader{again: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errOwnTail)
		signal(r.again)
		r.watch(ctx, cancel)()
		if len(r.again) == 0 {
			t.Fatal("nobody is told that the server was away")
		}
	}
}

// TestNothingOfOthersIsMissed, whatever comes in between: each is given once, in order, and
// in the end all is read.
func TestNothingOfOthersIsMissed(t *testing.T) {
	const rounds = 40
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inHome(t, func(ctx context.Context, h *home) {
				random := rand.New(rand.NewPCG(seed, 1))
				var want, got []string
				rested := 0
				for i := range rounds {
					want = append(want, h.round(ctx, random, i)...)
					got = append(got, theirs(h.waiting(ctx))...)
					if h.src.paused() {
						rested++
					}
				}
				time.Sleep(readAtLeast)
				got = append(got, theirs(h.waiting(ctx))...)
				if !slices.Equal(got, want) {
					t.Errorf("got %d of others, want %d", len(got), len(want))
				}
				if end := ends(ctx, t, h.src, wire.WorkflowEvents); h.src.readers[2].position() != end.Last.Seq {
					t.Errorf("read up to %d, the end is %+v", h.src.readers[2].position(), end)
				}
				if rested == 0 || rested == rounds {
					t.Errorf("in %d of %d rounds reading rests", rested, rounds)
				}
			})
		})
	}
}

// round does one thing of many, and tells what of it is to be read.
func (h *home) round(ctx context.Context, random *rand.Rand, i int) []string {
	h.t.Helper()
	switch random.IntN(10) {
	case 0:
		h.result("acme", fmt.Sprint("foreign", i))
		return []string{fmt.Sprint("foreign", i)}
	case 1: // among our own
		h.deliver(ctx, h.own(300, "silent"))
		h.result("acme", fmt.Sprint("foreign", i))
		h.deliver(ctx, h.own(300, "silent"))
		return []string{fmt.Sprint("foreign", i)}
	case 2:
		fact := h.own(2, "heard")[1]
		h.deliver(ctx, []edda.Work{fact})
		return []string{fact.ID}
	case 3:
		time.Sleep(time.Duration(random.Int64N(int64(2 * readAtLeast))))
	case 4: // nobody waits for these acks
		gone, cancel := context.WithCancel(ctx)
		works := h.own(100, "silent")
		time.AfterFunc(0, cancel)
		h.publisher.Deliver(gone, works)
	case 5:
		h.src.Recheck()
	case 6: // what lies there already
		works := h.own(10, "silent")
		h.deliver(ctx, works)
		h.deliver(ctx, works)
	default:
		h.deliver(ctx, h.own(random.IntN(3*pauseAfter), "silent"))
	}
	return nil
}

// theirs names what is not of our own, but for what others may hear.
func theirs(events []edda.Event) (out []string) {
	for _, ev := range events {
		switch {
		case ev.Type == "heard":
			out = append(out, ev.ID)
		case strings.HasPrefix(ev.CommandID, "foreign"):
			out = append(out, ev.CommandID)
		}
	}
	return out
}

// TestAnEndLeftOutWhatWasReadMeanwhile: what counted as read when the end was asked for may be of
// a reading and another rest since, in which something of others went into the buffer.
func TestAnEndLeftOutWhatWasReadMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const foreign = 18
		r := &reader{read: 10, kept: 5, tail: ownTail{from: 6, to: 10, paused: true}, families: []wire.Family{wire.FamilyResult}, wake: make(chan struct{}, 1)}
		time.AfterFunc(pauseLook/2, func() { r.moveTo(foreign, noon, true) })
		time.AfterFunc(pauseLook/2+pausePoll, func() { r.moveTo(20, noon, false) })
		if need, err := r.need(t.Context(), 20); need != foreign || err != nil {
			t.Errorf("need is %d, %v", need, err)
		}
	})
}

// TestWhatTheServerLostCountedAsOurOwn: acks that begin again further in front are of other
// messages than those that were acknowledged, and there may be more of others among them.
func TestWhatTheServerLostCountedAsOurOwn(t *testing.T) {
	for _, resting := range []bool{true, false} {
		r := &reader{read: 5, tail: ownTail{from: 6, to: 9, id: "w9"}, families: []wire.Family{wire.FamilyResult}, stir: make(chan struct{}, 1), again: make(chan struct{}, 1)}
		if resting && !r.beginPause() {
			t.Fatal("reading does not rest")
		}
		was := r.read
		for seq := uint64(8); seq < 12; seq++ { // 7 is of somebody else now
			r.published(seq, fmt.Sprint("new", seq), noon)
		}
		if r.paused() || r.read != was || resting && r.id != "w9" {
			t.Errorf("resting %v: it rests %v, and read %d, %q", resting, r.paused(), r.read, r.id)
		}
		if !resting && r.beginPause() {
			t.Errorf("reading rests at %d, behind what nobody read", r.read)
		}
		if len(r.again) == 0 {
			t.Error("nobody looks what the server has")
		}
	}
}

// TestAPositionWentBack where messages were read before their acks were.
func TestAPositionWentBack(t *testing.T) {
	r := &reader{read: 8, at: noon, kept: 7, tail: ownTail{from: 2, to: 5, id: "w5"}, families: []wire.Family{wire.FamilyResult}, stir: make(chan struct{}, 1)}
	if !r.beginPause() {
		t.Fatal("reading does not rest")
	}
	for seq := uint64(6); seq <= 9; seq++ {
		r.published(seq, fmt.Sprint("w", seq), noon)
		if want := max(seq, 8); r.read != want || (r.id == "") != (want == 8) {
			t.Errorf("behind %d it is at %d, %q", seq, r.read, r.id)
		}
	}
}

// TestAnEndWasOfFactsThatAreLeftUnread where it was asked for just before reading began to rest:
// nobody would have applied the last of them.
func TestAnEndWasOfFactsThatAreLeftUnread(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		h.facts = true
		r := h.src.readers[2]
		h.settle(ctx)
		h.src.Recheck()
		synctest.Wait()
		r.mu.Lock()
		r.tail.since = time.Now().Add(endWait / 4)
		r.mu.Unlock()
		const more = bufferEvents + 500 // than there is room for
		h.deliver(ctx, h.own(more, "silent"))
		if read := r.position(); read >= 2*pauseAfter+more || h.src.paused() {
			t.Fatalf("read up to %d", read)
		}
		time.AfterFunc(endWait/2, func() {
			h.deliver(ctx, h.own(2*pauseAfter, "silent"))
		})
		end := ends(ctx, t, h.src, wire.WorkflowEvents)
		if _, kept, _ := r.progress(); end.Need > kept {
			t.Errorf("the end is %+v, and the last that is for the sagas is %d", end, kept)
		}
	})
}

// TestAcksOfAnotherStreamCounted as those of the one that is read: a leaf node may have one of
// the same name and subjects, and other numbers.
func TestAcksOfAnotherStreamCounted(t *testing.T) {
	inHome(t, func(ctx context.Context, h *home) {
		const apart = 10
		for i := range apart {
			h.result("acme", fmt.Sprint("foreign", i))
		}
		h.publisher.Tell(func(stream string, seq uint64, w *edda.Work) { h.src.Published(stream, seq-apart, w) })
		h.deliver(ctx, h.own(2*pauseAfter, "silent"))
		if len(theirs(h.waiting(ctx))) != apart || h.src.paused() {
			t.Error("the stream is not read")
		}
	})
}
