package stream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/stream/wire"
)

func TestSourceReadsInStreamOrder(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		for i := range 300 {
			w.send("acme", "O1", i)
		}
		events := fetch(ctx, t, src, 300)
		for i, ev := range events {
			if ev.Seq != uint64(i+1) || ev.Stream != wire.AggregateEvents || ev.Malformed != "" {
				t.Fatalf("event %d is %+v", i, ev)
			}
		}
		none(ctx, t, src, 10*time.Minute)
	})
}

func TestSourceContinuesAfterTheCheckpoint(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for i := range 10 {
			w.send("acme", "O1", i)
		}
		src, stop := w.open(ctx, nil, SourceOptions{})
		events := fetch(ctx, t, src, 10)
		cp := edda.Checkpoint{Stream: wire.AggregateEvents, Seq: 4, Time: events[3].Time, Created: src.Start()[0].Created}
		stop()
		src, stop = w.open(ctx, []edda.Checkpoint{cp}, SourceOptions{})
		defer stop()
		if events := fetch(ctx, t, src, 6); events[0].Seq != 5 {
			t.Errorf("reading went on at %d, not at 5", events[0].Seq)
		}
	})
}

func TestSourceSurvivesARestartOfTheServer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		next := uint64(1)
		for round := range 3 {
			for i := range 50 {
				w.send("acme", "O1", 100*round+i)
			}
			for _, ev := range fetch(ctx, t, src, 50) {
				if ev.Seq != next {
					t.Fatalf("round %d: %d comes instead of %d", round, ev.Seq, next)
				}
				next++
			}
			w.Restart(func() { time.Sleep(time.Duration(round) * 10 * time.Minute) })
		}
		none(ctx, t, src, 10*time.Minute)
	})
}

// TestSourceStopsAfterTheServerLostMessages: the server came back with fewer messages than were
// read, or with another stream, and new messages got sequences that counted as read.
func TestSourceStopsAfterTheServerLostMessages(t *testing.T) {
	tests := map[string]struct {
		published int // after the loss
		anew      bool
		handled   bool // everything read is handled
		says      string
		goes      bool // a source that is opened anew continues
	}{
		"noticed at once":              {0, false, true, "the server lost messages", true},
		"noticed by its time":          {20, false, true, "wrote others in their place", true},
		"what was read is not handled": {20, false, false, "wrote others in their place", false},
		"created anew":                 {3, true, true, "was created anew", false},
		"created anew, longer":         {20, true, true, "was created anew", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				old := t.TempDir()
				w.send("acme", "O1", 0)
				w.Restart(func() { copyAll(t, w.Dir, old) })
				var store positions
				src, err := OpenSource(ctx, w.JS, nil, SourceOptions{From: FromAll, Committed: store.committed})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- src.Run(ctx) }()
				for i := range 9 {
					w.send("acme", "O1", 1+i)
				}
				read := fetch(ctx, t, src, 10)
				if test.handled {
					store.commit(wire.AggregateEvents, read[9].Seq)
				}
				if test.anew {
					time.Sleep(time.Second)
					w.Recreate(ctx, wire.AggregateEvents, nil)
				} else {
					w.Restart(func() { copyAll(t, old, w.Dir) })
				}
				for i := range test.published {
					w.send("acme", "O2", i)
				}
				if test.published == 0 || test.anew {
					if _, err := src.Ends(ctx); err == nil {
						t.Error("the ends are those of another stream")
					}
				} else {
					src.Recheck()
				}
				err = <-ended
				testkit.WantError(t, err, edda.Permanent, wire.AggregateEvents, test.says)
				if errors.Is(err, ErrShorter) != test.goes || test.goes == strings.Contains(err.Error(), "--accept-stream-loss") {
					t.Errorf("it says %v", err)
				}
			})
		})
	}
}

// copyAll replaces the files of one directory by another's.
func copyAll(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func TestSourceSurvivesTheLossOfItsConsumer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		w.send("acme", "O1", 1)
		fetch(ctx, t, src, 1)
		if err := w.JS.DeleteConsumer(ctx, wire.AggregateEvents, wire.ConsumerName("saga", "", "")); err != nil {
			t.Fatal(err)
		}
		w.send("acme", "O1", 2)
		if ev := fetch(ctx, t, src, 1)[0]; ev.Seq != 2 {
			t.Errorf("got %d", ev.Seq)
		}
	})
}

func TestNoEventComesTwice(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Name: "s"})
		defer stop()
		for i := range 10 {
			w.send("acme", "O1", i)
		}
		fetch(ctx, t, src, 10)
		none(ctx, t, src, 5*lostAfter)
	})
}

