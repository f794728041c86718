package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/stream/wire"
)

// charge publishes effect commands.
func (w *world) charge(tenant string, ids ...string) {
	w.T.Helper()
	var batch []edda.Work
	for _, id := range ids {
		batch = append(batch, edda.Work{ID: id, Kind: edda.WorkEffect, Name: "charge", From: edda.Key{Tenant: tenant, Saga: "order", Correlation: id}})
	}
	if errs := NewPublisher(w.JS, w.codec).Deliver(w.T.Context(), batch); errs != nil {
		w.T.Fatal(errors.Join(errs...))
	}
}

// take fetches commands and compares their ids.
func take(ctx context.Context, t *testing.T, c *Commands, wait time.Duration, want ...string) []effects.Delivery {
	t.Helper()
	got, err := c.Fetch(ctx, "charge", 10, wait)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range got {
		ids = append(ids, d.Command().ID)
	}
	if fmt.Sprint(ids) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", ids, want)
	}
	return got
}

func TestCommandsComeInOrderAndOnce(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.charge("acme", "c1", "c2")
		c := NewCommands(w.JS, CommandsOptions{})
		for _, d := range take(ctx, t, c, time.Minute, "c1", "c2") {
			for range 2 {
				if err := d.Ack(ctx); err != nil {
					t.Error(err)
				}
			}
		}
		take(ctx, t, c, 10*time.Minute)
		sent := make(chan struct{})
		time.AfterFunc(time.Second, func() {
			defer close(sent)
			w.charge("acme", "c3")
		})
		take(ctx, t, c, time.Minute, "c3")
		<-sent // the command may come before its ack does
	})
}

func TestFetchOfCommandsRespectsTheLimit(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.charge("acme", "c1", "c2", "c3")
		c := NewCommands(w.JS, CommandsOptions{})
		for _, want := range []int{2, 1, 0} {
			got, err := c.Fetch(ctx, "charge", 2, time.Second)
			if err != nil || len(got) != want {
				t.Errorf("got %d, %v", len(got), err)
			}
		}
	})
}

func TestACommandWithoutHeartbeatsIsRedelivered(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.charge("acme", "c1", "c2")
		c := NewCommands(w.JS, CommandsOptions{})
		got := take(ctx, t, c, time.Minute, "c1", "c2")
		for range 10 {
			time.Sleep(effects.Heartbeat)
			if err := got[0].InProgress(ctx); err != nil {
				t.Fatal(err)
			}
		}
		take(ctx, t, c, time.Second, "c2")
	})
}

func TestNakDelaysTheRedelivery(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.charge("acme", "c1")
		c := NewCommands(w.JS, CommandsOptions{})
		if err := take(ctx, t, c, time.Minute, "c1")[0].Nak(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		take(ctx, t, c, 59*time.Minute)
		take(ctx, t, c, 2*time.Minute, "c1")
	})
}

func TestWorkersShareAConsumer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, js := w.Connect()
		defer js.Conn().Close()
		a := NewCommands(w.JS, CommandsOptions{Tenants: wire.Tenants{"acme", "beta"}})
		b := NewCommands(js, CommandsOptions{Tenants: wire.Tenants{"beta", "acme"}})
		w.charge("acme", "c1")
		take(ctx, t, a, time.Minute, "c1")
		take(ctx, t, b, time.Second)
	})
}

func TestCommandsOfOtherTenantsAreNotFetched(t *testing.T) {
	for name, tenants := range map[string]wire.Tenants{"names": {"acme"}, "patterns": {"ac*"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				w.charge("acme", "c1")
				w.charge("beta", "c2")
				w.charge("acme", "c3")
				take(ctx, t, NewCommands(w.JS, CommandsOptions{Tenants: tenants}), time.Minute, "c1", "c3")
				take(ctx, t, NewCommands(w.JS, CommandsOptions{Tenants: wire.Tenants{"beta"}}), time.Minute, "c2")
			})
		})
	}
}

