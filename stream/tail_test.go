package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"edda"
	"edda/stream/wire"
)

// factsOf returns facts of one instance.
func factsOf(correlation string, from, to int) (out []edda.Work) {
	for i := from; i <= to; i++ {
		out = append(out, edda.Work{Kind: edda.WorkFact, ID: fmt.Sprint(correlation, "-", i), Name: "Told", Time: noon,
			From: edda.Key{Tenant: "acme", Saga: "order", Correlation: correlation}})
	}
	return out
}

func TestLookFindsLostMessages(t *testing.T) {
	for name, test := range map[string]struct {
		change func(ctx context.Context, w *world)
		lost   bool
		quiet  bool // a check on the same connection finds nothing, because a running server loses nothing
	}{
		"nothing": {func(context.Context, *world) {}, false, false},
		"others published since": {func(ctx context.Context, w *world) {
			deliver(ctx, w, NewPublisher(w.JS, wire.Codec{}), factsOf("O2", 1, 3))
		}, false, false},
		"all has expired": {func(ctx context.Context, w *world) {
			if err := w.Stream(ctx, wire.WorkflowEvents).Purge(ctx); err != nil {
				w.T.Fatal(err)
			}
		}, false, false},
		"somebody deleted the last": {func(ctx context.Context, w *world) {
			if err := w.Stream(ctx, wire.WorkflowEvents).DeleteMsg(ctx, 5); err != nil {
				w.T.Fatal(err)
			}
		}, true, true},
		"the stream ends before": {func(ctx context.Context, w *world) {
			w.Recreate(ctx, wire.WorkflowEvents, nil)
			deliver(ctx, w, NewPublisher(w.JS, wire.Codec{}), factsOf("O1", 1, 3))
		}, true, false},
		"others are there": {func(ctx context.Context, w *world) {
			w.Recreate(ctx, wire.WorkflowEvents, nil)
			deliver(ctx, w, NewPublisher(w.JS, wire.Codec{}), factsOf("O2", 1, 9))
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				tail, p := NewTail(w.JS, wire.Codec{}, nil), NewPublisher(w.JS, wire.Codec{})
				p.Follow(tail)
				deliver(ctx, w, p, factsOf("O1", 1, 5))
				if err := tail.Look(ctx); err != nil || tail.Looked().IsZero() {
					t.Fatal(err)
				}
				marks := tail.Marks()
				if len(marks) != 1 || marks[0].Stream != wire.WorkflowEvents || marks[0].Seq != 5 || marks[0].ID != "O1-5" {
					t.Fatalf("marks %+v", marks)
				}
				test.change(ctx, w)
				if err := tail.Pass(ctx); err != nil {
					t.Errorf("on the connection that was looked at: %v", err)
				}
				if err := tail.Look(ctx); errors.Is(err, ErrShorter) != (test.lost && !test.quiet) || !test.lost && err != nil {
					t.Errorf("the same process: %v", err)
				}
				for what, look := range map[string]func(context.Context) error{
					"the next one": NewTail(w.JS, wire.Codec{}, marks).Look, "the next one, before it publishes": NewTail(w.JS, wire.Codec{}, marks).Pass,
				} {
					if err := look(ctx); errors.Is(err, ErrShorter) != test.lost || !test.lost && err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
				if err := tail.Pass(ctx); errors.Is(err, ErrShorter) != (test.lost && !test.quiet) {
					t.Errorf("then: %v", err)
				}
			})
		})
	}
}

func deliver(ctx context.Context, w *world, p *Publisher, works []edda.Work) {
	w.T.Helper()
	for _, one := range works {
		if errs := p.Deliver(ctx, []edda.Work{one}); errs != nil {
			w.T.Fatal(errs)
		}
	}
}

// TestASequenceThatDoesNotGrowIsALoss: a server in a cluster may lose the end of a stream without a
// disconnect.
func TestASequenceThatDoesNotGrowIsALoss(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		tail, p := NewTail(w.JS, wire.Codec{}, nil), NewPublisher(w.JS, wire.Codec{})
		p.Follow(tail)
		deliver(ctx, w, p, factsOf("O1", 1, 5))
		if err := tail.Look(ctx); err != nil {
			t.Fatal(err)
		}
		w.Recreate(ctx, wire.WorkflowEvents, nil)
		deliver(ctx, w, p, factsOf("O2", 1, 1))
		if err := tail.Pass(ctx); !errors.Is(err, ErrShorter) {
			t.Errorf("it passes: %v", err)
		}
		if m := tail.Marks(); m[0].Seq != 5 || !tail.LostSince().Equal(m[0].Time) {
			t.Errorf("marks %+v", m)
		}
	})
}

