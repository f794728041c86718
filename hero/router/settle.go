package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
)

// answer tells whether the caller still has to be told of an end.
type answer bool

const (
	answered answer = true  // a result message goes to the caller
	silent   answer = false // it has one already
)

// maxResults bounds what the results that the router adds may grow msg_in to:
// no actor has to pop them, and the jobs and the flows have them too.
const maxResults = 100_000

// full tells whether a context's msg_in takes no more results, and says it once
// each time that this begins.
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

// settle makes a job's end known, everywhere that it is to be known: in the job's
// hash, to the flow, to the caller; then in the message. Each step may be done
// again, so a settling that was cut off is simply done once more.
func (l *contextLoop) settle(ctx context.Context, m hero.Message, job hero.Job, e end, a answer) error {
	if done, err := l.ended(ctx, m, job.ID); err != nil || done {
		return errors.Join(err, l.conclude(ctx, m))
	}
	if err := l.record(ctx, m, job, e); err != nil {
		return err
	}
	if err := l.r.o.at("recorded", m.Key()); err != nil {
		return err
	}
	if err := l.report(ctx, m, job, e); err != nil {
		return err
	}
	if err := l.r.o.at("reported", m.Key()); err != nil {
		return err
	}
	if a == answered {
		if err := l.reply(ctx, m, job, e); err != nil {
			return err
		}
	}
	if err := l.r.o.at("replied", m.Key()); err != nil {
		return err
	}
	return l.noteEnd(ctx, m, job, e)
}

// record writes the end into the job's hash, where it is neither a flow's nor
// where the end was read. An end that is there already stays.
func (l *contextLoop) record(ctx context.Context, m hero.Message, job hero.Job, e end) error {
	if m.FlowID != 0 || e.kept || job.ContextID != l.context {
		return nil
	}
	_, _, err := l.r.db.MoveJob(ctx, l.context, job.CallerID, job.ID, e.status, e.result)
	if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, edda.Permanent) {
		return nil // it ended before, was deleted, or is broken
	}
	return err
}

// report tells the flow, until that is durable.
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
		l.log.Warn("router: the flow does not take a report", zap.String("message", m.Key()), zap.Uint32("flow", m.FlowID), zap.Error(err))
		return nil
	}
	return err
}

// reply sends the caller a result message: into this context's msg_in, or back to
// where the message came from.
func (l *contextLoop) reply(ctx context.Context, m hero.Message, job hero.Job, e end) error {
	job.Status, job.Result = e.status, e.result
	out := hero.Message{
		CallerID: m.CallerID, ContextID: l.context, To: m.CallerID, MessageType: hero.MessageResult, MessageFormat: hero.FormatText,
		Message: hero.ResultText(e.result), Job: []hero.Job{job}, FlowID: m.FlowID, Attempt: m.Attempt,
		ReplyTo: m.Key(), TargetContext: l.context,
	}
	command := fmt.Sprintf("result:%s:%d:%d:%d", m.Key(), m.CreatedAt, job.ID, m.Attempt)
	if context, key, ok := readOrigin(m.Origin); ok {
		out.TargetContext, out.ReplyTo, out.Via, out.FlowID = context, key, m.Via, 0
		_, _, err := l.r.db.Send(ctx, l.context, command, out)
		return taken(err)
	}
	if full, err := l.r.full(ctx, l.context); err != nil || full {
		return err
	}
	_, _, err := l.r.db.Arrive(ctx, l.context, command, out)
	return taken(err)
}

