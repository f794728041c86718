package effects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/internal/jsonvalue"
	"edda/store"
)

// handle brings one command to its result: ledger, gate, permit, claim, call, result,
// publication.
func (j *job) handle() disposition {
	c := j.c
	var err error
	if j.entry, err = j.w.find(j.calls, c); err == nil && j.entry.Held && !c.Revoke && c.Malformed == "" {
		j.entry, err = j.w.o.Ledger.Await(j.waiting, j.entry)
	}
	revoked := errors.Is(context.Cause(j.waiting), errRevoked)
	switch {
	case err == nil:
		j.e, j.began = j.w.effect(c.Effect), time.Now()
		return j.decide()
	case revoked && j.entry.Held:
		return nakKeepRevoke()
	case j.waiting.Err() != nil && !revoked:
		return nakAfter(0)
	default:
		j.w.o.Log.Error("the effect ledger cannot be read", fields(c, err)...)
		return nakAfter(againAfter)
	}
}

// decide acts on what the ledger knows of the command.
func (j *job) decide() disposition {
	c, found := j.c, j.entry.Found
	revoked := c.Revoke || errors.Is(context.Cause(j.waiting), errRevoked)
	switch {
	case c.Malformed != "":
		return j.malformed()
	case found && j.entry.Claim.Done && !c.Revoke:
		return j.publish(j.entry.Claim)
	case found && c.Revoke:
		return ack() // begun or done: its result settles the step
	case !found && revoked:
		j.newEntry()
		return j.revoked()
	case j.e == nil:
		return nakAfter(againAfter) // removed since it was fetched: it waits for a worker that serves it
	}
	if !found {
		j.newEntry()
		return j.run()
	}
	j.unknown, j.made = !j.entry.Claim.Paused, j.entry.Claim.Attempts
	return j.run()
}

// newEntry begins an entry of the ledger. If the command is older than the retention of
// claims, it may have been called.
func (j *job) newEntry() {
	now := time.Now().UTC()
	j.entry.Claim = j.w.newClaim(j.c.Tenant, j.c.ID, j.c.Effect)
	j.unknown = !j.c.Sent.IsZero() && now.Sub(j.c.Sent) > j.w.o.Retention
}

func refusal(code string, err error) *outcome {
	out := failed(code, err.Error())
	return &out
}

// malformed keeps a message that is no command as a dead letter. It answers it with the
// ids of its subject, unless a command of that id is known. One of several shards does not
// answer, because another one may know the command and call its provider.
func (j *job) malformed() disposition {
	c, w := j.c, j.w
	dead := store.Change{Dead: []edda.DeadLetter{{
		ID: "effect." + c.Tenant + "." + c.ID, Reason: edda.DeadMalformed, Key: edda.Key{Tenant: c.Tenant}, Subject: c.Subject, Error: c.Malformed,
		Event: edda.Event{Tenant: c.Tenant, Type: c.Effect, CommandID: c.ID}, Time: time.Now().UTC(), Raw: c.Raw[:min(len(c.Raw), maxRaw)],
	}}}
	if !j.insist(func() error { return w.db.Commit(j.calls, dead) }) {
		return nakAfter(againAfter)
	}
	if j.entry.Found || !w.o.Shard.Whole() {
		return ack()
	}
	j.newEntry()
	return j.conclude(failed("malformed", c.Malformed))
}

// maxRaw bounds the part of a malformed message that is kept.
const maxRaw = 64 << 10