// TestEachShardGetsItsCommands: also those without a key, and those that cannot be read, come once.
func TestEachShardGetsItsCommands(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		const n, of = 20, 4
		for i := range n {
			w.charge("acme", fmt.Sprint("c", i))
		}
		for i, body := range []string{`{"command_id":"f0","effect_name":"charge","payload":{},"metadata":{}}`, `{`} {
			if _, err := w.JS.Publish(ctx, fmt.Sprintf("tenant.acme.effect.charge.f%d", i), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]int{}
		for i := range of {
			shard := edda.Shard{Index: i, Of: of}
			c := NewCommands(w.JS, CommandsOptions{Tenants: wire.Tenants{"acme"}, Shard: shard})
			for ds := []effects.Delivery{nil}; len(ds) > 0; {
				var err error
				if ds, err = c.Fetch(ctx, "charge", 2*n, time.Second); err != nil {
					t.Fatal(err)
				}
				for _, d := range ds {
					id := d.Command().ID
					got[id]++
					if k := (edda.Key{Tenant: "acme", Saga: "order", Correlation: id}); id[0] == 'c' && !shard.Has(k) {
						t.Errorf("shard %d got command %s", i, id)
					}
				}
			}
		}
		if len(got) != n+2 {
			t.Errorf("%d commands came, want %d", len(got), n+2)
		}
		for id, times := range got {
			if times != 1 {
				t.Errorf("command %s came %d times", id, times)
			}
		}
	})
}

func TestMalformedCommandsAreDelivered(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if _, err := w.JS.Publish(ctx, "tenant.acme.effect.charge.c1", []byte("{")); err != nil {
			t.Fatal(err)
		}
		d := take(ctx, t, NewCommands(w.JS, CommandsOptions{}), time.Minute, "c1")[0]
		if d.Command().Malformed == "" {
			t.Errorf("got %+v", d.Command())
		}
	})
}

func TestCommandsSurviveTheServerAndTheirConsumer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		c := NewCommands(w.JS, CommandsOptions{})
		w.charge("acme", "c1")
		if err := take(ctx, t, c, time.Minute, "c1")[0].Ack(ctx); err != nil {
			t.Fatal(err)
		}
		w.Restart(func() {
			if got, _ := c.Fetch(ctx, "charge", 1, time.Second); len(got) > 0 {
				t.Error("commands come without a server")
			}
		})
		w.charge("acme", "c2")
		take(ctx, t, c, time.Minute, "c2")
		if err := w.JS.DeleteConsumer(ctx, wire.WorkflowCommands, c.config("charge").Durable); err != nil {
			t.Fatal(err)
		}
		w.charge("acme", "c3")
		for range 3 { // the first fetch may fail because the consumer is missing
			if got, err := c.Fetch(ctx, "charge", 10, time.Minute); err == nil {
				if len(got) != 3 || got[2].Command().ID != "c3" {
					t.Errorf("got %d commands", len(got))
				}
				return
			}
		}
		t.Error("the consumer was not made again")
	})
}

func TestFetchOfCommandsEndsWithItsContext(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		c := NewCommands(w.JS, CommandsOptions{})
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := c.Fetch(ctx, "charge", 1, time.Hour); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestTheSoleWorkerGetsUnsettledCommandsAtOnce: after a kill they came only after half a minute.
func TestTheSoleWorkerGetsUnsettledCommandsAtOnce(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.charge("acme", "c1", "c2", "c3")
		first := take(ctx, t, NewCommands(w.JS, CommandsOptions{}), time.Second, "c1", "c2", "c3")
		if err := first[0].Ack(ctx); err != nil {
			t.Fatal(err)
		}
		take(ctx, t, NewCommands(w.JS, CommandsOptions{}), time.Second) // another worker may run them
		sole := NewCommands(w.JS, CommandsOptions{Sole: true})
		take(ctx, t, sole, time.Second, "c2", "c3")
		sole.forget("charge")
		take(ctx, t, sole, time.Second) // not again at each lookup of the consumer
	})
}
