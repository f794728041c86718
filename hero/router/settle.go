package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
)

// answer says whether the caller gets a result message.
type answer bool

const (
	answered answer = true
	silent   answer = false // the caller has a result message already
)

// maxResults bounds the keys in msg_in, because no actor has to pop results. The jobs and
// the flows hold the results too.
const maxResults = 100_000

// full reports whether a context's msg_in takes no more results. It logs each time that
// this begins.
func (r *Router) full(ctx context.Context, context uint32) (bool, error) {
	n, err := r.db.Depth(ctx, context, hero.MsgIn)
	if err != nil {
		return false, err
	}
	is := n >= maxResults
	r.mu.Lock()
	was := r.filled[context]
	r.filled[context] = is
	r.mu.Unlock()
	if is && !was {
		r.o.Log.Warn("router: msg_in is full: results are kept with their jobs only, until an actor pops some", zap.Uint32("context", context), zap.Int64("keys", n))
	}
	return is, nil
}

// settle makes a job's end known: in the job's hash, to the flow, to the caller; then in
// the message, which ends with its last job. Each step may be repeated, so an interrupted
// settle is repeated as a whole.
func (l *contextLoop) settle(ctx context.Context, m hero.Message, job hero.Job, e end, a answer) error {
	if v, err := l.noted(ctx, m, endedAs, job.ID); err != nil || v != "" {
		return errors.Join(err, l.conclude(ctx, m))
	}
	if m.FlowID == 0 && !e.kept && job.ContextID == l.Context {
		_, _, err := l.DB.MoveJob(ctx, l.Context, job.CallerID, job.ID, e.status, e.result)
		if absent(err) != nil { // else the job ended before, was deleted, or is broken
			return err
		}
	}
	l.r.o.at("recorded", m.Key())
	if err := l.report(ctx, m, job, e); err != nil {
		return err
	}
	l.r.o.at("reported", m.Key())
	if a == answered {
		if err := l.reply(ctx, m, job, e); err != nil {
			return err
		}
	}
	l.r.o.at("replied", m.Key())
	note := string(e.status)
	if e.broken != "" {
		note = brokenEnd
		if err := l.appendLog(ctx, m, "error", fmt.Sprintf("job %d: %s", job.ID, e.broken)); err != nil {
			return err
		}
		l.Log.Warn("router: a job did not get through", zap.String("message", m.Key()), zap.Uint32("job", job.ID), zap.String("why", e.broken))
	}
	if err := l.note(ctx, m.Key(), numbered(endedAs, job.ID), note); err != nil {
		return err
	}
	l.r.o.at("noted", m.Key())
	return l.conclude(ctx, m)
}

// report tells the flow the job's end. It returns when the report is durable.
func (l *contextLoop) report(ctx context.Context, m hero.Message, job hero.Job, e end) error {
	if m.FlowID == 0 || l.r.o.Flows == nil {
		return nil
	}
	status := hero.NodeCompleted
	if e.status == hero.JobError {
		status = hero.NodeFailed
	}
	err := l.r.o.Flows.Report(ctx, l.reportOf(m, job, status, e.result))
	if errors.Is(err, edda.Permanent) {
		l.Log.Warn("router: the flow refuses a report", zap.String("message", m.Key()), zap.Uint32("flow", m.FlowID), zap.Error(err))
		return nil
	}
	return err
}

// reply sends the caller a result message: into this context's msg_in, or back to the
// place that the message came from.
func (l *contextLoop) reply(ctx context.Context, m hero.Message, job hero.Job, e end) error {
	job.Status, job.Result = e.status, e.result
	out := l.resultOf(m, hero.ResultText(e.result))
	out.Job, out.Attempt = []hero.Job{job}, m.Attempt
	command := fmt.Sprintf("result:%s:%d:%d:%d", m.Key(), m.CreatedAt, job.ID, m.Attempt)
	if context, key, ok := readOrigin(m.Origin); ok {
		out.TargetContext, out.ReplyTo, out.Via, out.FlowID = context, key, m.Via, 0
		_, _, err := l.DB.Send(ctx, l.Context, command, out)
		return ignoreExists(err)
	}
	return l.arriveOnce(ctx, command, out)
}