// TestTheServerStoresNoConsumerState: the consumer is recreated behind the checkpoint.
func TestTheServerStoresNoConsumerState(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Name: "s"})
		defer stop()
		w.send("acme", "O1", 1)
		fetch(ctx, t, src, 1)
		time.Sleep(time.Second)
		err := filepath.WalkDir(w.Dir, func(path string, d os.DirEntry, err error) error {
			if strings.Contains(path, wire.ConsumerName("saga", "", "s")) && !d.IsDir() {
				t.Errorf("there is %s", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestALostLastDeliveryIsReadAgain: another client of the same consumer takes some messages. No
// later message may follow.
func TestALostLastDeliveryIsReadAgain(t *testing.T) {
	for name, more := range map[string]bool{"and more comes": true, "and nothing more comes": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				src, stop := w.open(ctx, nil, SourceOptions{Name: "s"})
				defer stop()
				w.send("acme", "O1", 1)
				fetch(ctx, t, src, 1)
				cons, err := w.JS.Consumer(ctx, wire.AggregateEvents, wire.ConsumerName("saga", "", "s"))
				if err != nil {
					t.Fatal(err)
				}
				stolen, err := cons.Fetch(1, jetstream.FetchMaxWait(time.Second))
				if err != nil {
					t.Fatal(err)
				}
				last := uint64(1)
				for len(stolen.Messages()) == 0 { // the two pulls take turns
					last = w.send("acme", "O1", int(last)+1)
					synctest.Wait()
				}
				if more {
					last = w.send("acme", "O1", int(last)+1)
				}
				for seq := uint64(2); seq <= last; {
					got, err := src.Fetch(ctx, 1024, 2*lostAfter+retryMost)
					if err != nil || len(got.Events) == 0 {
						t.Fatalf("message %d of %d does not come: %v", seq, last, err)
					}
					for _, ev := range got.Events {
						if ev.Seq != seq {
							t.Fatalf("message %d comes where %d is to come", ev.Seq, seq)
						}
						seq++
					}
				}
			})
		})
	}
}

// TestAConsumerThatDeliversNothingIsReplaced: it answers, and has not what the leader of the stream has. It was never
// replaced.
func TestAConsumerThatDeliversNothingIsReplaced(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Name: "s"})
		defer stop()
		w.send("acme", "O1", 1)
		fetch(ctx, t, src, 1)
		_, err := w.JS.PauseConsumer(ctx, wire.AggregateEvents, wire.ConsumerName("saga", "", "s"), time.Now().Add(time.Hour))
		testkit.Must(t, err)
		w.send("acme", "O1", 2)
		got, err := src.Fetch(ctx, 1, 2*lostAfter+retryMost)
		if err != nil || len(got.Events) != 1 || got.Events[0].Seq != 2 {
			t.Errorf("%v, %v", got.Events, err)
		}
	})
}

func TestSourceReadsOnlyItsTenants(t *testing.T) {
	for name, tenants := range map[string]wire.Tenants{"names": {"acme", "eu-1"}, "patterns": {"acme", "eu-*"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				src, stop := w.open(ctx, nil, SourceOptions{Name: "s", Tenants: tenants})
				defer stop()
				for i := range 30 {
					w.send([]string{"acme", "beta", "eu-1"}[i%3], "O1", i)
				}
				for _, ev := range fetch(ctx, t, src, 20) {
					if ev.Tenant == "beta" {
						t.Errorf("%s comes", ev.Tenant)
					}
				}
				none(ctx, t, src, time.Minute)
			})
		})
	}
}

func TestTenantsChangeWhileReading(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Tenants: wire.Tenants{"acme"}})
		defer stop()
		w.send("beta", "O1", 1)
		w.send("acme", "O1", 1)
		fetch(ctx, t, src, 1)
		src.SetTenants(wire.Tenants{"beta"})
		synctest.Wait()
		w.send("acme", "O1", 2)
		w.send("beta", "O1", 2)
		events := fetch(ctx, t, src, 1)
		if len(events) != 1 || events[0].ID != "beta-O1-2" {
			t.Errorf("got %+v", events)
		}
	})
}

func TestMalformedMessagesKeepTheirPlace(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		w.send("acme", "O1", 1)
		if _, err := w.JS.Publish(ctx, orders, []byte("{")); err != nil {
			t.Fatal(err)
		}
		w.send("acme", "O1", 2)
		events := fetch(ctx, t, src, 3)
		if events[1].Malformed != edda.DeadUndecodable || events[1].Seq != 2 || events[2].Seq != 3 {
			t.Errorf("got %+v", events)
		}
	})
}

func TestSourceStopsWithAFullBuffer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		for range bufferEvents + 10 {
			if err := w.NC.Publish(orders, []byte(`{"event_type":"X"}`)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := src.readers[0].buffer.len(); n != bufferEvents {
			t.Errorf("%d events wait", n)
		}
		stop()
	})
}

func TestFetchEndsWithItsContext(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, err := OpenSource(ctx, w.JS, nil, SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := src.Fetch(ctx, 1, time.Hour); err == nil {
			t.Error("it returned without an error")
		}
	})
}

func TestShares(t *testing.T) {
	tests := []struct{ lengths, want []int }{
		{[]int{5, 5, 5}, []int{3, 3, 3}},
		{[]int{100, 0, 0}, []int{9, 0, 0}},
		{[]int{100, 1, 100}, []int{4, 1, 4}},
		{[]int{1, 0, 2}, []int{1, 0, 2}},
		{[]int{0, 0, 0}, []int{0, 0, 0}},
	}
	for _, test := range tests {
		diff(t, shares(test.lengths, 9), test.want)
	}
	diff(t, shares([]int{5, 5, 5}, 2), []int{1, 1, 0})
}

func TestMergeKeepsEachStreamsOrder(t *testing.T) {
	at := func(stream string, seq uint64, minute int) edda.Event {
		return edda.Event{Stream: stream, Seq: seq, Time: noon.Add(time.Duration(minute) * time.Minute)}
	}
	got := merge([][]edda.Event{
		{at("A", 1, 1), at("A", 2, 5), at("A", 3, 2)}, // the clock went back
		{at("B", 1, 3), at("B", 2, 4)},
		nil,
	})
	want := []edda.Event{at("A", 1, 1), at("B", 1, 3), at("B", 2, 4), at("A", 2, 5), at("A", 3, 2)}
	diff(t, got, want)
}
