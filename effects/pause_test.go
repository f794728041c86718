package effects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/store"
)

// TestAStopBetweenCallsIsNoDoubt: a command that waits to be called again is
// given up at once, and the next run goes on where this one was, at_most_once too.
func TestAStopBetweenCallsIsNoDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, once)
		h.bank.answers(always(429))
		h.send(cmd("c1"))
		time.Sleep(2 * time.Second) // two calls: at 0 s, and after the first backoff
		synctest.Wait()
		before := h.bank.count()
		began := time.Now()
		h.stop()
		if took := time.Since(began); took != 0 {
			t.Errorf("the stop took %s, and no call was under way", took)
		}
		if claim, _, err := h.db.Claim("acme", "c1"); err != nil || !claim.Paused || claim.Done || claim.Attempts != before || before == 0 {
			t.Fatalf("claim %+v %v after %d calls", claim, err, before)
		}
		h.restart(t, nil, once)
		time.Sleep(time.Hour)
		wantResult(t, h.one(t), edda.Failed, "oops", 5)
		if h.bank.count() != 5 {
			t.Errorf("%d calls in both runs, want the five that the manifest allows", h.bank.count())
		}
	})
}

// TestAStopDoesNotCutRetryAfterShort, nor the wait before another call.
func TestAStopDoesNotCutRetryAfterShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain)
		since := time.Now()
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			r := status(429)
			if r.After = time.Minute; n == 2 {
				return ok200(), nil
			}
			return r, nil
		})
		h.send(cmd("c1"))
		time.Sleep(20 * time.Second)
		h.stop()
		h.restart(t, nil, plain)
		time.Sleep(time.Hour)
		if got := h.bank.starts(since, "acme"); got != "0.0 60.0" {
			t.Errorf("called at %s", got)
		}
		wantResult(t, h.one(t), edda.Succeeded, "", 2)
	})
}

// TestAStopInDoubtDoesNotBeginTheCallsAnew: those that the run before had an answer to
// count, and one that the stop itself cut does not.
func TestAStopInDoubtDoesNotBeginTheCallsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge) // five calls, at 0, 1, 3, 7 and 15 s
		h.bank.answers(always(503))
		h.send(cmd("c1"))
		time.Sleep(2 * time.Second)
		h.bank.answers(hang)
		time.Sleep(2 * time.Second)
		h.stop()
		if h.bank.count() != 3 {
			t.Fatalf("%d calls before the stop", h.bank.count())
		}
		h.bank.answers(always(503))
		h.restart(t, nil, charge)
		time.Sleep(time.Hour)
		if r := h.one(t); r.Outcome != edda.TimedOut || r.Attempts != 5 || h.bank.count() != 6 {
			t.Errorf("%s %s after %d calls in all", r.Outcome, r.Payload, h.bank.count())
		}
	})
}

// TestAStopLeavesDoubtWhereThereIsSome: after an answer that says nothing.
func TestAStopLeavesDoubtWhereThereIsSome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain)
		h.bank.answers(always(504))
		h.send(cmd("c1"))
		synctest.Wait()
		h.stop()
		if claim, found, err := h.db.Claim("acme", "c1"); err != nil || !found || claim.Paused || claim.Done {
			t.Errorf("claim %+v %v", claim, err)
		}
	})
}

// TestACrashAfterAPauseIsDoubt: the claim is not paused any more once it is taken.
func TestACrashAfterAPauseIsDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, once)
		h.bank.answers(always(429))
		h.send(cmd("c1"))
		synctest.Wait()
		h.stop()
		h.bank.answers(hang)
		h.restart(t, nil, once)
		time.Sleep(2 * time.Second)
		if claim, _, err := h.db.Claim("acme", "c1"); err != nil || claim.Paused || h.bank.count() != 2 {
			t.Errorf("claim %+v %v after %d calls", claim, err, h.bank.count())
		}
		h.stop()
		h.restart(t, nil, once)
		time.Sleep(time.Minute)
		if r := h.one(t); r.Outcome != edda.TimedOut || h.bank.count() != 2 {
			t.Errorf("%s after %d calls", r.Outcome, h.bank.count())
		}
	})
}