// resultOf makes the result message that answers m, without a job.
func (l *contextLoop) resultOf(m hero.Message, text string) hero.Message {
	return hero.Message{
		CallerID: m.CallerID, ContextID: l.Context, To: m.CallerID, MessageType: hero.MessageResult, MessageFormat: hero.FormatText,
		Message: text, FlowID: m.FlowID, ReplyTo: m.Key(), TargetContext: l.Context,
	}
}

// arriveOnce puts a result message into this context's msg_in, once for its command id,
// unless msg_in is full.
func (l *contextLoop) arriveOnce(ctx context.Context, command string, m hero.Message) error {
	if full, err := l.r.full(ctx, l.Context); err != nil || full {
		return err
	}
	_, _, err := l.DB.Arrive(ctx, l.Context, command, m)
	return ignoreExists(err)
}

// ignoreExists drops ErrExists: the ids of results are derived, so the message that has
// the id is this one.
func ignoreExists(err error) error {
	if errors.Is(err, redisdb.ErrExists) {
		return nil
	}
	return err
}

// readOrigin reads <context>/<key of the message there>.
func readOrigin(s string) (context uint32, key string, ok bool) {
	number, key, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), key, ok && err == nil && n > 0
}

func originOf(context uint32, key string) string { return fmt.Sprintf("%d/%s", context, key) }

// brokenEnd is the note of a job whose message did not get through.
const brokenEnd = "broken"

// conclude ends a message when all its jobs have ended.
func (l *contextLoop) conclude(ctx context.Context, m hero.Message) error {
	routes, err := routesOf(m)
	if err != nil {
		return nil //nolint:nilerr // it was read before: it has jobs
	}
	to := hero.MessageProcessed
	for _, r := range routes {
		v, err := l.noted(ctx, m, endedAs, r.job.ID)
		if err != nil || v == "" { // other jobs have not ended
			return err
		}
		if v == brokenEnd {
			to = hero.MessageError
		}
	}
	return l.finish(ctx, m, to, "")
}

// finish ends the message. The metrics count it under fate, which is the status where it
// is empty.
func (l *contextLoop) finish(ctx context.Context, m hero.Message, to hero.MessageStatus, fate string) error {
	change := redisdb.MessageChange{TransportStatus: hero.TransportRead}
	if to == hero.MessageError {
		change.TransportStatus = hero.TransportFailed
	}
	moved, err := l.DB.MoveMessage(ctx, l.Context, m.Key(), to, change)
	if err != nil && !errors.Is(err, edda.Permanent) {
		return err
	}
	if moved {
		l.r.metrics.done(m.MessageType, cmp.Or(fate, string(to)))
	}
	return l.forget(ctx, m.Key())
}

// appendLog appends a line to the message's log.
func (l *contextLoop) appendLog(ctx context.Context, m hero.Message, level, text string) error {
	line := hero.Log{Time: uint32(time.Now().Unix()), Level: level, Source: "router", Text: text}
	return absent(l.DB.AppendLog(ctx, l.Context, m.Key(), line))
}

// fail ends a message without a job in error.
func (l *contextLoop) fail(ctx context.Context, m hero.Message, fate, why string) error {
	if err := l.appendLog(ctx, m, "error", why); err != nil {
		return err
	}
	return l.finish(ctx, m, hero.MessageError, fate)
}

// refuse ends a message of any type that its caller may not send or that cannot be
// delivered. Its jobs end with the reason, so that no caller waits for them.
func (l *contextLoop) refuse(ctx context.Context, m hero.Message, why string) error {
	fate := fateDenied
	if !strings.HasPrefix(why, deniedPrefix) {
		fate = fateError
	}
	routes, err := routesOf(m)
	if err != nil || m.MessageType != hero.MessageJob {
		return l.fail(ctx, m, fate, why)
	}
	e := broke("%s", why)
	if err := l.appendLog(ctx, m, "error", why); err != nil {
		return err
	}
	for _, r := range routes {
		job := r.complete(m, l.Context)
		// A caller that may not send the job of another actor may not end it either.
		if m.FlowID == 0 && job.ContextID == l.Context && job.CallerID == m.CallerID {
			if err := absent(l.DB.DropJob(ctx, l.Context, job.CallerID, job.ID, e.result)); err != nil {
				return err
			}
		}
		if err := l.report(ctx, m, job, e); err != nil {
			return err
		}
		if err := l.reply(ctx, m, job, e); err != nil {
			return err
		}
	}
	return l.finish(ctx, m, hero.MessageError, fate)
}

