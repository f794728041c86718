package effects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// outcome is what came of a command, before it is written down.
type outcome struct {
	kind    edda.Outcome
	payload any // of a success
	failure failure
	calls   int
	took    time.Duration
	// definite is set where the other side's answer leaves no doubt, whatever
	// came before.
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

// handle brings one command to its result: what the ledger knows, the gate, the
// claim, the call, the result, its publication. It returns 0 when the message
// may go, else after how long it must come back.
func (w *Worker) handle(ctx context.Context, c Command, revoked bool) time.Duration {
	claim, found, err := w.db.Claim(c.Tenant, c.ID)
	if err != nil {
		w.o.Log.Error("the effect ledger cannot be read", fields(c, err)...)
		return againAfter
	}
	e := w.effect(c.Effect)
	switch {
	case c.Malformed != "":
		return w.malformed(ctx, c, found)
	case found && claim.Done && !c.Revoke:
		return w.publish(ctx, c, claim)
	case found && c.Revoke:
		return 0 // begun, perhaps by another, or done: its result settles the step
	case !found && revoked:
		return w.conclude(ctx, c, w.claim(c), failed("revoked", "revoked before it began"))
	case e == nil:
		return againAfter // gone since it was fetched: it waits for somebody who serves it
	}
	if !found {
		claim = w.claim(c)
	}
	return w.execute(ctx, e, c, claim, found)
}

// claim is a new entry of the ledger.
func (w *Worker) claim(c Command) edda.Claim {
	return edda.Claim{Tenant: c.Tenant, CommandID: c.ID, Effect: c.Effect, Owner: w.o.Owner, Claimed: time.Now().UTC()}
}

// execute calls, unless the gate or the unknown outcome of an earlier call forbids it.
func (w *Worker) execute(ctx context.Context, e *Effect, c Command, claim edda.Claim, unknown bool) time.Duration {
	if out, shut := gate(e, c, unknown, time.Now()); shut {
		return w.conclude(ctx, c, claim, out)
	}
	vars, out, err := w.scope(e, c)
	if err != nil {
		w.o.Log.Error("a command cannot begin", fields(c, err)...)
		return againAfter
	}
	call, err := e.request(c, vars)
	if err != nil && out == nil {
		out = refusal("expression", err)
	}
	if out != nil {
		return w.conclude(ctx, c, claim, doubt(*out, unknown))
	}
	claim.Owner = w.o.Owner
	if err := w.db.Commit(ctx, store.Change{Claims: []edda.Claim{claim}}); err != nil {
		w.o.Log.Error("the effect ledger cannot be written", fields(c, err)...)
		return againAfter
	}
	got, complete := w.attempts(ctx, e, c, call, vars)
	if !complete {
		return againAfter // cut off: the claim stays, so what came of it is unknown
	}
	return w.conclude(ctx, c, claim, doubt(got, unknown))
}

// gate says what becomes of a command that may not be called. Breakers and
// limits belong here.
func gate(e *Effect, c Command, unknown bool, now time.Time) (outcome, bool) {
	switch {
	case unknown && e.atMostOnce():
		return timedOut("unknown", "a call was begun and what came of it is not known"), true
	case c.late(now):
		return timedOut("expired", "not to be called after "+edda.FormatTime(c.NotAfter)), true
	}
	return outcome{}, false
}

// scope is what expressions see before the call. The outcome is set where the
// payload is none that the effect takes; the error where a secret is missing,
// which is the operator's to repair and no failure of the command.
func (w *Worker) scope(e *Effect, c Command) (map[string]any, *outcome, error) {
	secrets, err := w.o.Secrets.all(e.secrets)
	if err != nil {
		return nil, nil, err
	}
	payload, err := edda.Decode(c.Payload)
	if err != nil {
		return nil, refusal("malformed", err), nil
	}
	vars := map[string]any{"payload": payload, "id": c.ID, "tenant": c.Tenant, "secret": secrets}
	if err := e.schema.check(payload); err != nil {
		return vars, refusal("schema", err), nil
	}
	return vars, nil, nil
}

func refusal(code string, err error) *outcome {
	out := failed(code, err.Error())
	return &out
}

// doubt turns a failure into an unknown outcome where an earlier call may have
// had its effect and no answer has said otherwise.
func doubt(o outcome, unknown bool) outcome {
	if unknown && !o.definite && o.kind == edda.Failed {
		o.kind = edda.TimedOut
	}
	return o
}

// malformed keeps a message that is no command for a person, and answers it
// with the ids of its subject, unless a command of that id is known.
func (w *Worker) malformed(ctx context.Context, c Command, known bool) time.Duration {
	change := store.Change{Dead: []edda.DeadLetter{{
		ID: "effect." + c.Tenant + "." + c.ID, Reason: edda.DeadMalformed, Key: edda.Key{Tenant: c.Tenant}, Subject: c.Subject, Error: c.Malformed,
		Event: edda.Event{Tenant: c.Tenant, Type: c.Effect, CommandID: c.ID}, Time: time.Now().UTC(), Raw: c.Raw[:min(len(c.Raw), maxRaw)],
	}}}
	if known && w.write(ctx, c, change) {
		return 0
	}
	if known {
		return againAfter
	}
	out := failed("malformed", c.Malformed)
	w.report(c, out)
	claim, err := complete(w.claim(c), out)
	if err != nil {
		w.o.Log.Error("a result cannot be encoded", fields(c, err)...)
		return againAfter
	}
	change.Claims = []edda.Claim{claim}
	if !w.write(ctx, c, change) {
		return againAfter
	}
	return w.publish(ctx, c, claim)
}

// maxRaw bounds what is kept of a malformed message.
const maxRaw = 64 << 10

// conclude writes the result down and publishes it.
func (w *Worker) conclude(ctx context.Context, c Command, claim edda.Claim, o outcome) time.Duration {
	w.report(c, o)
	claim, err := complete(claim, o)
	if err != nil {
		w.o.Log.Error("a result cannot be encoded", fields(c, err)...)
		return againAfter
	}
	if !w.write(ctx, c, store.Change{Claims: []edda.Claim{claim}}) {
		return againAfter
	}
	return w.publish(ctx, c, claim)
}

// maxResult bounds a result: it must fit the saga's state and its message.
const maxResult = 256 << 10

// complete puts the outcome into the claim.
func complete(claim edda.Claim, o outcome) (edda.Claim, error) {
	payload := o.payload
	if o.kind != edda.Succeeded {
		payload = o.failure.filled(o)
	}
	encoded, err := edda.Encode(payload)
	if err != nil {
		return claim, err
	}
	if len(encoded) > maxResult {
		big := timedOut("too_large", "the result is larger than 256 KiB")
		big.calls, big.took = o.calls, o.took
		return complete(claim, big)
	}
	claim.Done, claim.Outcome, claim.Result = true, o.kind, encoded
	claim.Attempts, claim.Finished = o.calls, time.Now().UTC()
	return claim, nil
}

func (f failure) filled(o outcome) failure {
	f.Attempts, f.Duration = o.calls, o.took.Round(time.Millisecond).String()
	return f
}

// write makes a result durable. It tries until the worker is cut off: a result
// that is lost would have to be called for again.
func (w *Worker) write(ctx context.Context, c Command, change store.Change) bool {
	for first := true; ; first = false {
		err := w.db.Commit(ctx, change)
		if err == nil {
			return true
		}
		if first {
			w.o.Log.Error("a result cannot be written, trying again", fields(c, err)...)
		}
		pause(ctx, ledgerAgain)
		if ctx.Err() != nil {
			return false
		}
	}
}

// publish sends the stored result.
func (w *Worker) publish(ctx context.Context, c Command, claim edda.Claim) time.Duration {
	err := w.o.Publisher.PublishResult(ctx, Result{
		Tenant: c.Tenant, CommandID: c.ID, Effect: c.Effect, Outcome: claim.Outcome, Payload: claim.Result,
		Metadata: c.Metadata, Attempts: claim.Attempts, Time: claim.Finished, Trace: c.Trace,
	})
	if err == nil {
		return 0
	}
	if errors.Is(err, edda.Permanent) && claim.Outcome == edda.Succeeded {
		return w.conclude(ctx, c, claim, untold(claim, err))
	}
	if !errors.Is(err, context.Canceled) {
		w.o.Log.Warn("a result is not published yet", fields(c, err)...)
	}
	return againAfter
}

// untold is what a saga hears of a success whose message can never be sent,
// such as one larger than the server takes: that it may have happened.
func untold(claim edda.Claim, err error) outcome {
	o := timedOut("too_large", "the result cannot be published: "+err.Error())
	o.calls = claim.Attempts
	return o
}

// report is the one line that a command leaves in the log.
func (w *Worker) report(c Command, o outcome) {
	w.metrics.result(c.Effect, o)
	line := append(fields(c, nil), zap.String("outcome", string(o.kind)), zap.Int("calls", o.calls), zap.Duration("took", o.took))
	if o.kind == edda.Succeeded {
		w.o.Log.Info("effect", line...)
		return
	}
	w.o.Log.Warn("effect", append(line, zap.String("code", o.failure.Code), zap.String("message", o.failure.Message))...)
}

// fields say which command; its payload is not for logs.
func fields(c Command, err error) []zap.Field {
	var meta struct {
		Saga    string `json:"saga"`
		Key     string `json:"key"`
		Step    string `json:"step"`
		TraceID string `json:"trace_id"`
	}
	_ = json.Unmarshal(c.Metadata, &meta) // without it the line says less
	out := []zap.Field{zap.String("effect", c.Effect), zap.String("tenant", c.Tenant), zap.String("command", c.ID), zap.String("saga", meta.Saga),
		zap.String("correlation", meta.Key), zap.String("step", meta.Step), zap.String("trace", cmp.Or(c.Trace, meta.TraceID))}
	if err != nil {
		out = append(out, zap.Error(err))
	}
	return out
}
