package effects

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"edda"
	"edda/expression"
)

// maxBody bounds what a failure's payload shows of the answer.
const maxBody = 16 << 10

// answer is what came of one call.
type answer struct {
	outcome
	again   bool          // the same call may be answered otherwise later
	refused bool          // the other side surely did nothing
	unknown bool          // it may have had its effect
	after   time.Duration // how long the other side asked to wait
}

// attempts calls until there is an answer, the calls are used up or the time
// is. It is not complete where ctx ended first.
func (w *Worker) attempts(ctx context.Context, e *Effect, c Command, call Call, vars map[string]any) (outcome, bool) {
	began, calls, unknown := time.Now(), 0, false
	var last answer
	_ = failsafe.With(w.policy(e, c)).WithContext(ctx).Run(func() error {
		if calls > 0 && c.late(time.Now()) {
			return nil // the answer before this one stands
		}
		calls++
		last = w.call(ctx, e, call, vars)
		unknown = unknown || last.unknown
		if last.again && (!e.atMostOnce() || last.refused) {
			return &attemptError{last.after}
		}
		return nil
	}) // its error is ours, or ctx's: last says it all
	if ctx.Err() != nil && last.again || calls == 0 {
		return outcome{}, false
	}
	last.calls, last.took = calls, time.Since(began)
	return doubt(last.outcome, unknown), true
}

// attemptError asks the policy for another call.
type attemptError struct{ after time.Duration }

func (*attemptError) Error() string { return "call again" }

// policy is the effect's retry policy for one command: no call begins after
// its not_after. Delays are computed here because the library's jitter would
// also shorten what the other side asked for. A breaker and a limit compose here.
func (w *Worker) policy(e *Effect, c Command) retrypolicy.RetryPolicy[any] {
	next := func(attempt failsafe.ExecutionAttempt[any]) time.Duration {
		wait := e.retry.delay(attempt.Attempts(), w.o.Jitter())
		var asked *attemptError
		if errors.As(attempt.LastError(), &asked) {
			wait = max(wait, asked.after)
		}
		return wait
	}
	late := func(_ any, err error) bool {
		var asked *attemptError
		return errors.As(err, &asked) && c.late(time.Now().Add(max(asked.after, e.retry.min)))
	}
	return retrypolicy.NewBuilder[any]().WithMaxAttempts(e.retry.calls).WithDelayFunc(next).AbortIf(late).ReturnLastFailure().Build()
}

// delay doubles from min to cap. Jitter spreads it, never below min nor above cap.
func (r retry) delay(calls int, jitter float64) time.Duration {
	d := r.cap
	if shift := calls - 1; shift < 32 && r.min<<shift>>shift == r.min {
		d = min(r.min<<shift, r.cap)
	}
	if !r.jitter {
		return d
	}
	high := min(d+d/2, r.cap)
	low := max(high/2, r.min)
	return low + time.Duration(jitter*float64(high-low))
}

// call makes one call and judges its answer.
func (w *Worker) call(ctx context.Context, e *Effect, call Call, vars map[string]any) answer {
	limited, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	began := time.Now()
	resp, err := w.o.Providers[e.Provider()].Call(limited, call)
	if err != nil {
		a := unanswered(err)
		if limited.Err() != nil && ctx.Err() == nil {
			a.failure.Code, a.failure.Message = "timeout", "no answer within "+e.timeout.String()
		}
		w.metrics.call(e.Name(), a, time.Since(began))
		return a
	}
	a := e.judge(resp, vars)
	w.metrics.call(e.Name(), a, time.Since(began))
	return a
}

// unanswered judges a call that had no answer.
func unanswered(err error) answer {
	a := answer{again: !errors.Is(err, edda.Permanent), refused: errors.Is(err, ErrNotSent)}
	a.unknown = !a.refused
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
func (e *Effect) judge(r Response, before map[string]any) answer {
	vars := maps.Clone(before)
	vars["status"], vars["headers"], vars["body"] = r.Status, headers(r.Headers), r.Body
	env := expression.Env{Vars: vars}
	ok, err := e.ok.True(env)
	if err == nil && ok {
		return e.success(r, vars)
	}
	fail := false
	if err == nil {
		fail, err = e.fail.True(env)
	}
	if err != nil {
		return answer{unknown: true, outcome: timedOut("expression", err.Error())}
	}
	out := outcome{kind: edda.Failed, failure: describe(r), definite: fail || !r.Retry && !r.Unknown}
	if fail {
		return answer{outcome: out}
	}
	return answer{outcome: out, again: r.Retry, refused: r.Refused, unknown: r.Unknown, after: r.After}
}

func headers(h map[string]string) map[string]any {
	out := make(map[string]any, len(h))
	for name, v := range h {
		out[name] = v
	}
	return out
}

func (e *Effect) success(r Response, vars map[string]any) answer {
	if e.result == nil {
		return answer{outcome: outcome{kind: edda.Succeeded, payload: r.Body}}
	}
	got, err := e.result.eval(vars)
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
	if encoded, err := edda.Encode(r.Body); err == nil && r.Body != nil && len(encoded) <= maxBody {
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