// taken: an id that is another message's cannot be ours, which are derived.
func taken(err error) error {
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

// brokenEnd notes a job whose message did not get through.
const brokenEnd = "broken"

// noteEnd notes the job's end in the message, which ends with its last job.
func (l *contextLoop) noteEnd(ctx context.Context, m hero.Message, job hero.Job, e end) error {
	said := string(e.status)
	if e.broken != "" {
		said = brokenEnd
		if err := l.appendLog(ctx, m, "error", fmt.Sprintf("job %d: %s", job.ID, e.broken)); err != nil {
			return err
		}
	}
	if err := l.note(ctx, m.Key(), numbered(endedAs, job.ID), said); err != nil {
		return err
	}
	if e.broken != "" {
		l.log.Warn("router: a job did not get through", zap.String("message", m.Key()), zap.Uint32("job", job.ID), zap.String("why", e.broken))
	}
	if err := l.r.o.at("noted", m.Key()); err != nil {
		return err
	}
	return l.conclude(ctx, m)
}

// conclude ends a message all of whose jobs ended.
func (l *contextLoop) conclude(ctx context.Context, m hero.Message) error {
	list, err := wanted(m)
	if err != nil {
		return nil //nolint:nilerr // it was read before: it has jobs
	}
	to := hero.MessageProcessed
	for _, other := range list {
		v, err := l.noted(ctx, m.Key(), numbered(endedAs, other.job.ID))
		if err != nil {
			return err
		}
		switch v {
		case "":
			return nil // more to come
		case brokenEnd:
			to = hero.MessageError
		}
	}
	return l.finish(ctx, m, to, "")
}

// finish ends the message.
func (l *contextLoop) finish(ctx context.Context, m hero.Message, to hero.MessageStatus, fate string) error {
	change := redisdb.MessageChange{TransportStatus: hero.TransportRead}
	if to == hero.MessageError {
		change.TransportStatus = hero.TransportFailed
	}
	moved, err := l.r.db.MoveMessage(ctx, l.context, m.Key(), to, change)
	if err != nil && !errors.Is(err, edda.Permanent) {
		return err
	}
	if moved {
		if fate == "" {
			fate = string(to)
		}
		l.r.metrics.done(m.MessageType, fate)
	}
	return l.forget(ctx, m.Key())
}

// forget takes a message off the list of those that wait.
func (l *contextLoop) forget(ctx context.Context, key string) error {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return err
	}
	if err := c.ZRem(ctx, awaiting, key).Err(); err != nil {
		return l.r.db.Explain("forget "+key, l.context, err)
	}
	return nil
}

// appendLog appends a line to the message's log.
func (l *contextLoop) appendLog(ctx context.Context, m hero.Message, level, text string) error {
	line := hero.Log{Time: uint32(time.Now().Unix()), Level: level, Source: "router", Text: text}
	err := l.r.db.AppendLog(ctx, l.context, m.Key(), line)
	if errors.Is(err, edda.Permanent) || errors.Is(err, redisdb.ErrNotFound) {
		return nil
	}
	return err
}

// fail ends a message that carries no job in error.
func (l *contextLoop) fail(ctx context.Context, m hero.Message, fate, why string) error {
	if err := l.appendLog(ctx, m, "error", why); err != nil {
		return err
	}
	return l.finish(ctx, m, hero.MessageError, fate)
}