// conclude gives the result of an offered command to the sagas, with its claim. Any other result,
// and one that they do not take, it stores in the ledger and publishes.
func (j *job) conclude(o outcome) disposition {
	o = j.secret.outcome(o)
	o.calls, o.took = j.made, time.Since(j.began)
	j.report(o)
	claim, err := complete(j.entry.Claim, o)
	if err != nil {
		j.w.o.Log.Error("a result cannot be encoded", fields(j.c, err)...)
		return nakAfter(againAfter)
	}
	if j.c.Offered && j.w.o.Applier != nil {
		// gofail: var effectAnswered struct{}
		err := j.w.o.Applier.Apply(j.calls, j.result(claim), claim)
		if err == nil {
			j.w.elided.inLedger(nameOf(j.c))
			return ack()
		}
		j.w.o.Log.Debug("a result goes through the stream", fields(j.c, err)...)
	}
	entry := j.entry
	entry.Claim = claim
	stored := j.insist(func() error {
		if j.lease != nil {
			err = j.lease.finish(j.calls, entry)
		} else {
			err = j.w.o.Ledger.Finish(j.calls, entry)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrTaken):
		j.w.o.Log.Warn("a result was not kept: another worker has the command", fields(j.c, nil)...)
		return leave()
	case !stored:
		return nakAfter(againAfter)
	}
	j.w.elided.inLedger(nameOf(j.c))
	// gofail: var effectRecorded struct{}
	return j.publish(claim)
}

// maxResult bounds a result: it must fit the saga's state and its message.
const maxResult = 256 << 10

// complete puts the outcome into the claim.
func complete(claim edda.Claim, o outcome) (edda.Claim, error) {
	payload := o.payload
	if o.kind != edda.Succeeded {
		f := o.failure
		f.Attempts, f.Duration = o.calls, o.took.Round(time.Millisecond).String()
		payload = f
	}
	encoded, err := jsonvalue.Encode(payload)
	if errors.Is(err, jsonvalue.ErrTooDeep) {
		return complete(claim, o.shallow())
	}
	if err != nil {
		return claim, err
	}
	if len(encoded) > maxResult {
		big := timedOut("too_large", "the result is larger than 256 KiB")
		big.calls, big.took = o.calls, o.took
		return complete(claim, big)
	}
	if !readable(o, encoded) {
		return complete(claim, o.shallow())
	}
	claim.Done, claim.Outcome, claim.Result = true, o.kind, encoded
	claim.Attempts, claim.Finished = o.calls, time.Now().UTC()
	return claim, nil
}

// readable reports whether a saga can decode an encoded outcome.
func readable(o outcome, encoded json.RawMessage) bool {
	if o.kind == edda.Succeeded && canonical(o.payload, jsonvalue.MaxDepth/2) {
		return true // without decoding it
	}
	_, err := jsonvalue.Decode(encoded)
	return err == nil
}

// canonical reports whether a value consists of decoded JSON types, within so many levels.
func canonical(v any, levels int) bool {
	switch v := v.(type) {
	case nil, bool, int, string, float64, json.Number:
		return true
	case []any:
		return levels > 0 && !slices.ContainsFunc(v, func(item any) bool { return !canonical(item, levels-1) })
	case map[string]any:
		for _, item := range v {
			if levels == 0 || !canonical(item, levels-1) {
				return false
			}
		}
		return true
	}
	return false
}

// shallow replaces an outcome that is nested too deep.
func (o outcome) shallow() outcome {
	if o.kind != edda.Succeeded {
		o.failure.Body = nil
		return o
	}
	out := timedOut("too_deep", "the result is nested deeper than a saga reads")
	out.calls, out.took = o.calls, o.took
	return out
}

// insist writes until it succeeds, the worker is cut off, or another worker has the claim. A lost result would cost
// another call. A store that must be opened again takes nothing more, so a stop does not wait for it.
func (j *job) insist(write func() error) bool {
	for first := true; ; first = false {
		err, until, say := write(), j.calls, "a result cannot be written, trying again"
		switch {
		case err == nil:
			return true
		case errors.Is(err, ErrTaken):
			return false
		case errors.Is(err, store.ErrBroken):
			until, say = j.working, "a result cannot be written before a restart"
		}
		if first {
			j.w.o.Log.Error(say, fields(j.c, err)...)
		}
		if backoff.Wait(until, ledgerAgain) != nil {
			return false
		}
	}
}

// publish sends the stored result.
func (j *job) publish(claim edda.Claim) disposition {
	c, w := j.c, j.w
	err := w.o.Publisher.PublishResult(j.calls, j.result(claim))
	// gofail: var effectPublished struct{}
	if err == nil {
		return ack()
	}
	if errors.Is(err, edda.Permanent) && claim.Outcome == edda.Succeeded {
		return j.unpublishable(claim, err)
	}
	if !errors.Is(err, context.Canceled) {
		w.o.Log.Warn("a result is not published yet", fields(c, err)...)
	}
	return nakAfter(againAfter)
}

func (j *job) result(claim edda.Claim) Result {
	return Result{
		Tenant: j.c.Tenant, CommandID: j.c.ID, Effect: j.c.Effect, Outcome: claim.Outcome, Payload: claim.Result,
		Metadata: j.c.Metadata, Attempts: claim.Attempts, Time: claim.Finished, Taken: claim.Taken, Trace: j.c.Trace,
	}
}

// unpublishable replaces a success whose message can never be sent, such as one larger
// than the server takes, by an unknown outcome.
func (j *job) unpublishable(claim edda.Claim, err error) disposition {
	entry, lookup := j.w.o.Ledger.Find(j.calls, claim.Tenant, claim.CommandID)
	if lookup != nil {
		return nakAfter(againAfter)
	}
	j.entry, j.lease, j.made = entry, nil, claim.Attempts
	j.entry.Claim = claim
	return j.conclude(timedOut("too_large", "the result cannot be published: "+err.Error()))
}

// report logs the one line of a command and counts its result.
func (j *job) report(o outcome) {
	j.w.metrics.result(j.c.Effect, o)
	if o.kind == edda.Succeeded && !j.w.o.Log.Core().Enabled(zap.InfoLevel) {
		return // saves making the fields
	}
	line := append(fields(j.c, nil), zap.String("outcome", string(o.kind)), zap.Int("calls", o.calls), zap.Duration("took", o.took), zap.Duration("waited", j.waited))
	if o.kind == edda.Succeeded {
		j.w.o.Log.Info("effect", line...)
		return
	}
	j.w.o.Log.Warn("effect", append(line, zap.String("code", o.failure.Code), zap.String("message", o.failure.Message))...)
}

// fields identify a command in the log, without its payload.
func fields(c *Command, err error) []zap.Field {
	var meta struct {
		Saga    string `json:"saga"`
		Key     string `json:"key"`
		Step    string `json:"step"`
		TraceID string `json:"trace_id"`
	}
	_ = json.Unmarshal(c.Metadata, &meta) // the ids are missing from the line otherwise
	out := []zap.Field{zap.String("effect", c.Effect), zap.String("tenant", c.Tenant), zap.String("command", c.ID), zap.String("saga", meta.Saga),
		zap.String("correlation", meta.Key), zap.String("step", meta.Step), zap.String("trace", cmp.Or(c.Trace, meta.TraceID))}
	if err != nil {
		out = append(out, zap.Error(err))
	}
	return out
}
