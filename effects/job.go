package effects

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/internal/jsonvalue"
)

// deadlines say how long a command may be worked on.
type deadlines struct {
	waiting context.Context // it may begin: it was not revoked, and the consumer has not stopped
	working context.Context // another call of it may begin
	calls   context.Context // a call may go on
}

// job is one command on its way to its result. One goroutine owns it.
type job struct {
	w       *Worker
	limiter *limiter
	c       *Command // nobody changes it
	deadlines

	e      *Effect
	entry  Entry
	lease  *lease // nil until it is claimed
	elided lease  // memory of lease, if its claim is elided

	vars   map[string]any // what expressions see
	call   Call
	check  *Call // where the effect has a check
	key    string
	secret redactor

	// unknown is set while a call may have had its effect and no answer or check has
	// told.
	unknown bool
	made    int           // calls
	next    time.Time     // when the next call may begin; zero: at once
	asked   int           // checks
	began   time.Time     // when the ledger was read
	waited  time.Duration // for its permits
	resting bool          // it waits for next
}

// run brings the command to its result and publishes it.
func (j *job) run() disposition {
	if out, shut := j.gate(time.Now()); shut {
		return j.conclude(out)
	}
	if j.c.Version > j.e.Version() {
		return j.tooNew()
	}
	if out, err := j.prepare(); err != nil {
		j.w.o.Log.Error("a command cannot begin", fields(j.c, err)...)
		return nakAfter(againAfter)
	} else if out != nil {
		return j.conclude(j.doubt(*out))
	}
	t, err := j.acquire(j.waiting, false)
	if err != nil {
		return j.withoutPermit(err)
	}
	if out, shut := j.gate(time.Now()); shut {
		t.release(unused)
		return j.conclude(out)
	}
	fresh := !j.entry.Found || j.entry.Claim.Paused && j.made == 0
	if f, ok := j.claim(); !ok {
		t.release(unused)
		return f
	}
	if f, ok := j.checkForgotten(fresh); !ok {
		t.release(unused)
		return f
	}
	return j.finish(j.attempts(t))
}

// gate is the outcome of a command that may not be called. If a check can tell what an
// earlier call did, the check is asked first.
func (j *job) gate(now time.Time) (outcome, bool) {
	switch {
	case j.mustCheck():
		return outcome{}, false
	case j.unknown && !j.e.repeatable():
		return timedOut("unknown", "a call was begun and what came of it is not known"), true
	case j.c.late(now):
		return j.expired(), true
	}
	return outcome{}, false
}

// mustCheck reports whether the check must be asked before a call.
func (j *job) mustCheck() bool { return j.unknown && j.e.check != nil }

func (j *job) expired() outcome {
	return timedOut("expired", "not to be called after "+edda.FormatTime(j.c.NotAfter))
}

// tooNew leaves a command to a worker with a newer manifest, because this one does not
// know its payload. It warns once per command.
func (j *job) tooNew() disposition {
	if j.w.tooNew.first(nameOf(j.c)) {
		j.w.o.Log.Warn("a command waits for a worker with a newer manifest of its effect",
			append(fields(j.c, nil), zap.Int("version", j.c.Version), zap.Int("manifest", j.e.Version()))...)
	}
	return nakAfter(againAfter)
}

// prepare evaluates the call. The outcome is set if the effect refuses the command. The
// error is a missing secret, which the operator can repair.
func (j *job) prepare() (*outcome, error) {
	secrets, err := j.w.o.Secrets.all(j.e.secrets)
	if err != nil {
		return nil, err
	}
	j.secret = j.e.redactor(secrets)
	payload, err := jsonvalue.Decode(j.c.Payload)
	if err != nil {
		return refusal("malformed", err), nil
	}
	if payload, err = j.e.upcast(*j.c, payload); err != nil {
		return refusal("upcast", err), nil
	}
	j.vars = j.e.before(j.c, payload, secrets)
	if err := j.e.schema.check(payload); err != nil {
		return refusal("schema", err), nil
	}
	return j.evaluate(), nil
}

// before returns the variables of expressions before a call, with room for those of its answer.
func (e *Effect) before(c *Command, payload any, secrets map[string]any) map[string]any {
	vars := make(map[string]any, 7) // namesAfter
	vars["payload"], vars["secret"] = payload, secrets
	if e.names["id"] {
		vars["id"] = c.ID
	}
	if e.names["tenant"] {
		vars["tenant"] = c.Tenant
	}
	return vars
}

// evaluate fills in the manifest's maps for the call and the check.
func (j *job) evaluate() *outcome {
	var err error
	if j.call, err = j.e.request(j.c, j.e.config, j.vars); err != nil {
		return refusal("expression", err)
	}
	if j.e.check != nil {
		check, err := j.e.request(j.c, j.e.check.config, j.vars)
		if err != nil {
			return refusal("expression", err)
		}
		check.Asks = true
		j.check = &check
	}
	if j.key, err = j.e.limit.keyOf(j.c.Tenant, j.vars); err != nil {
		return refusal("expression", err)
	}
	return nil
}

// acquire waits until a call may begin.
func (j *job) acquire(ctx context.Context, begun bool) (*permit, error) {
	who := request{key: j.key, high: j.c.High, begun: begun}
	if !j.c.NotAfter.IsZero() && !j.mustCheck() {
		who.until = j.c.NotAfter.Add(time.Nanosecond) // late is after, not at
	}
	from := time.Now()
	t, err := j.limiter.acquire(ctx, who)
	j.waited += time.Since(from)
	return t, err
}

