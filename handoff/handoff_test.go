package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/effects"
	"edda/engine"
	"edda/internal/testkit"
	"edda/stream/wire"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// refused is the id of work that the publisher refuses.
const refused = "refused"

var errRefused = errors.New("refused")

// publisher records the published work.
type publisher struct {
	mu   sync.Mutex // guards the fields below
	away error
	work []edda.Work
}

func (p *publisher) Deliver(_ context.Context, batch []edda.Work) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(batch))
	for i, w := range batch {
		switch errs[i] = p.away; {
		case p.away != nil:
		case w.ID == refused:
			errs[i] = errRefused
		default:
			p.work = append(p.work, w)
		}
	}
	return errs
}

// fail makes the publisher refuse everything with the error; nil ends that.
func (p *publisher) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = err
}

// published returns the ids of the published work without the facts.
func (p *publisher) published() (ids []string) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.work {
		if w.Kind != edda.WorkFact {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

func fact() edda.Work {
	return edda.Work{ID: "f1", Kind: edda.WorkFact, From: edda.Key{Tenant: "acme", Saga: "order", Correlation: "o1"}, Name: "done", Payload: json.RawMessage(`{}`), Time: noon}
}

// errTaken stands for work that Take accepted.
var errTaken = errors.New("taken")

// relay delivers work as the relay does: Take first, then Deliver.
func relay(ctx context.Context, h *Handoff, batch []edda.Work) []error {
	errs, rest, places := make([]error, len(batch)), []edda.Work(nil), []int(nil)
	for i := range batch {
		if h.Take(&batch[i]) {
			errs[i] = errTaken
			continue
		}
		rest, places = append(rest, batch[i]), append(places, i)
	}
	for i, err := range h.Deliver(ctx, rest) {
		errs[places[i]] = err
	}
	return errs
}

// TestApplyRefusesResultsUntilTheEngineHasCaughtUp: the worker publishes them until then.
func TestApplyRefusesResultsUntilTheEngineHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		h, d, caughtUp := New(wire.Codec{}, &publisher{}, nil, nil), &fakeSides{}, make(chan struct{})
		h.Connect(d, d, caughtUp)
		cmd, _ := wire.Codec{}.Offered(new(command("c1", "acme")))
		r := effects.Result{Tenant: cmd.Tenant, CommandID: cmd.ID, Effect: cmd.Effect, Outcome: edda.Succeeded, Metadata: cmd.Metadata, Time: noon}
		if err := h.Apply(ctx, r, edda.Claim{}); !errors.Is(err, errBehind) || len(d.results) != 0 {
			t.Errorf("before: %v, %d results", err, len(d.results))
		}
		close(caughtUp)
		if err := h.Apply(ctx, r, edda.Claim{}); err != nil || len(d.results) != 1 {
			t.Errorf("after: %v, %d results", err, len(d.results))
		}
	})
}

// fakeSides is the worker and the engine of a test.
type fakeSides struct {
	mu      sync.Mutex // guards the fields below
	serves  map[string]bool
	full    bool
	taken   []effects.Delivery
	results []engine.Handed
}

func (d *fakeSides) Serves(effect string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.serves[effect]
}

func (d *fakeSides) Offer(c effects.Delivery) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full || !d.serves[c.Command().Effect] {
		return false
	}
	d.taken = append(d.taken, c)
	return true
}

func (d *fakeSides) Result(_ context.Context, r engine.Handed) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.results = append(d.results, r)
	return nil
}

func (d *fakeSides) set(full bool, serves ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.serves = full, map[string]bool{}
	for _, name := range serves {
		d.serves[name] = true
	}
}

// take returns the commands offered since the last call.
func (d *fakeSides) take() []effects.Delivery {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.taken
	d.taken = nil
	return out
}

func command(id, tenant string) edda.Work {
	return edda.Work{ID: id, Kind: edda.WorkEffect, From: edda.Key{Tenant: tenant, Saga: "order", Correlation: id}, Name: "charge", Payload: json.RawMessage(`{"amount":25}`),
		Step: "charge", Attempt: 1, Time: noon, Correlation: "corr", Trace: "tr", Causation: "cause"}
}

