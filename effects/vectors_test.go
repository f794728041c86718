package effects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
)

// The promises of the policy, each with the numbers that a user reads about.

const plain = "effect: charge\nhttp: {url: x}\n"

func tenants(tenant string, n int) (out []Command) {
	for i := range n {
		c := cmd(fmt.Sprint(tenant, i))
		c.Tenant = tenant
		out = append(out, c)
	}
	return out
}

// starts are when the calls of a tenant began, in tenths of a second.
func (b *bank) starts(since time.Time, tenant string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for i, c := range b.calls {
		if c.Tenant == tenant {
			out = append(out, fmt.Sprintf("%.1f", b.at[i].Sub(since).Seconds()))
		}
	}
	return strings.Join(out, " ")
}

func TestRateIsKeptForEachTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain+"limit: {key: =tenant, rate: 2/s, burst: 2}\n")
		since := time.Now()
		h.send(tenants("acme", 5)...)
		time.Sleep(100 * time.Millisecond)
		h.send(tenants("globex", 1)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if acme, globex := h.bank.starts(since, "acme"), h.bank.starts(since, "globex"); acme != "0.0 0.0 0.5 1.0 1.5" || globex != "0.1" {
			t.Errorf("acme began at %s, globex at %s", acme, globex)
		}
	})
}

// TestAFloodDoesNotStarveAnotherTenant, however far behind it in the stream.
func TestAFloodDoesNotStarveAnotherTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain+"limit: {key: =tenant, rate: 10/s, burst: 1}\n")
		since := time.Now()
		h.send(append(tenants("acme", 1300), tenants("globex", 1)...)...)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := h.bank.starts(since, "globex"); got != "0.0" && got != "0.1" {
			t.Errorf("globex began at %q behind a flood", got)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(h.got()); n != 1301 || h.bank.count() != 1301 {
			t.Errorf("%d results of %d calls, want all 1301", n, h.bank.count())
		}
		if took := h.bank.at[1300].Sub(since); took > 145*time.Second {
			t.Errorf("the flood took %s, its rate allows 130 s", took)
		}
	})
}

// TestADeadUpstreamOfOneTenantKeepsOutNobody: commands that rest between their
// calls take no room from others.
func TestADeadUpstreamOfOneTenantKeepsOutNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain+"retry: {max: 100, backoff: 1m..1h}\n")
		since := time.Now()
		h.bank.answers(func(_ context.Context, _ int, c Call) (Response, error) {
			if c.Tenant == "acme" {
				return status(503), nil
			}
			return ok200(), nil
		})
		h.send(append(tenants("acme", 200), tenants("globex", 1)...)...)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.bank.starts(since, "globex"); got != "0.0" {
			t.Errorf("globex began at %q behind what rests", got)
		}
		in := h.w.limiter("charge")
		if n := in.resting.Load(); n != 200 {
			t.Errorf("%d rest", n)
		}
		h.stop()
		if n := in.resting.Load(); n != 0 {
			t.Errorf("%d rest after the stop", n)
		}
	})
}

func TestRetriesAreCountedExactly(t *testing.T) {
	for _, tt := range []struct {
		healthyAt int
		kind      edda.Outcome
		code      string
	}{{10, edda.Succeeded, ""}, {11, edda.TimedOut, "oops"}} {
		bubble(t, func(t *testing.T) {
			h := build(t, plain+"retry: {max: 10, backoff: 10ms..1s, jitter: true}\n")
			h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
				if n < tt.healthyAt {
					return status(503), nil
				}
				return ok200(), nil
			})
			h.send(cmd("c1"))
			time.Sleep(time.Hour)
			wantResult(t, h.one(t), tt.kind, tt.code, 10)
			if h.bank.count() != 10 {
				t.Errorf("%d calls", h.bank.count())
			}
		})
	}
}

func TestDeliveredThreeTimesIsOneResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain)
		h.bank.answers(func(context.Context, int, Call) (Response, error) { time.Sleep(time.Second); return ok200(), nil })
		h.send(cmd("c1"), cmd("c1"))
		time.Sleep(10 * time.Second)
		h.send(cmd("c1"))
		synctest.Wait()
		got := h.got()
		if h.bank.count() != 1 || h.bank.all()[0].Key != "c1" || h.acks() != 3 {
			t.Errorf("%d calls, %d acks", h.bank.count(), h.acks())
		}
		for _, r := range got { // a saga knows them as one: they are the same in all
			if string(r.Payload) != string(got[0].Payload) || !r.Time.Equal(got[0].Time) {
				t.Errorf("results %+v", got)
			}
		}
	})
}

func TestABusinessFailureIsOneCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(always(402))
		h.send(cmd("c1"))
		time.Sleep(time.Hour)
		wantResult(t, h.one(t), edda.Failed, "oops", 1)
	})
}

func TestConsumedAfterNotAfterIsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		late := cmd("c1")
		late.NotAfter = time.Now().Add(-time.Nanosecond)
		h.send(late)
		synctest.Wait()
		wantResult(t, h.one(t), edda.TimedOut, "expired", 0)
	})
}