// withoutPermit is the disposition of a command whose wait ended without a permit.
func (j *job) withoutPermit(err error) disposition {
	var later *shedError
	switch {
	case errors.As(err, &later):
		return nakAfter(later.after)
	case errors.Is(err, errRevoked) && !j.entry.Found:
		return j.revoked()
	case errors.Is(err, errRevoked):
		return nakKeepRevoke()
	case errors.Is(err, context.DeadlineExceeded) && j.waiting.Err() == nil:
		return j.conclude(j.expired())
	default:
		return nakAfter(0)
	}
}

// claim claims the command for this worker.
func (j *job) claim() (disposition, bool) {
	j.entry.Claim.Owner, j.entry.Claim.Paused = j.w.o.Owner, false
	if j.w.elideClaim(j) {
		j.entry.Found = true
		j.elided = lease{ledger: j.w.o.Ledger, ctx: j.calls, entry: &j.entry}
		j.lease = &j.elided
		return disposition{}, true
	}
	var err error
	// gofail: var effectBeforeClaim struct{}
	j.lease, err = acquireLease(j.calls, j.w.o.Ledger, j.entry)
	switch {
	case err == nil:
		// gofail: var effectClaimed struct{}
		j.entry = *j.lease.entry
		return disposition{}, true
	case errors.Is(err, ErrTaken):
		return nakAfter(0), false // the next run awaits the other worker
	default:
		j.w.o.Log.Error("the effect ledger cannot be written", fields(j.c, err)...)
		return nakAfter(againAfter), false
	}
}

// checkForgotten reports whether a newly claimed command may be called. It asks the ledger
// after the claim: a ledger that was recreated before the claim says so, and in one
// recreated later no other worker finds the command fresh.
func (j *job) checkForgotten(fresh bool) (disposition, bool) {
	if !fresh {
		return disposition{}, true
	}
	forgotten, err := j.forgotten(j.lease.ctx)
	if err != nil {
		j.w.o.Log.Error("a command waits until it is known whether the effect ledger is whole", fields(j.c, err)...)
		j.lease.release(true, 0)
		return nakAfter(againAfter), false
	}
	if j.unknown = j.unknown || forgotten; !j.unknown {
		return disposition{}, true
	}
	if out, shut := j.gate(time.Now()); shut {
		defer j.lease.stop()
		return j.conclude(out), false
	}
	return disposition{}, true
}

// forgotten reports whether the ledger may have known the command once. A revoke does not
// say when its command was sent; it counts as old as Retention.
func (j *job) forgotten(ctx context.Context) (bool, error) {
	since, err := j.w.o.Ledger.Since(ctx)
	if err != nil || since.IsZero() {
		return false, err
	}
	if j.c.Revoke {
		since = since.Add(j.w.o.Retention)
	}
	return !j.c.Sent.IsZero() && j.c.Sent.Before(since), nil
}

// revoked answers a revoked command without an entry in the ledger.
func (j *job) revoked() disposition {
	forgotten, err := j.forgotten(j.calls)
	switch {
	case err != nil:
		j.w.o.Log.Error("a revoke waits until it is known whether the effect ledger is whole", fields(j.c, err)...)
		return nakAfter(againAfter)
	case j.unknown || forgotten:
		return j.conclude(timedOut("unknown", "revoked, and whether it had begun is not known"))
	}
	return j.conclude(failed("revoked", "revoked before it began"))
}

// mayCall passes the fence just before a call. While the fence is shut it waits, with the
// claim kept, until the worker stops.
func (j *job) mayCall() bool {
	if j.w.o.Fence == nil {
		return true
	}
	err := j.w.o.Fence(j.lease.ctx)
	if err == nil {
		return true
	}
	j.w.o.Log.Debug("a command is not called yet", fields(j.c, err)...)
	ctx, stop := j.between()
	defer stop()
	for err != nil && ctx.Err() == nil {
		_ = backoff.Wait(ctx, fenceAgain)
		err = j.w.o.Fence(ctx)
	}
	return err == nil && ctx.Err() == nil
}

// finish stops the lease and concludes a complete outcome. Without one the worker stops:
// the claim is released as paused, or as unknown if a call was cut off.
func (j *job) finish(o outcome, complete bool) disposition {
	if complete {
		defer j.lease.stop()
		return j.conclude(o)
	}
	if lost := context.Cause(j.lease.ctx); errors.Is(lost, ErrTaken) || errors.Is(lost, errLapsed) {
		j.lease.stop()
		j.w.o.Log.Warn("a command was taken over by another worker, its calls were cut", append(fields(j.c, lost), zap.Int("calls", j.made))...)
		return leave()
	}
	if j.lease.release(!j.unknown, j.made) {
		j.w.elided.inLedger(nameOf(j.c))
	}
	return nakAfter(max(0, time.Until(j.next)))
}

// doubt turns a failure into an unknown outcome, if an earlier call may have had its
// effect and no answer has denied it.
func (j *job) doubt(o outcome) outcome {
	if j.unknown && !o.definite && o.kind == edda.Failed {
		o.kind = edda.TimedOut
	}
	return o
}

// maxWarned commands are remembered: more than a stream delivers of one effect before some
// of them are settled.
const maxWarned = 8192

// warned remembers the commands that the log has a warning of. The zero value works.
type warned struct {
	mu    sync.Mutex // guards below
	names map[taskName]bool
	order []taskName // oldest first
}

// first reports whether a command is not remembered, and remembers it.
func (w *warned) first(n taskName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names[n] {
		return false
	}
	if w.names == nil {
		w.names = map[taskName]bool{}
	}
	if len(w.order) == maxWarned {
		delete(w.names, w.order[0])
		w.order = w.order[1:]
	}
	w.names[n], w.order = true, append(w.order, n)
	return true
}
