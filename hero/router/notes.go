package router

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/supervisor"
)

// What the router notes in a message's hash, in fields of its own, each with the
// job's id at its end.
const (
	routedTo = "edda_routed_to:" // the target that a job was, or is about to be, sent to
	endedAs  = "edda_ended:"     // the job's end is settled
	sentTo   = "edda_sent_to:"   // the other context that the job was, or is about to be, sent to
	calledAs = "edda_request:"   // the id of the JSON-RPC request that has, or is about to have, it run
)

// place is a context as a message notes that its job went there: of this Redis, or
// of the node of an actor. Only a result from there settles the job.
func place(context, actor uint32) string { return fmt.Sprintf("%d at %d", context, actor) }

// awaiting is the context's sorted list of messages that wait for a runner or for
// another context, by when they are given up.
const awaiting = "edda:awaiting"

// noteScript writes fields into a hash that is there.
var noteScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
return redis.call('HSET', KEYS[1], unpack(ARGV))`)

// note writes fields of the router's own into a message.
func (l *contextLoop) note(ctx context.Context, key string, fields ...any) error {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return err
	}
	if err := noteScript.Run(ctx, c, []string{key}, fields...).Err(); err != nil {
		return l.r.db.Explain("note in "+key, l.context, err)
	}
	return nil
}

func (l *contextLoop) noted(ctx context.Context, key, field string) (string, error) {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return "", err
	}
	v, err := c.HGet(ctx, key, field).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", l.r.db.Explain("read "+key, l.context, err)
	}
	return v, nil
}

func numbered(field string, id uint32) string { return field + strconv.FormatUint(uint64(id), 10) }

// route notes where a job goes before it is sent, and by which request, so that after a
// crash that target is asked, no other one gets it, and its reply is known.
func (l *contextLoop) route(ctx context.Context, m hero.Message, id uint32, t target, request string) error {
	return l.note(ctx, m.Key(), numbered(routedTo, id), t.name, numbered(calledAs, id), request, "topic", t.topic,
		"target_context", l.context, "transport_status", hero.TransportSent)
}

// request notes the id of a further request that is about to have the job run.
func (l *contextLoop) request(ctx context.Context, m hero.Message, id uint32, request string) error {
	return l.note(ctx, m.Key(), numbered(calledAs, id), request)
}

func (l *contextLoop) requested(ctx context.Context, m hero.Message, id uint32) (string, error) {
	return l.noted(ctx, m.Key(), numbered(calledAs, id))
}

func (l *contextLoop) routed(ctx context.Context, m hero.Message, id uint32) (string, error) {
	return l.noted(ctx, m.Key(), numbered(routedTo, id))
}

// unroute forgets a target that was certainly not reached.
func (l *contextLoop) unroute(ctx context.Context, m hero.Message, id uint32) error {
	return l.note(ctx, m.Key(), numbered(routedTo, id), "", "transport_status", hero.TransportQueued)
}

// ended tells whether the job's end was settled before.
func (l *contextLoop) ended(ctx context.Context, m hero.Message, id uint32) (bool, error) {
	v, err := l.noted(ctx, m.Key(), numbered(endedAs, id))
	return v != "", err
}

// expect has the message watched until its result is in.
func (l *contextLoop) expect(ctx context.Context, m hero.Message, job hero.Job) error {
	within := resultWithin(m, job)
	if list, err := wanted(m); err == nil { // they are watched together
		for _, other := range list {
			within = max(within, resultWithin(m, other.complete(m, l.context)))
		}
	}
	return l.expectWithin(ctx, m, within)
}

// expectWithin has the message watched for so long, from when it is said first.
func (l *contextLoop) expectWithin(ctx context.Context, m hero.Message, within time.Duration) error {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return err
	}
	err = c.ZAddNX(ctx, awaiting, redis.Z{Score: float64(time.Now().Add(within).Unix()), Member: m.Key()}).Err()
	if err != nil {
		return l.r.db.Explain("watch "+m.Key(), l.context, err)
	}
	return nil
}

// acknowledged writes down that the receiver has it, and tells the flow; both are
// only news, so what fails is left.
func (l *contextLoop) acknowledged(ctx context.Context, m hero.Message, job hero.Job, p supervisor.Progress) {
	to := hero.MessageDispatched
	if p.Acknowledged {
		to = hero.MessageAcknowledged
	}
	change := redisdb.MessageChange{TransportID: p.MessageID, TransportStatus: p.Status, TargetContext: l.context}
	_, _ = l.r.db.MoveMessage(ctx, l.context, m.Key(), to, change)
	if !p.Acknowledged || m.FlowID == 0 || l.r.o.Flows == nil {
		return
	}
	ctx, done := context.WithTimeout(ctx, reportWait)
	defer done()
	_ = l.r.o.Flows.Report(ctx, l.reportOf(m, job, hero.NodeDispatched, nil))
}

func (l *contextLoop) reportOf(m hero.Message, job hero.Job, status hero.NodeStatus, result map[string]string) hero.Report {
	return hero.Report{
		ID:        fmt.Sprintf("%d/%s/%d/%s", l.context, m.Key(), job.ID, status),
		ContextID: l.context, FlowID: m.FlowID, Node: job.ID, Attempt: m.Attempt, Status: status, Result: result,
	}
}
