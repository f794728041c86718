package stream

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// checkpointAt is the checkpoint of a message as the engine would write it.
func (w *world) checkpointAt(ctx context.Context, seq uint64) edda.Checkpoint {
	w.t.Helper()
	s, err := w.js.Stream(ctx, wire.AggregateEvents)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := s.GetMsg(ctx, seq)
	if err != nil {
		w.t.Fatal(err)
	}
	return edda.Checkpoint{Stream: wire.AggregateEvents, Seq: seq, Time: m.Time, Created: s.CachedInfo().Created}
}

func TestStreamLoss(t *testing.T) {
	tests := map[string]struct {
		break_ func(ctx context.Context, t *testing.T, w *world, cp *edda.Checkpoint)
		says   string
		resume uint64 // once the loss is accepted
		goes   bool   // on by itself: all that is missing was handled
	}{
		"created anew": {func(ctx context.Context, t *testing.T, w *world, _ *edda.Checkpoint) {
			time.Sleep(time.Second)
			edit(ctx, w, wire.AggregateEvents, func(*jetstream.StreamConfig) {})
			for i := range 8 {
				w.send("acme", "O2", i)
			}
		}, "was created anew", 0, false},
		"last sequence below": {func(_ context.Context, _ *testing.T, _ *world, cp *edda.Checkpoint) {
			cp.Seq = 12
		}, "ends at 10, but everything up to 12", 5, true},
		"another time": {func(_ context.Context, _ *testing.T, _ *world, cp *edda.Checkpoint) {
			cp.Time = cp.Time.Add(-time.Nanosecond)
		}, "wrote others in their place", 4, true},
		"messages gone": {func(ctx context.Context, t *testing.T, w *world, _ *edda.Checkpoint) {
			s, err := w.js.Stream(ctx, wire.AggregateEvents)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(ctx, jetstream.WithPurgeSequence(8)); err != nil {
				t.Fatal(err)
			}
		}, "begins at 8, but only messages up to 5", 7, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				w.sendMany("O1", 10)
				cp := w.checkpointAt(ctx, 5)
				test.break_(ctx, t, w, &cp)
				_, err := OpenSource(ctx, w.js, []edda.Checkpoint{cp}, SourceOptions{})
				if !test.goes {
					wantError(t, err, edda.Permanent, wire.AggregateEvents, test.says, "--accept-stream-loss")
				} else if err != nil {
					t.Errorf("it does not go on: %v", err)
				}

				src, err := OpenSource(ctx, w.js, []edda.Checkpoint{cp}, SourceOptions{AcceptLoss: true})
				if err != nil {
					t.Fatal(err)
				}
				if got := src.Start()[0]; got.Seq != test.resume || got.Created.Equal(cp.Created) != (name != "created anew") {
					t.Errorf("reading goes on at %+v", got)
				}
				if l := src.Losses(); len(l) != 1 || l[0].Handled != test.goes || l[0].Checkpoint != cp || l[0].Resume != src.Start()[0] {
					t.Errorf("the losses are %+v", l)
				}
			})
		})
	}
}

func TestTheSameStreamIsRecognised(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for i := range 10 {
			w.send("acme", "O1", i)
		}
		expired := w.checkpointAt(ctx, 7)
		s, err := w.js.Stream(ctx, wire.AggregateEvents)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(ctx, jetstream.WithPurgeSequence(8)); err != nil {
			t.Fatal(err)
		}
		early := edda.Checkpoint{Stream: wire.AggregateEvents, Seq: 9} // written before anything was known
		for _, cp := range []edda.Checkpoint{expired, w.checkpointAt(ctx, 10), early} {
			src, err := OpenSource(ctx, w.js, []edda.Checkpoint{cp}, SourceOptions{})
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
		now, err := OpenSource(ctx, w.js, nil, SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := now.Start()[0]; got.Seq != 10 || !got.Time.Equal(at.Time) || !got.Created.Equal(at.Created) {
			t.Errorf("now is %+v", got)
		}
		all, err := OpenSource(ctx, w.js, nil, SourceOptions{From: FromAll})
		if err != nil {
			t.Fatal(err)
		}
		if got := all.Start()[0]; got.Seq != 0 || !got.Created.Equal(at.Created) {
			t.Errorf("all is %+v", got)
		}
	})
}

func TestSourceNeedsItsStreams(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.js.DeleteStream(ctx, wire.WorkflowEvents); err != nil {
			t.Fatal(err)
		}
		_, err := OpenSource(ctx, w.js, nil, SourceOptions{})
		wantError(t, err, nil, wire.WorkflowEvents)
	})
}
