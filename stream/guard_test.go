package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/internal/testkit/natstest"
	"edda/stream/wire"
)

// checkpointAt returns the checkpoint of a message as the engine writes it.
func (w *world) checkpointAt(ctx context.Context, seq uint64) edda.Checkpoint {
	w.T.Helper()
	s := w.Stream(ctx, wire.AggregateEvents)
	m, err := s.GetMsg(ctx, seq)
	if err != nil {
		w.T.Fatal(err)
	}
	return edda.Checkpoint{Stream: wire.AggregateEvents, Seq: seq, Time: m.Time, Created: s.CachedInfo().Created}
}

func TestAFittingCheckpointIsAccepted(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for i := range 10 {
			w.send("acme", "O1", i)
		}
		expired := w.checkpointAt(ctx, 7)
		s := w.Stream(ctx, wire.AggregateEvents)
		if err := s.Purge(ctx, jetstream.WithPurgeSequence(8)); err != nil {
			t.Fatal(err)
		}
		early := edda.Checkpoint{Stream: wire.AggregateEvents, Seq: 9} // without a store time
		for _, cp := range []edda.Checkpoint{expired, w.checkpointAt(ctx, 10), early} {
			src, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{})
			if err != nil {
				t.Fatalf("%+v: %v", cp, err)
			}
			if src.Start()[0] != cp || len(src.Losses()) > 0 {
				t.Errorf("reading goes on at %+v", src.Start()[0])
			}
		}
	})
}

func TestWhereANewSourceBegins(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for i := range 10 {
			w.send("acme", "O1", i)
		}
		at := w.checkpointAt(ctx, 10)
		now, err := OpenSource(ctx, w.JS, nil, SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := now.Start()[0]; got.Seq != 10 || !got.Time.Equal(at.Time) || !got.Created.Equal(at.Created) {
			t.Errorf("now is %+v", got)
		}
		all, err := OpenSource(ctx, w.JS, nil, SourceOptions{From: FromAll})
		if err != nil {
			t.Fatal(err)
		}
		if got := all.Start()[0]; got.Seq != 0 || !got.Created.Equal(at.Created) {
			t.Errorf("all is %+v", got)
		}
	})
}

// TestStoresThatShareTheStreamsBeginTogether: where the first of them did, also in a stream that has changed meanwhile.
func TestStoresThatShareTheStreamsBeginTogether(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.sendMany("O1", 2)
		first := w.checkpointAt(ctx, 2)
		var asked []edda.Checkpoint
		agree := func(_ context.Context, now edda.Checkpoint) (edda.Checkpoint, error) {
			if now.Stream != wire.AggregateEvents {
				return now, nil
			}
			asked = append(asked, now)
			return first, nil
		}
		begin := func(o SourceOptions, held ...edda.Checkpoint) edda.Checkpoint {
			t.Helper()
			o.Agree = agree
			src, err := OpenSource(ctx, w.JS, held, o)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(src.Start(), func(c edda.Checkpoint) bool { return c.Stream == wire.AggregateEvents })
			return src.Start()[i]
		}
		w.sendMany("O2", 2)
		if got := begin(SourceOptions{}); got != first || len(asked) != 1 || asked[0] != w.checkpointAt(ctx, 4) {
			t.Errorf("it begins behind %+v, and has asked with %+v", got, asked)
		}
		if got := begin(SourceOptions{From: FromAll}); got.Seq != 0 || len(asked) != 1 {
			t.Errorf("with all it begins behind %+v", got)
		}
		if got := begin(SourceOptions{}, w.checkpointAt(ctx, 3)); got.Seq != 3 || len(asked) != 1 {
			t.Errorf("with a position it begins behind %+v", got)
		}
		testkit.Must(t, w.Stream(ctx, wire.AggregateEvents).Purge(ctx, jetstream.WithPurgeSequence(4)))
		_, err := OpenSource(ctx, w.JS, nil, SourceOptions{Agree: agree})
		testkit.WantError(t, err, edda.Permanent, "begins at 4, but only messages up to 2 were handled", "--accept-stream-loss")
		if got := begin(SourceOptions{AcceptLoss: true}); got.Seq != 3 {
			t.Errorf("with the loss accepted it begins behind %+v", got)
		}
	})
}

func TestSourceNeedsItsStreams(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.JS.DeleteStream(ctx, wire.WorkflowEvents); err != nil {
			t.Fatal(err)
		}
		_, err := OpenSource(ctx, w.JS, nil, SourceOptions{})
		testkit.WantError(t, err, nil, wire.WorkflowEvents)
	})
}

// sendMany publishes n events with different store times, and returns their ids.
func (w *world) sendMany(id string, n int) (ids []string) {
	w.T.Helper()
	for i := range n {
		time.Sleep(time.Millisecond)
		w.send("acme", id, i)
		ids = append(ids, fmt.Sprintf("acme-%s-%d", id, i))
	}
	return ids
}

