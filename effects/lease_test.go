package effects

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/internal/testkit"
)

const testLease = 15 * time.Second

// shared is a ledger of several workers, in memory: an entry's lease runs out
// when nothing was written for as long.
type shared struct {
	mu      sync.Mutex // guards below
	entries map[string]Entry
	written map[string]time.Time
	deaf    bool // nothing can be written
	renewed int
	since   time.Time // what was before is forgotten
	mute    bool      // it cannot be asked since when it knows
}

var errDeaf = errors.New("no answer")

func newShared() *shared {
	return &shared{entries: map[string]Entry{}, written: map[string]time.Time{}}
}

// view is one worker's.
type view struct {
	*shared
	owner string
}

func (v view) Find(_ context.Context, tenant, id string) (Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.entries[tenant+"/"+id]
	e.Held = e.Found && !e.Claim.Done && e.Claim.Owner != v.owner && time.Since(v.written[tenant+"/"+id]) < testLease
	return e, nil
}

func (v view) Await(ctx context.Context, e Entry) (Entry, error) {
	for e.Held {
		_ = backoff.Wait(ctx, time.Second)
		if ctx.Err() != nil {
			return e, ctx.Err()
		}
		e, _ = v.Find(ctx, e.Claim.Tenant, e.Claim.CommandID)
	}
	return e, nil
}

func (v view) write(e Entry) (Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := e.Claim.Tenant + "/" + e.Claim.CommandID
	switch {
	case v.deaf:
		return e, errDeaf
	case v.entries[key].Revision != e.Revision:
		return e, ErrTaken
	}
	e.Found, e.Held = true, false
	e.Revision++
	v.entries[key], v.written[key] = e, time.Now()
	return e, nil
}

func (v view) Claim(_ context.Context, e Entry) (Entry, error) { return v.write(e) }
func (v view) Finish(_ context.Context, e Entry) error         { _, err := v.write(e); return err }
func (v view) Lease() time.Duration                            { return testLease }

func (v view) Since(context.Context) (time.Time, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mute {
		return time.Time{}, errDeaf
	}
	return v.since, nil
}

func (v view) Renew(_ context.Context, e Entry) (Entry, error) {
	v.mu.Lock()
	v.renewed++
	v.mu.Unlock()
	return v.write(e)
}

func (v view) Release(_ context.Context, e Entry) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := e.Claim.Tenant + "/" + e.Claim.CommandID
	e.Revision++
	v.entries[key], v.written[key] = e, time.Time{}
	return nil
}

func (s *shared) silence(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
}

// peer is a worker over a shared ledger whose messages are its own: what one
// command is delivered as to several.
func peer(t *testing.T, s *shared, owner, manifest string) *house {
	t.Helper()
	h := &house{wire: newWire(), bank: newBank(), dir: t.TempDir()}
	h.db = openStore(t, h.dir)
	o := h.options()
	o.Owner, o.Ledger, o.Log = owner, view{s, owner}, zap.NewNop()
	w, err := newWorker(h.db, o, compile(t, manifest))
	if err != nil {
		t.Fatal(err)
	}
	h.stop = testkit.Run(t, w.Run)
	return h
}

const long = "effect: charge\nhttp: {url: x}\ntimeout: 10m\nresult: {id: =body.id}\n"

func TestALongCallKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared()
		first, second := peer(t, s, "first", long), peer(t, s, "second", long)
		first.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(5 * time.Minute)
			return ok200(), nil
		})
		first.send(cmd("c1"))
		synctest.Wait()
		second.send(cmd("c1"))
		time.Sleep(6 * time.Minute)
		first.one(t)
		second.one(t) // the same result, published again
		if first.bank.count() != 1 || second.bank.count() != 0 {
			t.Errorf("%d and %d calls", first.bank.count(), second.bank.count())
		}
		if s.renewed < 59 || s.renewed > 61 {
			t.Errorf("renewed %d times in five minutes", s.renewed)
		}
		time.Sleep(time.Hour)
		if s.renewed > 61 {
			t.Error("renewed after its result")
		}
	})
}

// TestALeaseThatCannotBeRenewedEndsTheCalls before another worker may begin.
func TestALeaseThatCannotBeRenewedEndsTheCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared()
		first, second := peer(t, s, "first", long), peer(t, s, "second", long)
		var cut, began time.Time
		first.bank.answers(func(ctx context.Context, _ int, _ Call) (Response, error) {
			<-ctx.Done()
			cut = time.Now()
			return Response{}, ctx.Err()
		})
		second.bank.answers(func(context.Context, int, Call) (Response, error) { began = time.Now(); return ok200(), nil })
		first.send(cmd("c1"))
		synctest.Wait()
		second.send(cmd("c1"))
		s.silence(true)
		time.Sleep(testLease - time.Second)
		s.silence(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if cut.IsZero() || began.IsZero() || !cut.Before(began) {
			t.Errorf("cut at %s, called again at %s", cut, began)
		}
		if n := len(first.got()); n != 0 || first.acks() != 0 {
			t.Errorf("the first published %d results and acked %d times", n, first.acks())
		}
		second.one(t)
	})
}