// refuse ends a message, of whatever type, that may not or cannot go: its jobs
// end with the reason, so that no caller waits for them.
func (l *contextLoop) refuse(ctx context.Context, j delivery, m hero.Message, why string) error {
	fate := fateDenied
	if !strings.HasPrefix(why, deniedPrefix) {
		fate = fateError
	}
	list, err := wanted(m)
	if err != nil || m.MessageType != hero.MessageJob {
		return l.fail(ctx, m, fate, why)
	}
	e := broke("%s", why)
	if err := l.appendLog(ctx, m, "error", why); err != nil {
		return err
	}
	for _, route := range list {
		job := route.complete(m, l.context)
		if err := l.drop(ctx, m, job, e); err != nil {
			return err
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

// drop ends the hash of a job that was refused and has not begun, where it is the
// caller's own: a caller that may not send the job of another may not end it either.
func (l *contextLoop) drop(ctx context.Context, m hero.Message, job hero.Job, e end) error {
	if m.FlowID != 0 || job.ContextID != l.context || job.CallerID != m.CallerID {
		return nil
	}
	return absent(l.r.db.DropJob(ctx, l.context, job.CallerID, job.ID, e.result))
}

// result takes a result message to whom it is for. One that answers a message of
// this context settles that; the caller gets it in msg_in.
func (l *contextLoop) result(ctx context.Context, m hero.Message) error {
	if m.TargetContext != 0 && m.TargetContext != l.context || m.Via != "" {
		return l.post(ctx, m)
	}
	asked, ok, err := l.asked(ctx, l.context, m.ReplyTo)
	if err != nil {
		return err
	}
	if !ok {
		return l.stray(ctx, m)
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

// stray is a result of a job that no message brought: it may be a flow's, and it
// is for the caller's msg_in.
func (l *contextLoop) stray(ctx context.Context, m hero.Message) error {
	if m.FlowID != 0 {
		for _, job := range m.Job {
			if e, ok := endOf(job); ok {
				if err := l.report(ctx, m, job, e); err != nil {
					return err
				}
			}
		}
	}
	return l.post(ctx, m)
}

// asked is the message that a result answers: the one it names, or the one that
// brought the job it names.
func (l *contextLoop) asked(ctx context.Context, in uint32, replyTo string) (hero.Message, bool, error) {
	if caller, id, err := hero.ParseJobKey(replyTo); err == nil {
		job, err := l.r.db.Job(ctx, in, caller, id)
		if err != nil {
			return hero.Message{}, false, absent(err)
		}
		replyTo = job.MessageKey
	}
	caller, id, err := hero.ParseMessageKey(replyTo)
	if err != nil {
		return hero.Message{}, false, nil
	}
	m, err := l.r.db.Message(ctx, in, caller, id)
	if err != nil {
		return hero.Message{}, false, absent(err)
	}
	run, err := l.runOf(ctx, m) // the end of a flow is the flow's to tell
	return m, m.MessageType == hero.MessageJob && run == "", err
}

// absent drops the error of an object that is missing or cannot be read.
func absent(err error) error {
	if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, edda.Permanent) {
		return nil
	}
	return err
}

// answeredBy is the job of the message that a result answers: the one that the
// result carries, else the first.
func answeredBy(asked, m hero.Message) (jobRoute, bool) {
	list, err := wanted(asked)
	if err != nil {
		return jobRoute{}, false
	}
	if len(m.Job) == 0 {
		return list[0], true
	}
	i := slices.IndexFunc(list, func(e jobRoute) bool { return e.job.ID == m.Job[0].ID })
	if i < 0 {
		return jobRoute{}, false
	}
	return list[i], true
}

// endIn reads the end that a result message tells of a job of the message that it
// answers: from the job that it carries, else from the job's hash, else from its text.
func (l *contextLoop) endIn(ctx context.Context, asked, m hero.Message) (hero.Job, end, bool, error) {
	route, ok := answeredBy(asked, m)
	if !ok {
		return hero.Job{}, end{}, false, nil
	}
	job := route.complete(asked, l.context)
	if len(m.Job) > 0 {
		if e, ok := endOf(m.Job[0]); ok {
			return job, e, true, nil
		}
	}
	e, err := l.recorded(ctx, job)
	if err == nil && !e.waits() {
		return job, e, true, nil
	}
	if err = absent(err); err != nil {
		return hero.Job{}, end{}, false, err
	}
	result := hero.ReadResult(m.Message)
	e = end{status: hero.JobFinished, result: result}
	if _, failed := result[hero.ResultError]; failed {
		e.status = hero.JobError
	}
	return job, e, true, nil
}

// endOf is the end that a job tells of itself.
func endOf(j hero.Job) (end, bool) {
	return end{status: j.Status, result: j.Result}, j.Status.Ended()
}