// lost restores a server that has only the first messages of ten, and returns the checkpoint of the
// tenth.
func (w *world) lost(ctx context.Context, first int) edda.Checkpoint {
	w.T.Helper()
	w.sendMany("first", first)
	restore := w.Backup()
	w.sendMany("lost", 10-first)
	cp := w.checkpointAt(ctx, 10)
	restore()
	return cp
}

func (w *world) purge(ctx context.Context, opts ...jetstream.StreamPurgeOpt) {
	w.T.Helper()
	s, err := w.JS.Stream(ctx, wire.AggregateEvents)
	w.Must(err)
	w.Must(s.Purge(ctx, opts...))
}

func (w *world) remove(ctx context.Context, seqs ...uint64) {
	w.T.Helper()
	s, err := w.JS.Stream(ctx, wire.AggregateEvents)
	w.Must(err)
	for _, seq := range seqs {
		w.Must(s.DeleteMsg(ctx, seq))
	}
}

// TestMessagesInPlaceOfLostOnesAreRead: they were skipped after the loss was accepted.
func TestMessagesInPlaceOfLostOnesAreRead(t *testing.T) {
	tests := map[string]struct {
		// lose causes the loss, and returns the checkpoint and the ids to be read.
		lose func(ctx context.Context, w *world) (edda.Checkpoint, []string)
		what string
		next string
		asks bool // an operator must accept the loss
	}{
		"the sequence is lower": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			cp := w.lost(ctx, 5)
			return cp, w.sendMany("other", 3)
		}, "ends at 8, but everything up to 10", "at message 6, the first stored after", false},
		"the sequence is lower and nothing is new": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			return w.lost(ctx, 5), nil
		}, "ends at 5, but everything up to 10", "at message 6, ", false},
		"the sequence is the same": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			cp := w.lost(ctx, 5)
			return cp, w.sendMany("other", 5)
		}, "wrote others in their place", "at message 6, ", false},
		"the sequence is higher": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			cp := w.lost(ctx, 5)
			return cp, w.sendMany("other", 9)
		}, "wrote others in their place", "at message 6, ", false},
		"the clock went back": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			w.sendMany("first", 5)
			cp := w.checkpointAt(ctx, 5)
			cp.Seq, cp.Time = 6, cp.Time.Add(time.Hour)
			return cp, w.sendMany("other", 3)
		}, "wrote others in their place", "at message 6, ", true},
		"the clock went back and one was deleted": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			w.sendMany("first", 5)
			cp := w.checkpointAt(ctx, 5)
			cp.Seq, cp.Time = 6, cp.Time.Add(time.Hour)
			w.remove(ctx, 5)
			return cp, w.sendMany("other", 3)
		}, "wrote others in their place", "at message 5, ", true},
		"some were deleted": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			cp := w.lost(ctx, 5)
			ids := w.sendMany("other", 6)
			w.remove(ctx, 1, 4, 5, 6, 7, 11)
			return cp, ids[2:5]
		}, "wrote others in their place", "at message 4, ", false},
		"created anew": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			w.sendMany("first", 10)
			cp := w.checkpointAt(ctx, 10)
			time.Sleep(time.Second)
			w.Recreate(ctx, wire.AggregateEvents, nil)
			return cp, w.sendMany("other", 12)
		}, "was created anew", "at message 1, where the stream begins", true},
		"created anew and older": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			ids := w.sendMany("other", 3)
			cp := w.checkpointAt(ctx, 3)
			cp.Created, cp.Time = cp.Created.Add(-time.Hour), cp.Time.Add(time.Hour)
			return cp, ids
		}, "was created anew", "at message 1, ", true},
		"messages after the checkpoint are gone": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			ids := w.sendMany("first", 10)
			cp := w.checkpointAt(ctx, 5)
			w.purge(ctx, jetstream.WithPurgeSequence(8))
			return cp, ids[7:]
		}, "begins at 8, but only messages up to 5", "at message 8, where the stream begins", true},
		"all are gone": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			w.sendMany("first", 10)
			cp := w.checkpointAt(ctx, 5)
			w.purge(ctx)
			return cp, nil
		}, "begins at 11, but only messages up to 5", "at message 11, ", true},
		"the stream is empty": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			return w.lost(ctx, 0), nil
		}, "ends at 0, but everything up to 10", "at message 1, ", false},
		"the stream was empty": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			cp := w.lost(ctx, 0)
			return cp, w.sendMany("other", 2)
		}, "ends at 2, but everything up to 10", "at message 1, ", false},
		"no time is known": {func(ctx context.Context, w *world) (edda.Checkpoint, []string) {
			w.sendMany("first", 3)
			return edda.Checkpoint{Stream: wire.AggregateEvents, Seq: 7}, nil
		}, "ends at 3, but everything up to 7", "at message 4, the next to come", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				cp, want := test.lose(ctx, w)
				src, stop := w.open(ctx, []edda.Checkpoint{cp}, SourceOptions{AcceptLoss: true})
				defer stop()
				w.wantLoss(src, cp, test.what, test.next)
				_, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{})
				if (err != nil) != test.asks || src.Losses()[0].Handled == test.asks {
					t.Errorf("not accepted: %v", err)
				}
				if err != nil {
					testkit.WantError(t, err, edda.Permanent, wire.AggregateEvents, test.what, "--accept-stream-loss")
				}
				if created := w.Stream(ctx, wire.AggregateEvents).CachedInfo().Created; !src.Start()[0].Created.Equal(created) {
					t.Errorf("reading continues in the stream of %s, want %s", src.Start()[0].Created, created)
				}
				want = append(want, w.sendMany("later", 2)...)
				var got []string
				for _, ev := range fetch(ctx, t, src, len(want)) {
					got = append(got, ev.ID)
				}
				if !slices.Equal(got, want) {
					t.Errorf("read\n%v, want\n%v", got, want)
				}
				if _, err := OpenSource(ctx, w.JS, src.Start(), SourceOptions{}); err != nil {
					t.Errorf("opened once more: %v", err)
				}
			})
		})
	}
}