func done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// withHandoff runs a test with a handoff whose worker serves charge, for tenants that begin with a.
func withHandoff(t *testing.T, f func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, w := t.Context(), &publisher{}
		h, d := New(wire.Codec{}, w, wire.Tenants{"a*"}, nil), &fakeSides{}
		d.set(false, "charge")
		h.Connect(d, d, done())
		testkit.Run(t, h.Run)
		f(ctx, w, h, d)
	})
}

func TestWorkThatTheWorkerDoesNotServeIsPublished(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		other, revoke := command("unserved", "acme"), command("r", "acme")
		other.Name = "refund"
		revoke.Kind, revoke.CommandID = edda.WorkRevoke, "c1"
		errs := relay(ctx, h, append([]edda.Work{fact()}, command("c1", "acme"), other, command("others", "beta"), revoke, command("c2", "acme")))
		if want := []error{nil, errTaken, nil, nil, nil, errTaken}; !slices.Equal(errs, want) {
			t.Fatalf("%v, want %v", errs, want)
		}
		var got []string
		for _, c := range d.take() {
			got = append(got, c.Command().ID)
		}
		if in := w.published(); !slices.Equal(got, []string{"c1", "c2"}) || !slices.Equal(in, []string{"unserved", "others", "r"}) {
			t.Errorf("offered %v, published %v", got, in)
		}
		h.SetTenants(wire.Tenants{"b*"})
		if errs := relay(ctx, h, []edda.Work{command("c3", "acme")}); errs[0] != nil || len(d.take()) != 0 {
			t.Errorf("a command of a removed tenant was offered: %v", errs)
		}
	})
}

func TestErrorsOfDeliverAreAtTheIndexOfTheirItem(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		bad := fact()
		bad.ID = refused
		errs := relay(ctx, h, []edda.Work{command("c1", "acme"), bad, command("c2", "acme"), fact()})
		if want := []error{errTaken, errRefused, errTaken, nil}; !slices.Equal(errs, want) {
			t.Fatalf("%v, want %v", errs, want)
		}
	})
}

func TestANakedCommandIsOfferedAgainAfterItsDelay(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		relay(ctx, h, []edda.Work{command("c1", "acme"), command("c2", "acme")})
		got := d.take()
		_ = got[0].Nak(ctx, 10*time.Second)
		_ = got[0].Nak(ctx, time.Second) // settled already
		_ = got[1].Nak(ctx, 5*time.Second)
		time.Sleep(5*time.Second - time.Millisecond)
		if n := len(d.take()); n != 0 {
			t.Fatalf("%d came too early", n)
		}
		time.Sleep(time.Millisecond)
		if got := d.take(); len(got) != 1 || got[0].Command().ID != "c2" {
			t.Fatalf("%v", got)
		}
		time.Sleep(5 * time.Second)
		if got := d.take(); len(got) != 1 || got[0].Command().ID != "c1" {
			t.Fatalf("%v", got)
		}
		if in := w.published(); len(in) != 0 {
			t.Errorf("published %v", in)
		}
	})
}

// TestAKnownCommandIsNotOfferedTwice: the relay offers commands without a result again, running and
// delayed ones alike.
func TestAKnownCommandIsNotOfferedTwice(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		c1, others := command("c1", "acme"), command("c1", "abc")
		for range 3 {
			relay(ctx, h, []edda.Work{c1, others})
		}
		got := d.take()
		if len(got) != 2 {
			t.Fatalf("%d were offered", len(got))
		}
		_ = got[0].Nak(ctx, time.Minute)
		relay(ctx, h, []edda.Work{c1})
		_ = got[1].Ack(ctx)
		relay(ctx, h, []edda.Work{others})
		if got := d.take(); len(got) != 1 || got[0].Command().Tenant != "abc" {
			t.Errorf("%v", got)
		}
		time.Sleep(time.Minute)
		if got := d.take(); len(got) != 1 || got[0].Command().Tenant != "acme" {
			t.Errorf("%v", got)
		}
	})
}