// TestAFrozenWorkerPublishesNothing: it thaws with an answer in its hands while
// another has the claim.
func TestAFrozenWorkerPublishesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared()
		first, second := peer(t, s, "first", long), peer(t, s, "second", long)
		thaw := make(chan struct{})
		first.bank.answers(func(context.Context, int, Call) (Response, error) {
			<-thaw
			return Response{Status: 200, Body: map[string]any{"id": "stale"}}, nil
		})
		first.send(cmd("c1"))
		synctest.Wait()
		key := "acme/c1"
		s.mu.Lock()
		s.written[key] = time.Time{} // as if it had stood still for longer than its lease
		s.mu.Unlock()
		second.send(cmd("c1"))
		synctest.Wait()
		close(thaw)
		time.Sleep(time.Minute)
		synctest.Wait()
		if r := second.one(t); string(r.Payload) != `{"id":"P1"}` {
			t.Errorf("result %s", r.Payload)
		}
		if len(first.got()) != 0 || first.acks() != 0 {
			t.Errorf("the first published %v and acked %d times", first.got(), first.acks())
		}
		if got := s.entries[key].Claim; got.Owner != "second" || string(got.Result) != `{"id":"P1"}` {
			t.Errorf("ledger %+v", got)
		}
	})
}

// TestATakenClaimCutsItsCalls at the next renewal, not at the end of the lease.
func TestATakenClaimCutsItsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared()
		first := peer(t, s, "first", long)
		cut := make(chan time.Time, 1)
		first.bank.answers(func(ctx context.Context, _ int, _ Call) (Response, error) {
			<-ctx.Done()
			cut <- time.Now()
			return Response{}, ctx.Err()
		})
		first.send(cmd("c1"))
		synctest.Wait()
		began := time.Now()
		e, _ := view{s, "second"}.Find(t.Context(), "acme", "c1")
		if _, err := (view{s, "second"}).Claim(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if got := (<-cut).Sub(began); got != testLease/renewals {
			t.Errorf("cut after %s", got)
		}
	})
}

// racing is a view in which another claims right after this one has looked.
type racing struct {
	view
	once sync.Once
}

func (r *racing) Find(ctx context.Context, tenant, id string) (Entry, error) {
	e, err := r.view.Find(ctx, tenant, id)
	r.once.Do(func() {
		other := e
		other.Claim = edda.Claim{Tenant: tenant, CommandID: id, Owner: "other"}
		_, _ = r.write(other)
	})
	return e, err
}

func TestWhoClaimsSecondWaitsForTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t)
		o := h.options()
		s := newShared()
		o.Ledger = &racing{view: view{s, "mine"}}
		w, err := newWorker(h.db, o, compile(t, charge))
		if err != nil {
			t.Fatal(err)
		}
		if got := handle(t, w, new(cmd("c1"))); got != nakAfter(0) || h.bank.count() != 0 {
			t.Errorf("disposition %+v after %d calls", got, h.bank.count())
		}
		if got := handle(t, w, new(cmd("c1"))); got != ack() || h.bank.count() != 1 {
			t.Errorf("once the lease is over: disposition %+v after %d calls", got, h.bank.count())
		}
	})
}

// TestAStopReleasesWhatItCutsOff, so that another need not wait for the lease.
func TestAStopReleasesWhatItCutsOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared()
		first, second := peer(t, s, "first", long), peer(t, s, "second", long)
		first.bank.answers(hang)
		first.send(cmd("c1"))
		synctest.Wait()
		first.stop()
		second.send(cmd("c1"))
		time.Sleep(2 * time.Second)
		if r := second.one(t); r.Outcome != edda.Succeeded {
			t.Errorf("%+v", r)
		}
	})
}

// TestARevokeOfWhatAnotherWorkerCalls is done with, and its result waited for.
func TestARevokeOfWhatAnotherWorkerCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared()
		first, second := peer(t, s, "first", long), peer(t, s, "second", long)
		first.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(time.Minute)
			return ok200(), nil
		})
		first.send(cmd("c1"))
		synctest.Wait()
		second.send(cmd("c1"), revoke("c1"))
		time.Sleep(30 * time.Second)
		if second.acks() != 1 || len(second.got()) != 0 {
			t.Errorf("%d acks and %d results while the other calls", second.acks(), len(second.got()))
		}
		time.Sleep(time.Minute)
		if r := second.one(t); r.Outcome != edda.Succeeded || first.bank.count() != 1 || second.bank.count() != 0 {
			t.Errorf("%s after %d and %d calls", r.Outcome, first.bank.count(), second.bank.count())
		}
	})
}
