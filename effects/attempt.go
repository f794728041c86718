package effects

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"go.uber.org/zap"

	"edda"
	"edda/expression"
	"edda/internal/backoff"
	"edda/internal/jsonvalue"
)

// maxBody bounds what a failure's payload shows of the answer.
const maxBody = 16 << 10

// answer is what came of one call.
type answer struct {
	outcome
	again   bool          // the same call may be answered otherwise later
	refused bool          // the other side surely did nothing
	unknown bool          // it may have had its effect
	cut     bool          // the worker cut it off: it says nothing of the other side
	ill     bool          // it says that the other side is not well
	after   time.Duration // how long the other side asked to wait
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

// attempts calls until there is an answer, the calls are used up or the time
// is. It is not complete where it was cut off first.
func (j *job) attempts(first *permit) (outcome, bool) {
	last := j.step(first, answer{})
	if last.again || last.cut { // of few commands
		return j.retryAttempts(last)
	}
	return j.doubt(last.outcome), true
}

// retryAttempts makes the steps behind the first, under the effect's policy: to that
// the first is what it runs at once.
func (j *job) retryAttempts(last answer) (outcome, bool) {
	between, stop := j.between()
	defer stop()
	defer j.setResting(false)
	made := true // the step that the policy asks for
	_ = failsafe.With(j.policy()).WithContext(between).Run(func() error {
		if !made {
			j.setResting(false)
			t, err := j.acquire(between, true)
			if err != nil {
				return nil // late, or no more calls: the answer before this one stands
			}
			last = j.step(t, last)
		}
		made = false
		if last.again {
			return j.scheduleRetry(last.after)
		}
		return nil
	}) // its error is ours, or ctx's: last says it all
	if between.Err() != nil && (last.again || last.cut) {
		return outcome{}, false
	}
	return j.doubt(last.outcome), true
}

// between ends when no call may begin any more, while one that goes on may.
func (j *job) between() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(j.lease.ctx)
	if j.working.Err() != nil {
		cancel() // here, not soon
	}
	forget := context.AfterFunc(j.working, cancel)
	return ctx, func() { forget(); cancel() }
}

// step uses one turn: where it is not known what came of an earlier call, the
// check is asked; where the command may be called, it is. What cannot be
// stands as before.
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

// once makes one call and says whether there is to be another step.
func (j *job) once() answer {
	j.made++
	a := j.w.call(j.lease.ctx, j)
	if a.cut {
		j.made-- // a call that the worker itself ended is not one that retry.max counts
	}
	// gofail: var effectCalled struct{}
	if a.again && !a.refused && !j.e.repeatable() {
		a.unknown = true // it is not called again since it may have been done
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

// errRetry asks the policy for another step.
var errRetry = errors.New("call again")

// scheduleRetry says when the next step may begin. It is said before anything else
// can end the attempts: whoever goes on after a stop must wait as long.
func (j *job) scheduleRetry(after time.Duration) error {
	j.steps++
	j.setResting(true)
	j.next = time.Now().Add(max(after, j.e.retry.delay(j.steps, j.w.o.Jitter())))
	return errRetry
}

// setResting notes whether the command waits for its next call.
func (j *job) setResting(rests bool) {
	if j.resting == rests {
		return
	}
	if j.resting = rests; !j.c.Offered { // offers have a bound of their own
		j.limiter.setResting(rests)
	}
}

// policy is the effect's retry policy for one command: no call begins after
// its not_after. Delays are computed here because the library's jitter would
// also shorten what the other side asked for. How many calls there may be is
// counted by step, since a check is none.
func (j *job) policy() retrypolicy.RetryPolicy[any] {
	next := func(failsafe.ExecutionAttempt[any]) time.Duration { return max(0, time.Until(j.next)) }
	late := func(_ any, err error) bool { return errors.Is(err, errRetry) && !j.mustCheck() && j.c.late(j.next) }
	return retrypolicy.NewBuilder[any]().WithMaxAttempts(j.e.retry.calls + maxAsks).WithDelayFunc(next).AbortIf(late).ReturnLastFailure().Build()
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

// safely calls a provider. A library that panics over what the other side sent
// must not end the process, and with it every other command, each time anew.
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

func headers(h map[string]string) map[string]any {
	out := make(map[string]any, len(h))
	for name, v := range h {
		out[name] = v
	}
	return out
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
