package effects

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

// gatepost is a fence that a test shuts.
type gatepost struct{ shut atomic.Bool }

func (g *gatepost) pass(context.Context) error {
	if g.shut.Load() {
		return edda.Classify(edda.Temporary, "shut")
	}
	return nil
}

const asked = once + "check: {http: {url: \"https://pay/charges/of\"}, ok: status == 200, again: status == 404}\n"

// TestNothingIsCalledBehindAShutFence: neither a first call, nor another one, nor a check.
func TestNothingIsCalledBehindAShutFence(t *testing.T) {
	tests := map[string]struct {
		manifest string
		answer   func(context.Context, int, Call) (Response, error)
		before   int // calls before the fence shuts
		after    int // calls that count, once it is open: a check does not
	}{
		"the first call":    {charge, always(200), 0, 1},
		"another call":      {charge, illAtFirst(1, 503), 1, 2},
		"of at most once":   {once, always(200), 0, 1},
		"a check behind it": {asked, illAtFirst(1, 504), 1, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := &gatepost{}
				h := &house{wire: newWire(), bank: newBank(), dir: t.TempDir(), tune: func(o *Options) { o.Fence = g.pass }}
				h.db = openStore(t, h.dir)
				h.bank.answers(func(ctx context.Context, n int, c Call) (Response, error) {
					g.shut.Store(n == test.before)
					return test.answer(ctx, n, c)
				})
				g.shut.Store(test.before == 0)
				h.restart(t, nil, test.manifest)
				h.send(cmd("c1"))
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := h.bank.count(); n != test.before {
					t.Fatalf("%d calls behind a shut fence", n-test.before)
				}
				if n := len(h.got()); n != 0 {
					t.Fatalf("%d results", n)
				}
				g.shut.Store(false)
				time.Sleep(time.Minute)
				wantResult(t, h.one(t), edda.Succeeded, "", test.after)
			})
		})
	}
}

// illAtFirst answers the first n calls with a status, and the others as asked.
func illAtFirst(n, code int) func(context.Context, int, Call) (Response, error) {
	return func(_ context.Context, i int, _ Call) (Response, error) {
		if i <= n {
			return status(code), nil
		}
		return ok200(), nil
	}
}

// TestWhatTheFenceKeptBackIsNotTakenForCalled: the worker stops before the fence opens,
// and the next run knows that an at_most_once command was never called.
func TestWhatTheFenceKeptBackIsNotTakenForCalled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &gatepost{}
		h := &house{wire: newWire(), bank: newBank(), dir: t.TempDir(), tune: func(o *Options) { o.Fence = g.pass }}
		h.db = openStore(t, h.dir)
		g.shut.Store(true)
		h.restart(t, nil, once)
		h.send(cmd("c1"))
		time.Sleep(time.Minute)
		began := time.Now()
		h.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it stopped after %v", took)
		}
		if h.bank.count() != 0 {
			t.Fatalf("%d calls", h.bank.count())
		}
		g.shut.Store(false)
		h.restart(t, nil, once)
		synctest.Wait()
		wantResult(t, h.one(t), edda.Succeeded, "", 1)
	})
}
