package effects

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/expression"
	"edda/internal/backoff"
	"edda/internal/jsonvalue"
)

// maxBody bounds what a failure's payload shows of the answer.
const maxBody = 16 << 10

// answer is the outcome of one call and what it says about the next.
type answer struct {
	outcome
	again   bool          // the same call may be answered otherwise later
	refused bool          // the upstream certainly did nothing
	unknown bool          // it may have had its effect
	cut     bool          // the worker cut it off: no evidence about the upstream
	ill     bool          // evidence that the upstream fails
	after   time.Duration // the wait that the upstream asked for
}

// health is what an answer tells the breaker.
func (a answer) health() health {
	switch {
	case a.cut, a.refused && a.failure.Code == "call": // never sent, and never will be
		return neutral
	case a.ill:
		return ill
	default:
		return healthy
	}
}

// attempts calls until there is an answer, or no more calls or time. It is not complete if
// the worker stopped first.
func (j *job) attempts(first *permit) (outcome, bool) {
	last := j.step(first, answer{})
	if !last.again && !last.cut {
		return j.doubt(last.outcome), true
	}
	between, stop := j.between()
	defer stop()
	defer j.setResting(false)
	// step counts the calls, because a check is none: this bounds both.
	for steps := 1; last.again; steps++ {
		// The time of the next step is set before a stop can end the attempts, because the next
		// worker must wait as long.
		j.next = time.Now().Add(max(last.after, j.e.retry.delay(steps, j.w.o.Jitter())))
		if steps == j.e.retry.calls+maxAsks || !j.mustCheck() && j.c.late(j.next) {
			break
		}
		j.setResting(true)
		if backoff.Wait(between, time.Until(j.next)) != nil {
			break
		}
		j.setResting(false)
		t, err := j.acquire(between, true)
		if err != nil {
			break // late, or no more calls: the answer before this one stands
		}
		last = j.step(t, last)
	}
	if between.Err() != nil && (last.again || last.cut) {
		return outcome{}, false
	}
	return j.doubt(last.outcome), true
}

// between is a context for the time between calls: it ends when no call may begin.
func (j *job) between() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(j.lease.ctx)
	if j.working.Err() != nil {
		cancel() // AfterFunc would do it a moment later
	}
	forget := context.AfterFunc(j.working, cancel)
	return ctx, func() { forget(); cancel() }
}

// step uses one permit. It asks the check if the outcome of an earlier call is unknown,
// and calls if the command may be called. Else the answer before stands.
func (j *job) step(t *permit, before answer) answer {
	done := unused
	defer func() { t.release(done) }()
	if j.mustCheck() {
		if !j.mayCall() {
			return answer{cut: true}
		}
		a, call := j.ask()
		done = a.health()
		if !call {
			a.again = a.unknown && j.asked < maxAsks
			return a
		}
	}
	before.again = false
	switch {
	case !j.mayCall(), !j.lease.live():
		return answer{cut: true}
	case (j.made == 0 || before.kind == "") && j.c.late(time.Now()):
		return answer{outcome: j.expired()}
	case j.made >= j.e.retry.calls && before.kind == "":
		return answer{outcome: failed("calls", "an earlier run has made as many calls as retry.max allows now")}
	case j.made > 0 && (j.made >= j.e.retry.calls || j.c.late(time.Now())):
		return before
	}
	a := j.once()
	done = a.health()
	return a
}

// once makes one call and decides whether another step follows.
func (j *job) once() answer {
	j.made++
	a := j.w.call(j.lease.ctx, j)
	if a.cut {
		j.made-- // retry.max does not count calls that the worker cut off
	}
	// gofail: var effectCalled struct{}
	if a.again && !a.refused && !j.e.repeatable() {
		a.unknown = true // not called again, because it may have had its effect
	}
	switch {
	case a.unknown:
		j.unknown = true
	case a.definite || a.kind == edda.Succeeded:
		j.unknown = false
	}
	repeat := j.e.repeatable() || a.refused && !j.unknown
	a.again = a.again && repeat && j.made < j.e.retry.calls || j.mustCheck() && j.asked < maxAsks
	return a
}

// setResting records whether the command waits for the time of its next call.
func (j *job) setResting(rests bool) {
	if j.resting == rests {
		return
	}
	if j.resting = rests; !j.c.Offered { // offers have a bound of their own
		j.limiter.setResting(rests)
	}
}

// delay doubles from min to cap. Jitter spreads it, never below min nor above cap.
func (r retry) delay(calls int, jitter float64) time.Duration {
	d := backoff.Exponential{First: r.min, Most: r.cap}.At(calls)
	if !r.jitter {
		return d
	}
	high := min(d+d/2, r.cap)
	low := max(high/2, r.min)
	return low + time.Duration(jitter*float64(high-low))
}

