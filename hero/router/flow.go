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

// This file is how a message has a whole flow run: one that is stored, by its flow_id
// alone, or one that it carries, with its jobs and nodes.

// Runs has flows run for messages. A call that fails may be made again, unless the error is
// edda.Permanent.
type Runs interface {
	// FlowBegan tells whether the flow is stored and was started, by whomever.
	FlowBegan(ctx context.Context, context, id uint32) (bool, error)
	// FlowRun is another text after each start of the flow.
	FlowRun(ctx context.Context, context, id uint32) (string, error)
	// RunFlow creates the message's flow where the message carries it, and starts it
	// unless it was started since run. The rights of the message's caller count.
	RunFlow(ctx context.Context, m hero.Message, carries bool, run string) error
	// FlowEnd is what came out of the flow, nil while it runs.
	FlowEnd(ctx context.Context, context, id uint32) (map[string]string, error)
}

const (
	// flowRun notes in a message that it has a flow run: whether it carries it, and the
	// run before.
	flowRun     = "edda_flow_run"
	carriedFlow = "carried/"
	storedFlow  = "stored/"
)

// flowWithin is how long the end of a flow is looked for, where the message does not say
// (timeout_result). Flows end by the bounds of their jobs; this one is for a flow whose
// jobs may wait for days, one after the other.
const flowWithin = 30 * 24 * time.Hour

// mayRunFlow tells whether the message may be one that has a flow run. A dispatch of a
// flow's own has an attempt.
func mayRunFlow(m hero.Message) bool {
	return m.MessageType == hero.MessageJob && m.FlowID != 0 && m.Attempt == 0 && m.Origin == "" && m.Via == ""
}

// runOf is what is noted of the flow that the message has run; empty where it runs none.
func (l *contextLoop) runOf(ctx context.Context, m hero.Message) (string, error) {
	if !mayRunFlow(m) {
		return "", nil
	}
	return l.noted(ctx, m.Key(), flowRun)
}

// beginRun decides once whether the message has a flow run: by its flow_id alone, or
// because the flow whose jobs it brings was not started.
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
		if began, err := l.r.o.Runs.FlowBegan(ctx, l.context, m.FlowID); err != nil || began {
			return "", err // a job of a flow that dispatches its jobs itself
		}
		kind = carriedFlow
	}
	if l.r.o.Runs == nil {
		return "", edda.Classify(edda.Permanent, "flows are not run here: a coordinator's router runs them")
	}
	before, err := l.r.o.Runs.FlowRun(ctx, l.context, m.FlowID)
	if err != nil {
		return "", err
	}
	run = kind + before
	return run, l.note(ctx, m.Key(), flowRun, run)
}

// flow has the message's flow run, and its end watched.
func (l *contextLoop) flow(ctx context.Context, m hero.Message, run string) error {
	if err := l.r.o.at("flow noted", m.Key()); err != nil {
		return err
	}
	if m.TargetContext != 0 && m.TargetContext != l.context {
		return l.flowEnds(ctx, m, brokenEnd, "a flow runs in the context that it is sent in: send the message in context "+fmt.Sprint(m.TargetContext)+", or its jobs without flow_id")
	}
	m.ContextID = l.context
	before, carries := strings.CutPrefix(run, carriedFlow)
	before = strings.TrimPrefix(before, storedFlow)
	err := l.r.o.Runs.RunFlow(ctx, m, carries, before)
	if errors.Is(err, edda.Permanent) {
		return l.flowEnds(ctx, m, brokenEnd, err.Error())
	}
	if err != nil {
		return err
	}
	if err := l.r.o.at("flow started", m.Key()); err != nil {
		return err
	}
	within := flowWithin
	if m.TimeoutResult > 0 {
		within = time.Duration(m.TimeoutResult) * time.Second
	}
	if err := l.expectWithin(ctx, m, within); err != nil {
		return err
	}
	_, err = l.r.db.MoveMessage(ctx, l.context, m.Key(), hero.MessageAcknowledged, redisdb.MessageChange{TransportStatus: hero.TransportDelivered, TargetContext: l.context})
	if errors.Is(err, edda.Permanent) {
		return nil // it ended before
	}
	return err
}

// lookAtFlow settles a message whose flow ended, or was waited for too long.
func (l *contextLoop) lookAtFlow(ctx context.Context, m hero.Message, late bool) (gone bool, err error) {
	result, err := l.r.o.Runs.FlowEnd(ctx, l.context, m.FlowID)
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

// flowEnds tells the caller what became of the flow, once, and ends the message.
func (l *contextLoop) flowEnds(ctx context.Context, m hero.Message, as, text string) error {
	to := hero.MessageProcessed
	if as == brokenEnd {
		to = hero.MessageError
		if err := l.appendLog(ctx, m, "error", text); err != nil {
			return err
		}
		text = hero.ResultText(map[string]string{hero.ResultError: text})
	}
	out := hero.Message{
		CallerID: m.CallerID, ContextID: l.context, To: m.CallerID, MessageType: hero.MessageResult, MessageFormat: hero.FormatText,
		Message: text, FlowID: m.FlowID, ReplyTo: m.Key(), TargetContext: l.context,
	}
	full, err := l.r.full(ctx, l.context)
	if err != nil {
		return err
	}
	if !full {
		if _, _, err := l.r.db.Arrive(ctx, l.context, fmt.Sprintf("result:%s:%d:flow", m.Key(), m.CreatedAt), out); taken(err) != nil {
			return err
		}
	}
	if err := l.r.o.at("flow replied", m.Key()); err != nil {
		return err
	}
	return l.finish(ctx, m, to, "")
}
