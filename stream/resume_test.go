package stream

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// sendMany publishes n events, each stored at a time of its own, and returns
// their ids.
func (w *world) sendMany(id string, n int) (ids []string) {
	w.t.Helper()
	for i := range n {
		time.Sleep(time.Millisecond)
		w.send("acme", id, i)
		ids = append(ids, fmt.Sprintf("acme-%s-%d", id, i))
	}
	return ids
}

// backup copies the server's files, and returns what puts them back in place of
// whatever came to be since.
func (w *world) backup() (restore func()) {
	w.t.Helper()
	kept := w.t.TempDir()
	w.restart(func() { w.must(os.CopyFS(kept, os.DirFS(w.dir))) })
	return func() {
		w.t.Helper()
		w.restart(func() {
			w.must(os.RemoveAll(w.dir))
			w.must(os.CopyFS(w.dir, os.DirFS(kept)))
		})
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// lost puts back a server that has only the first messages of ten, and whose
// checkpoint was at the tenth.
func (w *world) lost(ctx context.Context, first int) edda.Checkpoint {
	w.t.Helper()
	w.sendMany("first", first)
	restore := w.backup()
	w.sendMany("lost", 10-first)
	cp := w.checkpointAt(ctx, 10)
	restore()
	return cp
}

func (w *world) purge(ctx context.Context, opts ...jetstream.StreamPurgeOpt) {
	w.t.Helper()
	s, err := w.js.Stream(ctx, wire.AggregateEvents)
	w.must(err)
	w.must(s.Purge(ctx, opts...))
}

func (w *world) remove(ctx context.Context, seqs ...uint64) {
	w.t.Helper()
	s, err := w.js.Stream(ctx, wire.AggregateEvents)
	w.must(err)
	for _, seq := range seqs {
		w.must(s.DeleteMsg(ctx, seq))
	}
}

// TestMessagesInThePlaceOfLostOnesWereSkipped when the loss was accepted.
func TestMessagesInThePlaceOfLostOnesWereSkipped(t *testing.T) {
	tests := map[string]struct {
		// lose makes the loss, and returns the checkpoint and what is to be read.
		lose func(ctx context.Context, w *world) (edda.Checkpoint, []string)
		what string
		next string
		asks bool // whether a person has to accept it
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
			edit(ctx, w, wire.AggregateEvents, func(*jetstream.StreamConfig) {})
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
				if _, err := OpenSource(ctx, w.js, []edda.Checkpoint{cp}, SourceOptions{}); (err != nil) != test.asks || src.Losses()[0].Handled == test.asks {
					t.Errorf("not accepted: %v", err)
				}
				want = append(want, w.sendMany("later", 2)...)
				var got []string
				for _, ev := range fetch(ctx, t, src, len(want)) {
					got = append(got, ev.ID)
				}
				if !slices.Equal(got, want) {
					t.Errorf("read\n%v, want\n%v", got, want)
				}
				if _, err := OpenSource(ctx, w.js, src.Start(), SourceOptions{}); err != nil {
					t.Errorf("opened once more: %v", err)
				}
			})
		})
	}
}

func (w *world) wantLoss(src *Source, cp edda.Checkpoint, what, next string) {
	w.t.Helper()
	losses := src.Losses()
	if len(losses) != 1 || losses[0].Checkpoint != cp || losses[0].Resume != src.Start()[0] {
		w.t.Fatalf("the losses are %+v", losses)
	}
	said := losses[0].Accepted()
	if !strings.HasPrefix(said, "stream "+wire.AggregateEvents+" ") || !strings.Contains(said, what) || !strings.Contains(said, next) {
		w.t.Errorf("%q does not say %q and %q", said, what, next)
	}
}

// Whoever goes on by stored times in a stream whose server's clock went back passes new
// messages by.
func TestNewMessagesWouldBePassedByWhereTheClockWentBack(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.sendMany("first", 5)
		cp := w.checkpointAt(ctx, 5)
		cp.Seq = 9
		s, err := w.js.Stream(ctx, wire.AggregateEvents)
		w.must(err)
		tests := map[string]struct {
			change func(cp *edda.Checkpoint)
			upto   uint64
			want   bool
		}{
			"the clock went forth":                         {func(*edda.Checkpoint) {}, 5, true},
			"nothing is left":                              {func(*edda.Checkpoint) {}, 0, false}, // the five are older than what was handled, and follow
			"it is not known when the last was stored":     {func(cp *edda.Checkpoint) { cp.Time = time.Time{} }, 5, false},
			"the server is behind the checkpoint":          {func(cp *edda.Checkpoint) { cp.Time = time.Now().Add(time.Second) }, 5, false},
			"the next is older than what was handled":      {func(*edda.Checkpoint) {}, 3, false},
			"one of those before is older than its stream": {func(cp *edda.Checkpoint) { cp.Created = cp.Time }, 5, false},
		}
		for name, test := range tests {
			cp := cp
			test.change(&cp)
			if got, err := tellsApart(ctx, w.js, s, s.CachedInfo(), cp, test.upto); err != nil || got != test.want {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	})
}
