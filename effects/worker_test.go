package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/jsonvalue"
	"edda/store"
)

func TestWorkerSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		c := cmd("c1")
		c.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		h.send(c)
		r := h.one(t)
		if r.Outcome != edda.Succeeded || string(r.Payload) != `{"id":"P1"}` || r.Attempts != 1 {
			t.Errorf("result %+v", r)
		}
		if r.Tenant != "acme" || r.CommandID != "c1" || r.Effect != "charge" || string(r.Metadata) != string(c.Metadata) || r.Trace != c.Trace || r.Time.IsZero() {
			t.Errorf("result %+v does not echo the command", r)
		}
		call := h.bank.all()[0]
		if call.Key != "c1" || call.ID != "c1" || call.Tenant != "acme" || call.Trace != c.Trace {
			t.Errorf("call %+v", call)
		}
		if got := fmt.Sprint(call.Config); got != "map[body:map[amount:25] headers:map[Authorization:s3cret] url:https://pay/charges]" {
			t.Errorf("config %s", got)
		}
		if h.acks() != 1 {
			t.Errorf("%d acks", h.acks())
		}
	})
}

func TestWorkerShowsTheKeyOfTheCallBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		c := cmd("c2")
		c.IdempotencyKey = "c1"
		h.send(c)
		h.one(t)
		if got := h.bank.all()[0]; got.Key != "c1" || got.ID != "c2" {
			t.Errorf("call %+v", got)
		}
	})
}

// TestAResultThatCouldNeverBePublishedWasPublishedForEver: the server takes
// smaller messages than a result may be.
func TestAResultThatCouldNeverBePublishedWasPublishedForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.most = 5
		h.send(cmd("c1"))
		wantResult(t, h.one(t), edda.TimedOut, "too_large", 1)
		h.send(cmd("c1"))
		synctest.Wait()
		if h.bank.count() != 1 || h.acks() != 2 {
			t.Errorf("%d calls, %d acks", h.bank.count(), h.acks())
		}
	})
}

// TestATenantWasAnsweredWithTheResultOfAnother: command ids are in logs and at
// providers; the tenant of the subject is what keeps them apart.
func TestATenantWasAnsweredWithTheResultOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		other := cmd("c1")
		other.Tenant = "globex"
		h.send(cmd("c1"), other) // both at once, and again when both are done
		time.Sleep(time.Second)
		h.send(other)
		synctest.Wait()
		if got := h.bank.count(); got != 2 {
			t.Fatalf("%d calls, want one for each tenant", got)
		}
		answers := map[string]int{}
		for _, r := range h.got() {
			answers[r.Tenant]++
		}
		if answers["acme"] != 1 || answers["globex"] != 2 || h.acks() != 3 {
			t.Errorf("answers %v, %d acks", answers, h.acks())
		}
	})
}

func TestWorkerNeverCallsACompletedCommandAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		for range 3 {
			h.send(cmd("c1"))
			time.Sleep(time.Second)
		}
		h.restart(t, nil, charge) // another run knows it too
		h.send(cmd("c1"))
		synctest.Wait()
		got := h.got()
		if h.bank.count() != 1 || len(got) != 4 {
			t.Fatalf("%d calls, %d results, want 1 and 4", h.bank.count(), len(got))
		}
		for _, r := range got[1:] {
			if r.Outcome != got[0].Outcome || string(r.Payload) != string(got[0].Payload) || !r.Time.Equal(got[0].Time) || r.Attempts != 1 {
				t.Errorf("published again as %+v, first %+v", r, got[0])
			}
		}
	})
}

func TestWorkerRetriesUpToMaxCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(always(503))
		h.send(cmd("c1"))
		time.Sleep(time.Hour)
		wantResult(t, h.one(t), edda.TimedOut, "oops", 5)
		if h.bank.count() != 5 {
			t.Errorf("%d calls, want 5", h.bank.count())
		}
		var waits []string
		for i := range h.bank.at[1:] {
			waits = append(waits, h.bank.at[i+1].Sub(h.bank.at[i]).String())
		}
		if got := strings.Join(waits, " "); got != "1s 2s 4s 8s" {
			t.Errorf("waits %s", got)
		}
	})
}

func TestWorkerSucceedsAfterRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			if n < 3 {
				return status(503), nil
			}
			return ok200(), nil
		})
		h.send(cmd("c1"))
		time.Sleep(time.Minute)
		if r := h.one(t); r.Outcome != edda.Succeeded || r.Attempts != 3 {
			t.Errorf("result %+v", r)
		}
		for _, c := range h.bank.all() {
			if c.Key != "c1" {
				t.Errorf("call with key %q", c.Key)
			}
		}
	})
}