// TestAPanicOfAProviderIsAnUnknownOutcome, and the end of nothing else.
func TestAPanicOfAProviderIsAnUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(_ context.Context, _ int, c Call) (Response, error) {
			if c.ID == "c1" {
				panic("4111 1111 1111 1111")
			}
			return ok200(), nil
		})
		h.send(cmd("c1"))
		synctest.Wait()
		r := h.one(t)
		wantResult(t, r, edda.TimedOut, "call", 1)
		if strings.Contains(string(r.Payload), "4111") {
			t.Errorf("result %s", r.Payload)
		}
		h.send(cmd("c2"))
		synctest.Wait()
		if got := h.got(); len(got) != 2 || got[1].Outcome != edda.Succeeded {
			t.Errorf("results %v", got)
		}
	})
}

// TestAStopDuringACallKeepsRetryAfter: the answer came after the stop began.
func TestAStopDuringACallKeepsRetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain)
		since := time.Now()
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			r := status(429)
			if r.After = time.Minute; n == 2 {
				return ok200(), nil
			}
			time.Sleep(500 * time.Millisecond)
			return r, nil
		})
		h.send(cmd("c1"))
		synctest.Wait()
		h.stop()
		h.restart(t, nil, plain)
		time.Sleep(time.Hour)
		if got := h.bank.starts(since, "acme"); got != "0.0 60.5" {
			t.Errorf("called at %s", got)
		}
		wantResult(t, h.one(t), edda.Succeeded, "", 2)
	})
}

// TestFewerCallsAreAllowedThanWereMade when a paused command is taken up again.
func TestFewerCallsAreAllowedThanWereMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(always(429))
		h.send(cmd("c1"))
		time.Sleep(5 * time.Second)
		h.stop()
		made := h.bank.count()
		h.restart(t, nil, strings.Replace(charge, "max: 5", "max: 1", 1))
		time.Sleep(time.Hour)
		if r := h.one(t); r.Outcome != edda.Failed || h.bank.count() != made {
			t.Errorf("result %+v %s after %d calls", r, r.Payload, h.bank.count())
		}
	})
}

// slowClaims takes its time to write.
type slowClaims struct {
	claims
	takes time.Duration
}

func (s slowClaims) Commit(ctx context.Context, c store.Change) error {
	time.Sleep(s.takes)
	return s.claims.Commit(ctx, c)
}

// TestAPausedCommandExpires: also with a permit.
func TestAPausedCommandExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(always(429))
		c := cmd("c1")
		c.NotAfter = time.Now().Add(10 * time.Second)
		h.send(c)
		synctest.Wait()
		h.stop()
		h.restart(t, func(db claims) claims { return slowClaims{db, 20 * time.Second} }, charge)
		time.Sleep(time.Hour)
		wantResult(t, h.one(t), edda.TimedOut, "expired", 1)
	})
}

// TestAStopWaitsForNoResultThatCannotBeWritten: a full disk may have room again within the grace, and a broken store
// takes nothing before it is opened again.
func TestAStopWaitsForNoResultThatCannotBeWritten(t *testing.T) {
	for _, tt := range []struct {
		fails error
		waits bool
	}{{errors.New("disk full"), true}, {fmt.Errorf("nobody knows: %w", store.ErrBroken), false}} {
		bubble(t, func(t *testing.T) {
			h := build(t, charge)
			h.restart(t, func(c claims) claims {
				return &diary{claims: c, fail: func(c store.Change) error {
					if len(c.Claims) > 0 && c.Claims[0].Done {
						return tt.fails
					}
					return nil
				}}
			}, charge)
			h.send(cmd("c1"))
			synctest.Wait()
			began := time.Now()
			h.stop()
			if waited := time.Since(began) >= h.w.o.Grace; waited != tt.waits || h.bank.count() != 1 {
				t.Errorf("%v: the stop took %s, after %d calls", tt.fails, time.Since(began), h.bank.count())
			}
		})
	}
}