func TestPassChecksTheServerAfterAReconnect(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		tail, p := NewTail(w.JS, wire.Codec{}, nil), NewPublisher(w.JS, wire.Codec{})
		p.Follow(tail)
		deliver(ctx, w, p, factsOf("O1", 1, 9))
		if err := tail.Look(ctx); err != nil {
			t.Fatal(err)
		}
		// A missing message within the stream counts only after a reconnect.
		if err := w.Stream(ctx, wire.WorkflowEvents).DeleteMsg(ctx, 4); err != nil {
			t.Fatal(err)
		}
		if err := tail.Look(ctx); err != nil {
			t.Errorf("somebody deleted a message: %v", err)
		}
		tail.mu.Lock()
		tail.holes, tail.connection = map[string]int{}, 99
		tail.mu.Unlock()
		if err := tail.Pass(ctx); !errors.Is(err, ErrShorter) {
			t.Errorf("it passes: %v", err)
		}
	})
}

func TestLostMessagesAreRepublishedInOrderAndOnce(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		all := append(append(factsOf("O1", 1, 6), factsOf("O2", 1, 3)...), edda.Work{
			Kind: edda.WorkCommand, ID: "c1", Name: "Stock.Count", To: "S1", From: edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}, Time: noon,
		}, edda.Work{Kind: edda.WorkCommand, ID: "c2", Name: "nameless", From: edda.Key{Tenant: "acme", Saga: "order", Correlation: "O3"}, Time: noon})
		deliver(ctx, w, p, slices.Concat(all[:3], all[6:7]))
		for round, want := range []int{len(all) - 4, 1} { // the rejected one is rejected again each time
			r, err := NewRepublisher(ctx, p, time.Now().Add(-time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range all {
				if _, err := r.Add(ctx, one); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if r.Count() != want {
				t.Errorf("round %d: %d were published, want %d", round, r.Count(), want)
			}
		}
		if n := w.Stream(ctx, wire.WorkflowCommands).CachedInfo().State.Msgs; n != 1 {
			t.Errorf("%d commands", n)
		}
		var ids []string
		for _, a := range w.arrivals(ctx, wire.WorkflowEvents) {
			ids = append(ids, a.ID)
		}
		want := []string{"O1-1", "O1-2", "O1-3", "O2-1", "O1-4", "O1-5", "O1-6", "O2-2", "O2-3", "c2.result"}
		if !slices.Equal(ids, want) {
			t.Errorf("the stream has %v, want %v", ids, want)
		}
	})
}

func TestExpiredMessagesAreNotRepublished(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		r, err := NewRepublisher(ctx, NewPublisher(w.JS, wire.Codec{}), time.Now().Add(-30*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(r.Since()); age > defaultAge {
			t.Errorf("what is %s old would be", age)
		}
	})
}

// everyKind returns work of each kind that goes to the streams.
func everyKind(tenant string) []edda.Work {
	from := edda.Key{Tenant: tenant, Saga: "order", Correlation: "O 1%"}
	var out []edda.Work
	for _, kind := range []edda.WorkKind{edda.WorkEffect, edda.WorkRevoke, edda.WorkFact, edda.WorkStart, edda.WorkCancel, edda.WorkEnd, edda.WorkResult, edda.WorkCommand} {
		out = append(out, edda.Work{Kind: kind, ID: string(kind) + " %1 é ", CommandID: "c1", Name: "Stock.Count", To: "S1", Event: "Begin", Outcome: edda.Failed,
			From: from, Target: edda.Key{Tenant: tenant, Saga: "other", Correlation: "X"}, Time: noon, Payload: []byte(`{}`)})
	}
	return out
}

