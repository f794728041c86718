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

// Fields of the router's own in a message's hash, each with the job's id at its end.
const (
	routedTo = "edda_routed_to:" // the target of the job; written before the job is sent
	endedAs  = "edda_ended:"     // the job's end is settled
	sentTo   = "edda_sent_to:"   // the other context that gets the job; written before that
	calledAs = "edda_request:"   // the id of the JSON-RPC request job.run; written before it is sent
)

// place names a context as a message notes it in sentTo: of this Redis, or of the node of
// an actor. Only a result from there settles the job.
func place(context, actor uint32) string { return fmt.Sprintf("%d at %d", context, actor) }

// awaiting is the context's sorted list of messages that wait for a runner or for another
// context, by the time at which the router gives them up.
const awaiting = "edda:awaiting"

// noteScript writes fields into a hash that exists.
var noteScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
return redis.call('HSET', KEYS[1], unpack(ARGV))`)

// note writes fields of the router's own into a message.
func (l *contextLoop) note(ctx context.Context, key string, fields ...any) error {
	return l.DB.Explain("note in "+key, l.Context, noteScript.Run(ctx, l.Redis, []string{key}, fields...).Err())
}

// noted reads one such field of a job; empty where it is missing.
func (l *contextLoop) noted(ctx context.Context, m hero.Message, field string, job uint32) (string, error) {
	return l.field(ctx, m, numbered(field, job))
}

func (l *contextLoop) field(ctx context.Context, m hero.Message, field string) (string, error) {
	v, err := l.Redis.HGet(ctx, m.Key(), field).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return v, l.DB.Explain("read "+m.Key(), l.Context, err)
}

func numbered(field string, id uint32) string { return field + strconv.FormatUint(uint64(id), 10) }

// expect has watch look at the message until its results are in.
func (l *contextLoop) expect(ctx context.Context, m hero.Message, job hero.Job) error {
	within := resultWithin(m, job)
	if routes, err := routesOf(m); err == nil { // its jobs are watched together
		for _, r := range routes {
			within = max(within, resultWithin(m, r.complete(m, l.Context)))
		}
	}
	return l.expectWithin(ctx, m, within)
}

// expectWithin has watch look at the message for the given time. A message that is
// watched already keeps its time.
func (l *contextLoop) expectWithin(ctx context.Context, m hero.Message, within time.Duration) error {
	until := redis.Z{Score: float64(time.Now().Add(within).Unix()), Member: m.Key()}
	return l.DB.Explain("watch "+m.Key(), l.Context, l.Redis.ZAddNX(ctx, awaiting, until).Err())
}

// forget takes a message off the awaiting list.
func (l *contextLoop) forget(ctx context.Context, key string) error {
	return l.DB.Explain("forget "+key, l.Context, l.Redis.ZRem(ctx, awaiting, key).Err())
}

// acknowledged records that the receiver has the message, and tells the flow. It is best
// effort: the result says as much later.
func (l *contextLoop) acknowledged(ctx context.Context, m hero.Message, job hero.Job, p supervisor.Progress) {
	to := hero.MessageDispatched
	if p.Acknowledged {
		to = hero.MessageAcknowledged
	}
	change := redisdb.MessageChange{TransportID: p.MessageID, TransportStatus: p.Status, TargetContext: l.Context}
	_, _ = l.DB.MoveMessage(ctx, l.Context, m.Key(), to, change)
	if !p.Acknowledged || m.FlowID == 0 || l.r.o.Flows == nil {
		return
	}
	ctx, done := context.WithTimeout(ctx, reportWait)
	defer done()
	_ = l.r.o.Flows.Report(ctx, l.reportOf(m, job, hero.NodeDispatched, nil))
}

func (l *contextLoop) reportOf(m hero.Message, job hero.Job, status hero.NodeStatus, result map[string]string) hero.Report {
	return hero.Report{
		ID:        fmt.Sprintf("%d/%s/%d/%s", l.Context, m.Key(), job.ID, status),
		ContextID: l.Context, FlowID: m.FlowID, Node: job.ID, Attempt: m.Attempt, Status: status, Result: result,
	}
}