func (w *world) wantLoss(src *Source, cp edda.Checkpoint, what, next string) {
	w.T.Helper()
	losses := src.Losses()
	if len(losses) != 1 || losses[0].Checkpoint != cp || losses[0].Resume != src.Start()[0] {
		w.T.Fatalf("the losses are %+v", losses)
	}
	said := losses[0].Accepted()
	if !strings.HasPrefix(said, "stream "+wire.AggregateEvents+" ") || !strings.Contains(said, what) || !strings.Contains(said, next) {
		w.T.Errorf("%q does not say %q and %q", said, what, next)
	}
}

// TestStoreTimesDoNotSeparateAfterTheClockWentBack: by store times alone, reading would skip new
// messages of a server whose clock went back.
func TestStoreTimesDoNotSeparateAfterTheClockWentBack(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.sendMany("first", 5)
		cp := w.checkpointAt(ctx, 5)
		cp.Seq = 9
		s, err := w.JS.Stream(ctx, wire.AggregateEvents)
		w.Must(err)
		tests := map[string]struct {
			change func(cp *edda.Checkpoint)
			upto   uint64
			want   bool
		}{
			"the clock went forth":                         {func(*edda.Checkpoint) {}, 5, true},
			"nothing is left":                              {func(*edda.Checkpoint) {}, 0, false}, // the five messages are older than the handled ones
			"it is not known when the last was stored":     {func(cp *edda.Checkpoint) { cp.Time = time.Time{} }, 5, false},
			"the server is behind the checkpoint":          {func(cp *edda.Checkpoint) { cp.Time = time.Now().Add(time.Second) }, 5, false},
			"the next is older than what was handled":      {func(*edda.Checkpoint) {}, 3, false},
			"one of those before is older than its stream": {func(cp *edda.Checkpoint) { cp.Created = cp.Time }, 5, false},
		}
		for name, test := range tests {
			cp := cp
			test.change(&cp)
			if got, err := separable(ctx, w.JS, s, s.CachedInfo(), cp, test.upto); err != nil || got != test.want {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	})
}

// TestAStreamThatWasCreatedForAStoreIsReadWhole: what came between its creation and the first position was never read.
func TestAStreamThatWasCreatedForAStoreIsReadWhole(t *testing.T) {
	natstest.Bubble(t, embedded, func(ctx context.Context, n *natstest.World) {
		w := &world{World: n}
		for _, store := range []string{"S1", "S2"} { // the second one finds them
			_, err := EnsureStreams(ctx, n.JS, StreamOptions{Store: store})
			n.Must(err)
		}
		w.sendMany("O1", 2)
		var asked uint64
		agree := func(_ context.Context, at edda.Checkpoint) (edda.Checkpoint, error) {
			if at.Stream == wire.AggregateEvents {
				asked = at.Seq
			}
			return at, nil
		}
		for store, want := range map[string]uint64{"S1": 0, "S2": 2, "": 2} {
			asked = 1
			src, err := OpenSource(ctx, n.JS, nil, SourceOptions{Store: store, Agree: agree})
			n.Must(err)
			if got := src.Start()[0]; got.Stream != wire.AggregateEvents || got.Seq != want || asked != want {
				t.Errorf("store %q begins at %+v, and has asked with %d; want %d", store, got, asked, want)
			}
		}
	})
}