// TestACommandWaitsForAConsumerThatStarts: at a start no consumer runs yet.
func TestACommandWaitsForAConsumerThatStarts(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		d.set(true, "charge")
		relay(ctx, h, []edda.Work{command("c1", "acme")})
		time.Sleep(time.Second)
		if len(d.take()) != 0 || len(w.published()) != 0 {
			t.Fatal("it went somewhere")
		}
		d.set(false, "charge")
		time.Sleep(offerRetry)
		if got := d.take(); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// TestANakedCommandOfARemovedEffectIsPublished, also after NATS was unreachable.
func TestANakedCommandOfARemovedEffectIsPublished(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		relay(ctx, h, []edda.Work{command("c1", "acme")})
		got := d.take()
		d.set(false)
		w.fail(errors.New("away"))
		_ = got[0].Nak(ctx, 0)
		time.Sleep(time.Minute)
		w.fail(nil)
		time.Sleep(time.Minute)
		if in := w.published(); !slices.Equal(in, []string{"c1"}) {
			t.Errorf("published %v", in)
		}
		if len(h.queued) != 0 {
			t.Errorf("still counted: %+v", h.queued["charge"])
		}
	})
}

func TestCommandsBeyondTheBoundsArePublished(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		var all []edda.Work
		for i := range maxCommands + 1 {
			all = append(all, command(fmt.Sprint("c", i), "acme"))
		}
		relay(ctx, h, all)
		got := d.take()
		if in := w.published(); len(got) != maxCommands || !slices.Equal(in, []string{fmt.Sprint("c", maxCommands)}) {
			t.Fatalf("%d were offered, published %v", len(got), in)
		}
		_ = got[0].Nak(ctx, time.Hour) // it is delayed, and counts
		relay(ctx, h, []edda.Work{command("d1", "acme")})
		_ = got[1].Ack(ctx)
		_ = got[1].Ack(ctx)
		relay(ctx, h, []edda.Work{command("d2", "acme"), command("d3", "acme")})
		if now := d.take(); len(now) != 1 || now[0].Command().ID != "d2" {
			t.Errorf("offered %d", len(now))
		}
		big := command("b1", "acme")
		big.Name = "ship"
		d.set(false, "ship")
		big.Payload = json.RawMessage(`"` + strings.Repeat("x", 400<<10) + `"`)
		var large []edda.Work
		for i := range maxCommandBytes/(400<<10) + 2 {
			big.ID = fmt.Sprint("b", i)
			large = append(large, big)
		}
		relay(ctx, h, large)
		if n := len(d.take()); n != maxCommandBytes/(400<<10) {
			t.Errorf("%d large ones were offered", n)
		}
	})
}

func TestFlushPublishesDelayedCommands(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		relay(ctx, h, []edda.Work{command("c1", "acme"), command("c2", "acme")})
		got := d.take()
		_ = got[0].Nak(ctx, time.Hour)
		_ = got[1].Ack(ctx)
		if err := h.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		relay(ctx, h, []edda.Work{command("c3", "acme")})
		if in := w.published(); !slices.Equal(in, []string{"c1", "c3"}) || len(h.queued) != 0 {
			t.Errorf("published %v", in)
		}
	})
}

func TestApplyGivesTheEngineTheResultTheClaimAndTheEcho(t *testing.T) {
	withHandoff(t, func(ctx context.Context, w *publisher, h *Handoff, d *fakeSides) {
		relay(ctx, h, []edda.Work{command("c1", "acme")})
		cmd := d.take()[0].Command()
		r := effects.Result{Tenant: "acme", CommandID: "c1", Effect: "charge", Outcome: edda.Succeeded, Payload: json.RawMessage(`{}`), Metadata: cmd.Metadata, Time: noon}
		if err := h.Apply(ctx, r, edda.Claim{CommandID: "c1", Done: true}); err != nil {
			t.Fatal(err)
		}
		if len(d.results) != 1 || !d.results[0].Claim.Done || d.results[0].Event.ID != wire.ResultID("c1") || d.results[0].Echo.Kind != edda.WorkResult {
			t.Errorf("%+v", d.results)
		}
		r.Payload = json.RawMessage(`"` + strings.Repeat("x", wire.DefaultMaxPayload) + `"`)
		if err := h.Apply(ctx, r, edda.Claim{}); !errors.Is(err, edda.Permanent) || len(d.results) != 1 {
			t.Errorf("a result too large for a message: %v", err)
		}
	})
}