func TestWorkerAnswers(t *testing.T) {
	refused := fmt.Errorf("dial: %w", ErrNotSent)
	broken := errors.New("connection reset")
	tests := []struct {
		name     string
		manifest string
		answer   func(ctx context.Context, n int, c Call) (Response, error)
		kind     edda.Outcome
		code     string
		calls    int
	}{
		{"a business failure is final", charge, always(402), edda.Failed, "oops", 1},
		{"an answer where calling again cannot help is final", charge, always(400), edda.Failed, "oops", 1},
		{"what was never sent failed", charge, erring(refused), edda.Failed, "network", 5},
		{"what may have been sent is unknown", charge, erring(broken), edda.TimedOut, "network", 5},
		{"no answer in time is unknown", charge, hang, edda.TimedOut, "timeout", 5},
		{"a gateway's timeout is unknown", charge, always(504), edda.TimedOut, "oops", 5},
		{"a permanent error is not tried again", charge, erring(edda.Classify(edda.Permanent, "%w: forbidden", ErrNotSent)), edda.Failed, "call", 1},
		{"503 after an unknown call leaves it unknown", charge, first(broken, 503), edda.TimedOut, "oops", 5},
		{"a business failure after an unknown call is definite", charge, first(broken, 402), edda.Failed, "oops", 2},
		{"at most once: an unknown call is not repeated", once, erring(broken), edda.TimedOut, "network", 1},
		{"at most once: an answer is not asked for again, and what it did is unknown", once, always(503), edda.TimedOut, "oops", 1},
		{"at least once: an answer to the last call does not say that nothing was done", charge, always(503), edda.TimedOut, "oops", 5},
		{"503, then nothing was sent", charge, firstly(503, refused), edda.TimedOut, "network", 5},
		{"503, then surely nothing was done", charge, then(503, 429), edda.TimedOut, "oops", 5},
		{"503, then nobody let the call in", charge, then(503, 401), edda.TimedOut, "oops", 2},
		{"503, then a business failure", charge, then(503, 402), edda.Failed, "oops", 2},
		{"503 that fail names", strings.Replace(charge, "[402, 409]", "[402, 503]", 1), always(503), edda.Failed, "oops", 1},
		{"an unknown call, then what fail names of those that nobody let in", strings.Replace(charge, "[402, 409]", "[401, 402]", 1), first(broken, 401), edda.Failed, "oops", 2},
		{"at most once: an answer where calling again cannot help is final", once, always(400), edda.Failed, "oops", 1},
		{"at most once: what was never sent is sent again", once, erring(refused), edda.Failed, "network", 5},
		{"at most once: what was refused is sent again", once, always(429), edda.Failed, "oops", 5},
		{"a result that cannot be read is unknown", strings.Replace(charge, "=body.id", "=body.id + 1 * body.id", 1), always(200), edda.TimedOut, "expression", 1},
		{"an ok that fails is unknown", strings.Replace(charge, "ok: status in [200, 201]", "ok: body.code > 3", 1), always(200), edda.TimedOut, "expression", 1},
		{"a request that cannot be made failed", strings.Replace(charge, "=payload", "=payload.amount + payload", 1), always(200), edda.Failed, "expression", 0},
		{"a payload that violates the schema failed", charge + "schema: {type: object, required: [card]}\n", always(200), edda.Failed, "schema", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := build(t, tt.manifest)
				h.bank.answers(tt.answer)
				h.send(cmd("c1"))
				time.Sleep(time.Hour)
				wantResult(t, h.one(t), tt.kind, tt.code, tt.calls)
				if h.bank.count() != tt.calls {
					t.Errorf("%d calls, want %d", h.bank.count(), tt.calls)
				}
			})
		})
	}
}

func erring(err error) func(context.Context, int, Call) (Response, error) {
	return func(context.Context, int, Call) (Response, error) { return Response{}, err }
}

// first fails once without an answer, then answers with a status.
func first(err error, code int) func(context.Context, int, Call) (Response, error) {
	return func(_ context.Context, n int, _ Call) (Response, error) {
		if n == 1 {
			return Response{}, err
		}
		return status(code), nil
	}
}