// call makes one call and judges its answer.
func (w *Worker) call(ctx context.Context, j *job) answer {
	e := j.e
	limited, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	limited, span := w.span(limited, j)
	count := w.metrics.of(e.Name())
	count.running.Inc()
	defer count.running.Dec()
	began := time.Now()
	resp, err := w.safely(limited, e.Provider(), traced(limited, j.call))
	a := answer{}
	if err == nil {
		a = e.judge(resp, e.after(j.vars, resp))
	} else {
		a = unanswered(err)
		a.cut = ctx.Err() != nil
		if limited.Err() != nil && !a.cut {
			a.failure.Code, a.failure.Message = "timeout", "no answer within "+e.timeout.String()
		}
	}
	j.ended(span, a)
	count.call(a, time.Since(began))
	return a
}

// safely calls a provider and recovers from its panic. A library that panics over an
// answer must not end the process, or every restart would meet the same answer.
func (w *Worker) safely(ctx context.Context, provider string, c Call) (r Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.o.Log.Error("a provider panicked", zap.String("effect", c.Effect), zap.String("tenant", c.Tenant), zap.String("command", c.ID), zap.Stack("stack"))
			err = edda.Classify(edda.Permanent, "the provider %s panicked; its log line says where", provider)
		}
	}()
	return w.o.Providers[provider].Call(ctx, c)
}

// unanswered judges a call that had no answer.
func unanswered(err error) answer {
	a := answer{again: !errors.Is(err, edda.Permanent), refused: errors.Is(err, ErrNotSent)}
	a.unknown, a.ill = !a.refused, a.again
	var c *edda.Classified
	if errors.As(err, &c) {
		a.after = c.After
	}
	code := "network"
	if !a.again {
		code = "call"
	}
	a.outcome = failed(code, err.Error())
	return a
}

// judge asks the effect's expressions about an answer. Where they fail, what
// the other side did is unknown to the saga.
func (e *Effect) judge(r Response, vars map[string]any) answer {
	env := expression.Env{Vars: vars}
	ok, err := e.ok.True(env)
	if err == nil && ok {
		return e.success(e.result, r, vars)
	}
	fail := false
	if err == nil {
		fail, err = e.fail.True(env)
	}
	if err != nil {
		return answer{unknown: true, outcome: timedOut("expression", err.Error())}
	}
	out := outcome{kind: edda.Failed, failure: describe(r), definite: fail || !r.Apart && !r.Retry && !r.Unknown}
	if fail {
		return answer{outcome: out}
	}
	return answer{outcome: out, again: r.Retry, refused: r.Refused, unknown: r.Unknown, ill: r.Retry, after: r.After}
}

func (e *Effect) success(result *value, r Response, vars map[string]any) answer {
	if result == nil {
		return answer{outcome: outcome{kind: edda.Succeeded, payload: r.Body}}
	}
	got, err := result.eval(vars)
	if err != nil {
		return answer{unknown: true, outcome: timedOut("expression", err.Error())}
	}
	return answer{outcome: outcome{kind: edda.Succeeded, payload: got}}
}

// describe takes code and message from the answer where it has them.
func describe(r Response) failure {
	f := failure{Code: strconv.Itoa(r.Status), Message: "answered " + strconv.Itoa(r.Status), Status: r.Status}
	if body, ok := r.Body.(map[string]any); ok {
		f.Code = textOr(body["code"], f.Code)
		f.Message = textOr(body["message"], textOr(body["error"], f.Message))
	}
	if encoded, err := jsonvalue.Encode(r.Body); err == nil && r.Body != nil && len(encoded) <= maxBody {
		f.Body = encoded
	}
	return f
}

func textOr(v any, otherwise string) string {
	if s, ok := v.(string); ok && s != "" {
		return s
	}
	return otherwise
}

// outcome is the outcome of a command before it is encoded.
type outcome struct {
	kind    edda.Outcome
	payload any // of a success
	failure failure
	calls   int
	took    time.Duration
	// definite says that the answer leaves no doubt, also about earlier calls.
	definite bool
}

// failure is the payload of a result that is no success.
type failure struct {
	Code     string          `json:"code"`
	Message  string          `json:"message"`
	Attempts int             `json:"attempts"`
	Duration string          `json:"duration"`
	Status   int             `json:"status,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
}

func failed(code, message string) outcome {
	return outcome{kind: edda.Failed, failure: failure{Code: code, Message: message}}
}

func timedOut(code, message string) outcome {
	return outcome{kind: edda.TimedOut, failure: failure{Code: code, Message: message}}
}