// TestTheMarkOfEveryKindOfWorkIsFound: with tenants and without.
func TestTheMarkOfEveryKindOfWorkIsFound(t *testing.T) {
	for _, c := range []wire.Codec{{}, {Grammar: wire.Grammar{NoTenancy: true}}} {
		bubble(t, func(ctx context.Context, w *world) {
			tenant := "ac me"
			if c.NoTenancy {
				tenant = ""
				for _, name := range []string{wire.AggregateEvents, wire.WorkflowCommands, wire.WorkflowEvents} {
					if err := w.JS.DeleteStream(ctx, name); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := EnsureStreams(ctx, w.JS, StreamOptions{Grammar: c.Grammar}); err != nil {
					t.Fatal(err)
				}
			}
			p := NewPublisher(w.JS, c)
			for _, one := range everyKind(tenant) {
				tail := NewTail(w.JS, c, nil)
				p.Follow(tail)
				deliver(ctx, w, p, []edda.Work{one})
				if len(tail.Marks()) != 1 {
					t.Fatalf("%s: marks %+v", one.Kind, tail.Marks())
				}
				if err := tail.Look(ctx); err != nil {
					t.Errorf("%s: %v", one.Kind, err)
				}
				r, err := NewRepublisher(ctx, p, time.Now().Add(-time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				if missing, err := r.Add(ctx, one); err != nil || missing {
					t.Errorf("%s is not found: %v", one.Kind, err)
				}
			}
		})
	}
}

// TestNothingIsPublishedBetweenAReconnectAndTheCheck: the client buffers messages while it is
// disconnected and would send them before the check.
func TestNothingIsPublishedBetweenAReconnectAndTheCheck(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		tail, p := NewTail(w.JS, wire.Codec{}, nil), NewPublisher(w.JS, wire.Codec{})
		p.Follow(tail)
		deliver(ctx, w, p, factsOf("O1", 1, 5))
		if err := tail.Look(ctx); err != nil {
			t.Fatal(err)
		}
		w.Restart(func() {
			for w.NC.IsConnected() {
				time.Sleep(time.Millisecond)
			}
			if err := tail.Pass(ctx); err != nil {
				return
			}
			if errs := p.Deliver(ctx, factsOf("O1", 6, 6)); !errors.Is(firstOf(errs), edda.Temporary) {
				t.Errorf("without a server: %v", errs)
			}
		})
		if errs := p.Deliver(ctx, factsOf("O1", 7, 7)); !errors.Is(firstOf(errs), edda.Temporary) {
			t.Errorf("before anybody looked: %v", errs)
		}
		if last := w.Stream(ctx, wire.WorkflowEvents).CachedInfo().State.LastSeq; last != 5 {
			t.Errorf("the stream ends at %d, want 5", last)
		}
		if err := tail.Pass(ctx); err != nil {
			t.Fatal(err)
		}
		deliver(ctx, w, p, factsOf("O1", 6, 6))
	})
}

// TestADuplicateCanBeTheMark: a process that was killed may have published it.
func TestADuplicateCanBeTheMark(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		deliver(ctx, w, NewPublisher(w.JS, wire.Codec{}), factsOf("O1", 1, 5))
		tail, p := NewTail(w.JS, wire.Codec{}, nil), NewPublisher(w.JS, wire.Codec{})
		p.Follow(tail)
		deliver(ctx, w, p, append(factsOf("O1", 5, 5), factsOf("O1", 3, 3)...))
		if m := tail.Marks(); len(m) != 1 || m[0].Seq != 5 || m[0].ID != "O1-5" {
			t.Errorf("marks %+v", m)
		}
		if err := tail.Look(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestAHoleIsALossOnce: the process that continues, and those after it, know the hole.
func TestAHoleIsALossOnce(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		first, p := NewTail(w.JS, wire.Codec{}, nil), NewPublisher(w.JS, wire.Codec{})
		p.Follow(first)
		commands := []edda.Work{{Kind: edda.WorkCommand, ID: "c1", Name: "Stock.Count", To: "S1", From: edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}, Time: noon}}
		deliver(ctx, w, p, append(factsOf("O1", 1, 5), commands...))
		if err := w.Stream(ctx, wire.WorkflowEvents).DeleteMsg(ctx, 3); err != nil {
			t.Fatal(err)
		}
		tail := NewTail(w.JS, wire.Codec{}, first.Marks())
		if err := tail.Look(ctx); !errors.Is(err, ErrShorter) {
			t.Fatalf("nobody notices: %v", err)
		}
		tail = tail.Again()
		p.Follow(tail)
		if err := tail.Look(ctx); err != nil {
			t.Errorf("the same process: %v", err)
		}
		deliver(ctx, w, p, factsOf("O1", 3, 3))
		for what, one := range map[string]*Tail{"the same process": tail, "the next": NewTail(w.JS, wire.Codec{}, tail.Marks())} {
			if err := one.Look(ctx); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if n := len(one.Marks()); n != 2 {
				t.Errorf("%s has %d marks, want those of both streams", what, n)
			}
		}
	})
}

func TestARepublishedMessageWhoseMsgIDIsTakenIsStored(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		one := factsOf("O1", 1, 1)
		m, err := wire.Codec{}.Work(one[0])
		if err != nil {
			t.Fatal(err)
		}
		m.Subject += "x"
		if _, err := w.JS.PublishMsg(ctx, m); err != nil {
			t.Fatal(err)
		}
		p := NewPublisher(w.JS, wire.Codec{})
		for round, want := range []int{1, 0} {
			r, err := NewRepublisher(ctx, p, time.Now().Add(-time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Add(ctx, one[0])
			if err := errors.Join(err, r.Flush(ctx)); err != nil || r.Count() != want {
				t.Errorf("round %d: %d were published, want %d: %v", round, r.Count(), want, err)
			}
		}
	})
}