// then answers with one status first, and with another from then on.
func then(before, after int) func(context.Context, int, Call) (Response, error) {
	return func(_ context.Context, n int, _ Call) (Response, error) {
		if n == 1 {
			return status(before), nil
		}
		return status(after), nil
	}
}

// firstly answers once, then fails without an answer.
func firstly(code int, err error) func(context.Context, int, Call) (Response, error) {
	return func(_ context.Context, n int, _ Call) (Response, error) {
		if n == 1 {
			return status(code), nil
		}
		return Response{}, err
	}
}

func TestWorkerFailurePayload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(1500 * time.Millisecond)
			return Response{Status: 402, Body: map[string]any{"code": "no_funds", "message": "try another card"}}, nil
		})
		h.send(cmd("c1"))
		time.Sleep(time.Minute)
		want := `{"code":"no_funds","message":"try another card","attempts":1,"duration":"1.5s","status":402,"body":{"code":"no_funds","message":"try another card"}}`
		if got := string(h.one(t).Payload); got != want {
			t.Errorf("payload %s\nwant    %s", got, want)
		}
	})
}

// TestAResultCanBeReadBack however deep the answer was: else its saga hears nothing.
func TestAResultCanBeReadBack(t *testing.T) {
	var deep any = "x"
	for range jsonvalue.MaxDepth - 1 {
		deep = []any{deep}
	}
	for code, manifest := range map[int]string{200: strings.Replace(charge, "{id: =body.id}", "{id: =body}", 1), 402: charge} {
		bubble(t, func(t *testing.T) {
			h := build(t, manifest)
			h.bank.answers(func(context.Context, int, Call) (Response, error) {
				return Response{Status: code, Body: map[string]any{"id": deep}}, nil
			})
			h.send(cmd("c1"))
			r := h.one(t)
			if _, err := jsonvalue.Decode(r.Payload); err != nil {
				t.Errorf("status %d, result %s: %v", code, r.Outcome, err)
			}
			if want := map[int]edda.Outcome{200: edda.TimedOut, 402: edda.Failed}[code]; r.Outcome != want {
				t.Errorf("status %d is %s, want %s", code, r.Outcome, want)
			}
		})
	}
}

func TestWorkerHonoursRetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			if n > 1 {
				return ok200(), nil
			}
			r := status(429)
			r.After = 42 * time.Second
			return r, nil
		})
		h.send(cmd("c1"))
		time.Sleep(time.Minute)
		h.one(t)
		if got := h.bank.at[1].Sub(h.bank.at[0]); got != 42*time.Second {
			t.Errorf("called again after %s, want 42s", got)
		}
	})
}

func TestWorkerNotAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		late := cmd("late")
		late.NotAfter = time.Now().Add(-time.Second)
		h.send(late)
		wantResult(t, h.one(t), edda.TimedOut, "expired", 0)
		if h.bank.count() != 0 {
			t.Fatal("called after its not_after")
		}
		h.bank.answers(always(503))
		soon := cmd("soon")
		soon.NotAfter = time.Now().Add(4 * time.Second)
		h.send(soon)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantResult(t, h.got()[1], edda.TimedOut, "oops", 3) // at 0, 1 and 3 s
	})
}

func TestWorkerRevoke(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.send(revoke("never"))
		wantResult(t, h.one(t), edda.Failed, "revoked", 0)
		h.send(cmd("never"))
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(h.got()); h.bank.count() != 0 || n != 2 {
			t.Fatalf("%d calls of a revoked command, %d results", h.bank.count(), n)
		}
		h.send(cmd("done"))
		time.Sleep(time.Second)
		h.send(revoke("done"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.got(); len(got) != 3 || got[2].Outcome != edda.Succeeded {
			t.Errorf("results %+v: a revoke of what is done does nothing", got)
		}
	})
}

// Nobody worked at it: it must not say that it took 292 years.
func TestARevokedCommandTookNoTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.send(revoke("never"))
		var said struct{ Duration string }
		if err := json.Unmarshal(h.one(t).Payload, &said); err != nil || said.Duration != "0s" {
			t.Errorf("it took %q (%v)", said.Duration, err)
		}
	})
}

func TestWorkerRevokeOvertakesWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(ctx context.Context, _ int, _ Call) (Response, error) {
			time.Sleep(5 * time.Second)
			return ok200(), nil
		})
		for i := range 6 { // four begin, two wait
			h.send(cmd(fmt.Sprintf("c%d", i)))
			synctest.Wait()
		}
		h.send(revoke("c0"), revoke("c5"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.bank.count() != 5 {
			t.Errorf("%d calls, want five: c5 was revoked while it waited, c0 while it ran", h.bank.count())
		}
		for _, r := range h.got() {
			want := edda.Succeeded
			if r.CommandID == "c5" {
				want = edda.Failed
			}
			if r.Outcome != want {
				t.Errorf("%s %s", r.CommandID, r.Outcome)
			}
		}
		if n := h.acks(); n != 8 {
			t.Errorf("%d acks, want 8", n)
		}
	})
}

// TestABegunCommandGoesOnWithoutItsRevoke: given back together, the two met again
// without end while a command that a former run began waited for a token.
func TestABegunCommandGoesOnWithoutItsRevoke(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := charge + "limit: {rate: 1/m, burst: 1}\n"
		h := build(t, slow)
		h.bank.answers(always(429))
		h.send(cmd("c1"))
		synctest.Wait()
		h.stop() // c1 is redelivered after a second
		h.bank.answers(func(context.Context, int, Call) (Response, error) { return ok200(), nil })
		h.restart(t, nil, slow)
		h.send(cmd("first"))
		time.Sleep(2 * time.Second) // it has the token, and c1 waits
		h.send(cmd("c1"), revoke("c1"))
		time.Sleep(5 * time.Minute)
		for _, r := range h.got() {
			if r.Outcome != edda.Succeeded {
				t.Errorf("%s %s", r.CommandID, r.Outcome)
			}
		}
		if n := h.fetched(); n > 100 || len(h.got()) != 2 || h.bank.count() != 3 {
			t.Errorf("%d results and %d calls after %d fetches", len(h.got()), h.bank.count(), n)
		}
	})
}

func TestWorkerBoundsConcurrencyAndTakesHighFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(time.Second)
			return ok200(), nil
		})
		for i := range 7 { // one place is left to see what else comes
			h.send(cmd(fmt.Sprintf("n%d", i)))
		}
		high := cmd("high")
		high.High = true
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		h.send(high)
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.bank.most != 4 || h.bank.count() != 8 {
			t.Errorf("%d at once of %d, want 4 of 8", h.bank.most, h.bank.count())
		}
		at := slices.IndexFunc(h.bank.all(), func(c Call) bool { return c.ID == "high" })
		if at < 4 || at > 7 {
			t.Errorf("high went as number %d, want right after the first four", at)
		}
	})
}

func TestWorkerIgnoresARedeliveryWhileItWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(5 * time.Second)
			return ok200(), nil
		})
		h.send(cmd("c1"))
		synctest.Wait()
		h.send(cmd("c1"), cmd("c1"))
		time.Sleep(time.Minute)
		h.one(t)
		if h.bank.count() != 1 || h.acks() != 3 {
			t.Errorf("%d calls, %d acks, want 1 and 3", h.bank.count(), h.acks())
		}
	})
}

func TestWorkerKeepsLongCallsAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, strings.Replace(charge, "timeout: 10s", "timeout: 10m", 1))
		h.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(5 * time.Minute)
			return ok200(), nil
		})
		h.send(cmd("c1"))
		time.Sleep(10 * time.Minute)
		h.one(t)
		if n := h.heartbeats(); n < 29 || n > 31 {
			t.Errorf("%d heartbeats in five minutes", n)
		}
	})
}

// diary is a ledger that fails at a chosen write, as a crash would: the write
// is lost, or it is done and what comes after it is not.
type diary struct {
	claims
	fail func(c store.Change) error
}

func (d diary) Commit(ctx context.Context, c store.Change) error {
	if err := d.fail(c); err != nil {
		return err
	}
	return d.claims.Commit(ctx, c)
}

var errCrash = errors.New("crashed")

