package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
)

// A message may have a whole flow run: a stored flow, by flow_id alone, or the flow that
// the message carries, with its jobs and nodes.

// Runs runs flows for messages. A call that fails may be repeated, unless the error is
// edda.Permanent.
type Runs interface {
	// FlowBegan reports whether the flow is stored and was started.
	FlowBegan(ctx context.Context, context, id uint32) (bool, error)
	// FlowRun identifies the flow's last start.
	FlowRun(ctx context.Context, context, id uint32) (string, error)
	// RunFlow creates the message's flow where the message carries it, and starts it
	// unless it was started since run. The rights of the message's caller count.
	RunFlow(ctx context.Context, m hero.Message, carries bool, run string) error
	// FlowEnd returns the flow's result, nil while it runs.
	FlowEnd(ctx context.Context, context, id uint32) (map[string]string, error)
}

const (
	// flowRun is the note of a message that has a flow run: whether the message carries the
	// flow, and the flow's last start before.
	flowRun     = "edda_flow_run"
	carriedFlow = "carried/"
	storedFlow  = "stored/"
)

// flowWithin bounds the wait for a flow's end where the message has no timeout_result. A
// flow ends by the bounds of its jobs, which may wait for days, one after the other.
const flowWithin = 30 * 24 * time.Hour

// mayRunFlow reports whether the message may have a flow run. A flow's own dispatch of a
// job has an attempt, and does not.
func mayRunFlow(m hero.Message) bool {
	return m.MessageType == hero.MessageJob && m.FlowID != 0 && m.Attempt == 0 && m.Origin == "" && m.Via == ""
}

// runOf reads the note flowRun; empty where the message has no flow run.
func (l *contextLoop) runOf(ctx context.Context, m hero.Message) (string, error) {
	if !mayRunFlow(m) {
		return "", nil
	}
	return l.field(ctx, m, flowRun)
}

// beginRun decides once whether the message has a flow run: it has a flow_id alone, or it
// brings jobs of a flow that was never started.
func (l *contextLoop) beginRun(ctx context.Context, m hero.Message) (string, error) {
	run, err := l.runOf(ctx, m)
	if err != nil || run != "" || !mayRunFlow(m) {
		return run, err
	}
	kind := storedFlow
	if len(m.Job)+len(m.Nodes) > 0 {
		if l.r.o.Runs == nil {
			return "", nil
		}
		if began, err := l.r.o.Runs.FlowBegan(ctx, l.Context, m.FlowID); err != nil || began {
			return "", err // a job of a flow that dispatches its jobs itself
		}
		kind = carriedFlow
	}
	if l.r.o.Runs == nil {
		return "", edda.Classify(edda.Permanent, "flows are not run here: a coordinator's router runs them")
	}
	before, err := l.r.o.Runs.FlowRun(ctx, l.Context, m.FlowID)
	if err != nil {
		return "", err
	}
	run = kind + before
	return run, l.note(ctx, m.Key(), flowRun, run)
}

// flow has the message's flow run, and watch look at its end.
func (l *contextLoop) flow(ctx context.Context, m hero.Message, run string) error {
	l.r.o.at("flow noted", m.Key())
	if m.TargetContext != 0 && m.TargetContext != l.Context {
		return l.flowEnds(ctx, m, brokenEnd, "a flow runs in the context that it is sent in: send the message in context "+fmt.Sprint(m.TargetContext)+", or its jobs without flow_id")
	}
	m.ContextID = l.Context
	before, carries := strings.CutPrefix(run, carriedFlow)
	before = strings.TrimPrefix(before, storedFlow)
	err := l.r.o.Runs.RunFlow(ctx, m, carries, before)
	if errors.Is(err, edda.Permanent) {
		return l.flowEnds(ctx, m, brokenEnd, err.Error())
	}
	if err != nil {
		return err
	}
	l.r.o.at("flow started", m.Key())
	within := flowWithin
	if m.TimeoutResult > 0 {
		within = time.Duration(m.TimeoutResult) * time.Second
	}
	if err := l.expectWithin(ctx, m, within); err != nil {
		return err
	}
	_, err = l.DB.MoveMessage(ctx, l.Context, m.Key(), hero.MessageAcknowledged, redisdb.MessageChange{TransportStatus: hero.TransportDelivered, TargetContext: l.Context})
	if errors.Is(err, edda.Permanent) {
		return nil // the message has ended
	}
	return err
}

// lookAtFlow ends a message whose flow has ended or is late.
func (l *contextLoop) lookAtFlow(ctx context.Context, m hero.Message, late bool) (removed bool, err error) {
	result, err := l.r.o.Runs.FlowEnd(ctx, l.Context, m.FlowID)
	switch {
	case errors.Is(err, edda.Permanent):
		return true, l.flowEnds(ctx, m, brokenEnd, err.Error())
	case err != nil:
		return false, err
	case result != nil:
		return true, l.flowEnds(ctx, m, string(hero.MessageProcessed), hero.ResultText(result))
	case late:
		return true, l.flowEnds(ctx, m, brokenEnd, fmt.Sprintf("%v: the flow has not ended in time, and goes on", errNoResult))
	}
	return false, nil
}

// flowEnds sends the caller the flow's end, once, and ends the message.
func (l *contextLoop) flowEnds(ctx context.Context, m hero.Message, as, text string) error {
	to := hero.MessageProcessed
	if as == brokenEnd {
		to = hero.MessageError
		if err := l.appendLog(ctx, m, "error", text); err != nil {
			return err
		}
		text = hero.ResultText(map[string]string{hero.ResultError: text})
	}
	if err := l.arriveOnce(ctx, fmt.Sprintf("result:%s:%d:flow", m.Key(), m.CreatedAt), l.resultOf(m, text)); err != nil {
		return err
	}
	l.r.o.at("flow replied", m.Key())
	return l.finish(ctx, m, to, "")
}