// result delivers a result message. One that answers a message of this context settles
// that message's job, and the caller finds the result in msg_in.
func (l *contextLoop) result(ctx context.Context, m hero.Message) error {
	if m.TargetContext != 0 && m.TargetContext != l.Context || m.Via != "" {
		return l.post(ctx, m)
	}
	asked, ok, err := l.asked(ctx, m.ReplyTo)
	if err != nil {
		return err
	}
	if !ok { // no message brought its job, which may be a flow's
		for _, job := range m.Job {
			if e, ok := endOf(job); ok {
				if err := l.report(ctx, m, job, e); err != nil {
					return err
				}
			}
		}
		return l.post(ctx, m)
	}
	job, e, ok, err := l.endIn(ctx, asked, m)
	if err != nil {
		return err
	}
	if !ok {
		return l.fail(ctx, m, fateError, "it tells no end of a job that "+asked.Key()+" carries")
	}
	if err := l.settle(ctx, asked, job, e, answered); err != nil {
		return err
	}
	return l.finish(ctx, m, hero.MessageProcessed, "")
}

// asked finds the message that a result answers: the one that replyTo names, or the one
// that brought the job that replyTo names.
func (l *contextLoop) asked(ctx context.Context, replyTo string) (hero.Message, bool, error) {
	if caller, id, err := hero.ParseJobKey(replyTo); err == nil {
		job, err := l.DB.Job(ctx, l.Context, caller, id)
		if err != nil {
			return hero.Message{}, false, absent(err)
		}
		replyTo = job.MessageKey
	}
	caller, id, err := hero.ParseMessageKey(replyTo)
	if err != nil {
		return hero.Message{}, false, nil
	}
	m, err := l.DB.Message(ctx, l.Context, caller, id)
	if err != nil {
		return hero.Message{}, false, absent(err)
	}
	run, err := l.runOf(ctx, m) // only the flow reports the end of a flow
	return m, m.MessageType == hero.MessageJob && run == "", err
}

// absent drops the error of an object that is missing or cannot be read.
func absent(err error) error {
	if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, edda.Permanent) {
		return nil
	}
	return err
}

// answeredBy finds the job of the message that a result answers: the job that the result
// carries, else the first.
func answeredBy(asked, m hero.Message) (jobRoute, bool) {
	routes, err := routesOf(asked)
	if err != nil {
		return jobRoute{}, false
	}
	for _, r := range routes {
		if len(m.Job) == 0 || r.job.ID == m.Job[0].ID {
			return r, true
		}
	}
	return jobRoute{}, false
}

// endIn reads the end that a result message tells of a job of the message that it
// answers: from the job that it carries, else from the job's hash, else from its text.
func (l *contextLoop) endIn(ctx context.Context, asked, m hero.Message) (hero.Job, end, bool, error) {
	route, ok := answeredBy(asked, m)
	if !ok {
		return hero.Job{}, end{}, false, nil
	}
	job := route.complete(asked, l.Context)
	if len(m.Job) > 0 {
		if e, ok := endOf(m.Job[0]); ok {
			return job, e, true, nil
		}
	}
	e, err := l.recorded(ctx, job)
	if absent(err) != nil || err == nil && !e.waits() {
		return job, e, err == nil, err
	}
	result := hero.ReadResult(m.Message)
	e = end{status: hero.JobFinished, result: result}
	if _, failed := result[hero.ResultError]; failed {
		e.status = hero.JobError
	}
	return job, e, true, nil
}

// endOf reads the end in a job itself.
func endOf(j hero.Job) (end, bool) {
	return end{status: j.Status, result: j.Result}, j.Status.Ended()
}