// crashes are the points between claim and call, call and result, result and
// publication, and what the next run makes of them.
func TestWorkerCrashPoints(t *testing.T) {
	tests := []struct {
		name     string
		manifest string
		crash    func(h *house, d *diary)
		calls    int // in both runs
		kind     edda.Outcome
		code     string
	}{
		{"before the claim", charge, func(_ *house, d *diary) { d.fail = func(store.Change) error { return errCrash } }, 1, edda.Succeeded, ""},
		{"before the claim, at most once", once, func(_ *house, d *diary) { d.fail = func(store.Change) error { return errCrash } }, 1, edda.Succeeded, ""},
		{"between claim and answer", charge, func(h *house, _ *diary) { h.bank.answers(hang) }, 2, edda.Succeeded, ""},
		{"between claim and answer, at most once", once, func(h *house, _ *diary) { h.bank.answers(hang) }, 1, edda.TimedOut, "unknown"},
		{"between answer and result", charge, func(_ *house, d *diary) { d.fail = failResults }, 2, edda.Succeeded, ""},
		{"between answer and result, at most once", once, func(_ *house, d *diary) { d.fail = failResults }, 1, edda.TimedOut, "unknown"},
		{"between result and publication", charge, func(h *house, _ *diary) { h.refusing(errCrash) }, 1, edda.Succeeded, ""},
		{"between result and publication, at most once", once, func(h *house, _ *diary) { h.refusing(errCrash) }, 1, edda.Succeeded, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := build(t, tt.manifest)
				h.stop()
				d := &diary{claims: h.db, fail: func(store.Change) error { return nil }}
				tt.crash(h, d)
				h.restart(t, func(claims) claims { return d }, tt.manifest)
				h.send(cmd("c1"))
				time.Sleep(2 * time.Second)
				h.stop() // cut off after the grace
				if n := len(h.got()); n != 0 {
					t.Fatalf("%d results before the crash", n)
				}
				h.bank.answers(func(context.Context, int, Call) (Response, error) { return ok200(), nil })
				h.refusing(nil)
				h.restart(t, nil, tt.manifest)
				time.Sleep(time.Minute)
				r := h.one(t)
				var f failure
				_ = json.Unmarshal(r.Payload, &f)
				if r.Outcome != tt.kind || f.Code != tt.code || h.bank.count() != tt.calls {
					t.Errorf("%s %q after %d calls, want %s %q after %d", r.Outcome, f.Code, h.bank.count(), tt.kind, tt.code, tt.calls)
				}
			})
		})
	}
}

func failResults(c store.Change) error {
	if len(c.Claims) > 0 && c.Claims[0].Done {
		return errCrash
	}
	return nil
}

func TestWorkerUnknownThenFailingIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.stop()
		claim := edda.Claim{Tenant: "acme", CommandID: "c1", Effect: "charge", Owner: "another run", Claimed: time.Now().UTC()}
		if err := h.db.Commit(t.Context(), store.Change{Claims: []edda.Claim{claim}}); err != nil {
			t.Fatal(err)
		}
		h.bank.answers(always(503))
		h.restart(t, nil, charge)
		h.send(revoke("c1"), cmd("c1")) // the revoke is too late
		time.Sleep(10 * time.Second)
		if got, _, err := h.db.Claim("acme", "c1"); err != nil || got.Owner != h.w.o.Owner || got.Done || !got.Claimed.Equal(claim.Claimed) {
			t.Errorf("claim %+v %v, want it ours, from when it was first made", got, err)
		}
		time.Sleep(time.Hour)
		wantResult(t, h.one(t), edda.TimedOut, "oops", 5)
	})
}

func TestWorkerKeepsTheResultWhileTheDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.stop()
		var full atomic.Bool
		full.Store(true)
		d := &diary{claims: h.db, fail: func(c store.Change) error {
			if full.Load() {
				return failResults(c)
			}
			return nil
		}}
		h.restart(t, func(claims) claims { return d }, charge)
		h.send(cmd("c1"))
		time.Sleep(time.Minute)
		synctest.Wait()
		full.Store(false)
		time.Sleep(time.Minute)
		h.one(t)
		if h.bank.count() != 1 {
			t.Errorf("%d calls, want one", h.bank.count())
		}
	})
}

func TestWorkerStopFinishesWhatIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(500 * time.Millisecond)
			return ok200(), nil
		})
		for i := range 6 {
			h.send(cmd(fmt.Sprintf("c%d", i)))
		}
		synctest.Wait()
		h.stop()
		if n := len(h.got()); n != 4 {
			t.Errorf("%d results when it stopped, want those of the four under way", n)
		}
		time.Sleep(time.Second)
		if n := len(h.left()); n != 2 {
			t.Errorf("%d messages given back, want 2", n)
		}
	})
}

func TestWorkerReplace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		refund := strings.Replace(charge, "effect: charge", "effect: refund", 1)
		c := cmd("r1")
		c.Effect = "refund"
		h.send(c)
		time.Sleep(time.Second)
		if n := len(h.got()); n != 0 {
			t.Fatalf("%d results of an effect that nobody serves", n)
		}
		if err := h.w.Replace(compile(t, charge), compile(t, refund)); err != nil {
			t.Fatal(err)
		}
		h.one(t)
		if err := h.w.Replace(compile(t, refund)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		h.send(cmd("c1"))
		time.Sleep(10 * time.Second)
		h.one(t)
		if err := h.w.Replace(compile(t, charge), compile(t, refund)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := len(h.got()); n != 2 {
			t.Errorf("%d results after the effect came back, want 2", n)
		}
	})
}