// TestBreakersAreShown in the gauge and, when one opens and closes, in the log.
func TestBreakersAreShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t)
		h.stop()
		core, logs := observer.New(zap.InfoLevel)
		o, reg := h.options(), prometheus.NewRegistry()
		o.Log, o.Metrics = zap.New(core), reg
		w, err := newWorker(h.db, o, compile(t, breaking))
		if err != nil {
			t.Fatal(err)
		}
		state := func(want int) {
			t.Helper()
			text := fmt.Sprintf("# HELP edda_effect_breaker_state State of a breaker: 0 closed, 1 half-open, 2 open.\n# TYPE edda_effect_breaker_state gauge\nedda_effect_breaker_state{breaker=\"pay\"} %d\n", want)
			if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "edda_effect_breaker_state"); err != nil {
				t.Error(err)
			}
		}
		w.limiter("charge")
		state(0)
		h.bank.answers(always(503))
		for _, c := range tenants("acme", 5) {
			handle(t, w, &c)
		}
		state(2)
		time.Sleep(30 * time.Second)
		h.bank.answers(func(context.Context, int, Call) (Response, error) { state(1); return ok200(), nil })
		handle(t, w, new(cmd("probe")))
		state(0)
		opened, closed := logs.FilterMessageSnippet("a breaker opened").Len(), logs.FilterMessageSnippet("a breaker closed").Len()
		if opened != 1 || closed != 1 {
			t.Errorf("the log says opened %d times, closed %d times", opened, closed)
		}
	})
}

const breaking = plain + "retry: {max: 1}\nbreaker: {name: pay, failures: 5, open: 30s}\n"

// TestFiveFailuresOpenTheBreaker: then nobody calls for its time, one probe
// goes, and when that is well all others do; none of them has used a retry.
func TestFiveFailuresOpenTheBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, breaking)
		since := time.Now()
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			time.Sleep(100 * time.Millisecond)
			if n <= 6 { // five, and the first probe
				return status(503), nil
			}
			return ok200(), nil
		})
		for _, c := range tenants("acme", 5) { // one after the other
			h.send(c)
			time.Sleep(200 * time.Millisecond)
		}
		h.send(tenants("globex", 10)...)
		time.Sleep(29 * time.Second)
		if n := h.bank.count(); n != 5 {
			t.Fatalf("%d calls while the breaker is open, want the five that opened it", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := h.bank.starts(since, "globex")
		if !strings.HasPrefix(got, "30.9 61.0 61.1 61.1") || strings.Count(got, "61.1") != 4 {
			t.Errorf("globex began at %s: want one probe at 30.9 s, another 30 s after its failure, and then four at once", got)
		}
		for _, r := range h.got() {
			if r.Attempts != 1 {
				t.Errorf("%s used %d calls", r.CommandID, r.Attempts)
			}
		}
	})
}

// TestWhatCannotBeSentSaysNothingOfTheOtherSide: it neither closes a breaker
// that has opened nor opens one.
func TestWhatCannotBeSentSaysNothingOfTheOtherSide(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, breaking)
		since := time.Now()
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			switch {
			case n <= 5:
				return status(503), nil
			case n == 6: // the probe
				return Response{}, edda.Classify(edda.Permanent, "%w: not an allowed host", ErrNotSent)
			}
			return status(503), nil
		})
		h.send(tenants("acme", 5)...)
		synctest.Wait()
		h.send(tenants("globex", 3)...)
		time.Sleep(59 * time.Second)
		if got := h.bank.starts(since, "globex"); got != "30.0 30.0" {
			t.Errorf("globex began at %s: want a probe at once after the one that could not be sent, and then none", got)
		}
	})
}

// TestAnOpenBreakerHoldsNoWorker: its effect's commands wait, those of another
// go at once; the wait ends with not_after, a revoke, or a stop.
func TestAnOpenBreakerHoldsNoWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, breaking, strings.Replace(plain, "charge", "other", 1))
		h.bank.answers(func(_ context.Context, _ int, c Call) (Response, error) {
			if c.Effect == "charge" {
				return Response{}, errors.New("reset")
			}
			return ok200(), nil
		})
		h.send(tenants("acme", 5)...)
		synctest.Wait()
		waiting := tenants("globex", 3)
		waiting[1].NotAfter = time.Now().Add(10 * time.Second)
		h.send(waiting...)
		other := cmd("o1")
		other.Effect = "other"
		h.send(other)
		synctest.Wait()
		if n := h.bank.count(); n != 6 {
			t.Fatalf("%d calls, want five and the other effect's", n)
		}
		gone := revoke("globex2")
		gone.Tenant = "globex"
		h.send(gone)
		time.Sleep(11 * time.Second)
		h.stop()
		text := ""
		for _, r := range h.got() {
			if r.Tenant == "globex" {
				text += fmt.Sprintf("%s %s %d;", r.CommandID, r.Outcome, r.Attempts)
			}
		}
		if text != "globex2 Failed 0;globex1 TimedOut 0;" {
			t.Errorf("results %q", text)
		}
		time.Sleep(time.Second)
		if left := h.left(); !slices.Equal(left, []string{"globex0"}) {
			t.Errorf("given back: %v", left)
		}
	})
}

// TestRetryAfterIsNeverCutShort, also not by jitter.
func TestRetryAfterIsNeverCutShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain+"retry: {max: 3, backoff: 10ms..20ms, jitter: true}\n")
		since := time.Now()
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			r := status(429)
			if r.After = 7 * time.Second; n == 3 {
				return ok200(), nil
			}
			return r, nil
		})
		h.send(cmd("c1"))
		time.Sleep(time.Minute)
		if got := h.bank.starts(since, "acme"); got != "0.0 7.0 14.0" {
			t.Errorf("called at %s", got)
		}
	})
}