func TestCommandsMayWaitForASecret(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t)
		h.stop()
		found := false
		o := h.options()
		o.AwaitSecrets, o.Secrets = true, Secrets{Environ: func(string) (string, bool) { return "s3cret", found }}
		w, err := newWorker(h.db, o, compile(t, charge))
		if err != nil {
			t.Fatal(err)
		}
		if got := handle(t, w, new(cmd("c1"))); got != nakAfter(againAfter) || h.bank.count() != 0 {
			t.Errorf("without the secret: disposition %+v after %d calls", got, h.bank.count())
		}
		found = true
		if got := handle(t, w, new(cmd("c1"))); got != ack() || h.bank.count() != 1 {
			t.Errorf("with it: disposition %+v after %d calls", got, h.bank.count())
		}
	})
}

func TestWorkerRefusesWhatItLacks(t *testing.T) {
	o := Options{Source: newWire(), Publisher: newWire(), Secrets: Secrets{Environ: func(string) (string, bool) { return "", false }}}
	_, err := newWorker(nil, o, compile(t, charge), compile(t, charge))
	for _, want := range []string{"secret PAY is not set", "EDDA_SECRET_PAY", "no provider http", "twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s in it", err, want)
		}
	}
}

func TestWorkerLogsOneLineWithoutPayloadOrSecret(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		h.stop()
		core, logs := observer.New(zap.DebugLevel)
		o := h.options()
		o.Log = zap.New(core)
		w, err := newWorker(h.db, o, compile(t, charge))
		if err != nil {
			t.Fatal(err)
		}
		c := cmd("c1")
		c.Payload = json.RawMessage(`{"card":"4111"}`)
		if got := handle(t, w, &c); got != ack() {
			t.Fatalf("disposition %+v", got)
		}
		text := fmt.Sprint(logs.All())
		if logs.Len() != 1 || strings.Contains(text, "4111") || strings.Contains(text, "s3cret") {
			t.Errorf("log %s", text)
		}
		if got := logs.All()[0].ContextMap(); got["saga"] != "order" || got["command"] != "c1" || got["outcome"] != "Succeeded" {
			t.Errorf("line %v", got)
		}
	})
}

func TestWorkerMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t)
		h.stop()
		reg := prometheus.NewRegistry()
		o := h.options()
		o.Metrics = reg
		w, err := newWorker(h.db, o, compile(t, charge))
		if err != nil {
			t.Fatal(err)
		}
		h.bank.answers(first(errors.New("reset"), 402))
		handle(t, w, new(cmd("c1")))
		want := `
# HELP edda_effect_calls_total Calls of providers, by what they brought: ok, failed, retry or unknown.
# TYPE edda_effect_calls_total counter
edda_effect_calls_total{effect="charge",outcome="failed"} 1
edda_effect_calls_total{effect="charge",outcome="unknown"} 1
# HELP edda_effect_results_total Results of commands, by outcome.
# TYPE edda_effect_results_total counter
edda_effect_results_total{effect="charge",outcome="Failed"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edda_effect_calls_total", "edda_effect_results_total"); err != nil {
			t.Error(err)
		}
		if lint, err := testutil.GatherAndLint(reg); err != nil || len(lint) > 0 {
			t.Errorf("lint %v %v", lint, err)
		}
	})
}

// TestReadableIsWhatASagaReads, whether it was read to see that or not.
func TestReadableIsWhatASagaReads(t *testing.T) {
	for _, wrap := range []func(any) any{
		func(v any) any { return []any{1, v, "x"} },
		func(v any) any { return map[string]any{"a": nil, "b": v} },
		func(v any) any { return []string{fmt.Sprint(v)} },
	} {
		var v any = 1.5
		for level := range jsonvalue.MaxDepth + 3 {
			encoded, err := json.Marshal(v) // what is too deep as well
			if err != nil {
				t.Fatal(err)
			}
			_, err = jsonvalue.Decode(encoded)
			if got := readable(outcome{kind: edda.Succeeded, payload: v}, encoded); got != (err == nil) {
				t.Errorf("%d levels: readable %v, and %v", level, got, err)
			}
			v = wrap(v)
		}
	}
}
