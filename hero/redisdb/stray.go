package redisdb

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"edda/hero"
)

// A stray is a job with the status waiting_for_prerequisites that no part of Edda queued or
// holds. A foreign client wrote its hash and pushed it to no queue.

// strayPage is how many keys one look at a context passes: about a millisecond of Redis.
const strayPage = 1000

// Strays looks at a page of a context's keys, and returns the jobs outside of flows and
// messages whose status is waiting_for_prerequisites, that are not among those that wait
// here, and that wait for nothing any more. It goes on at next, and has seen all at 0.
func (d *DB) Strays(ctx context.Context, in uint32, cursor uint64) (found []hero.Job, next uint64, err error) {
	const op = "look for jobs that nobody releases"
	c, err := d.tenant(op, in)
	if err != nil {
		return nil, cursor, err
	}
	var keys []string
	err = d.try(ctx, op, in, func() error {
		page, n, err := c.ScanType(ctx, cursor, "job:*", strayPage, "hash").Result()
		if err != nil {
			return err
		}
		keys, next = nil, n
		pipe := c.Pipeline()
		statuses := make([]*redis.StringCmd, len(page))
		for i, key := range page {
			statuses[i] = pipe.HGet(ctx, key, "status")
		}
		if err := network(pipe.Exec(ctx)); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for i, key := range page {
			if s, err := hero.ParseJobStatus(statuses[i].Val()); err == nil && s == hero.JobWaiting && hero.IsJobKey(key) {
				keys = append(keys, key)
			}
		}
		return nil
	})
	if err != nil || len(keys) == 0 {
		return nil, next, err
	}
	held := make([]*redis.FloatCmd, len(keys))
	err = d.try(ctx, op, in, func() error {
		pipe := c.Pipeline()
		for i, key := range keys {
			held[i] = pipe.ZScore(ctx, waitingKey, key)
		}
		return network(pipe.Exec(ctx))
	})
	if err != nil {
		return nil, cursor, err
	}
	list, err := d.waiters(ctx, in, c, keys)
	for i, w := range list {
		if errors.Is(held[i].Err(), redis.Nil) && !w.broken && w.job.Status == hero.JobWaiting && w.job.Waits() && w.job.MessageKey == "" && w.gate != GateClosed {
			found = append(found, w.job)
		}
	}
	return found, next, err
}

// InFlows tells which of some jobs the flows of the context name: those are the flows' to
// release, also when they did not start yet. It fails where a flow cannot be read.
func (d *DB) InFlows(ctx context.Context, in uint32, jobs []hero.Job) (map[string]bool, error) {
	flows, err := d.Flows(ctx, in)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, j := range jobs {
		out[j.Key()] = slices.ContainsFunc(flows, func(f hero.Flow) bool {
			return f.CallerID == j.CallerID && (slices.Contains(f.Jobs, j.ID) || slices.ContainsFunc(f.Nodes, func(n hero.FlowNode) bool { return n.ID == j.ID }))
		})
	}
	return out, nil
}

// adoptScript has a stray wait here, unless it changed or lies in a list that it is run
// from. The lists that runners took jobs into are no KEYS, which one must have the right
// to write. KEYS job, waiting, queue. ARGV: until, queue.
var adoptScript = redis.NewScript(`
local status = string.gsub(string.lower(redis.call('HGET', KEYS[1], 'status') or ''), '[^a-z]', '')
if status ~= 'waitingforprerequisites' or redis.call('ZSCORE', KEYS[2], KEYS[1]) then return 0 end
if redis.call('LPOS', KEYS[3], KEYS[1]) then return 0 end
for _, list in ipairs(redis.call('SMEMBERS', '` + RunningLists + `')) do
  if redis.call('LPOS', list, KEYS[1]) then return 0 end
end
redis.call('HSETNX', KEYS[1], '` + waitsField + `', ARGV[1])
redis.call('HSET', KEYS[1], '` + pushField + `', KEYS[1], '` + ontoField + `', ARGV[2])
redis.call('ZADD', KEYS[2], redis.call('HGET', KEYS[1], '` + waitsField + `'), KEYS[1])
return 1`)

// RunningLists names the lists that runners of a context took jobs into.
const RunningLists = "edda:running"

// Adopt puts a stray among the jobs that wait here, so that Release queues it for the
// runners of its type, or ends it.
func (d *DB) Adopt(ctx context.Context, in uint32, j hero.Job) (adopted bool, err error) {
	op := "have " + j.Key() + " wait"
	c, err := d.tenant(op, in)
	if err != nil {
		return false, err
	}
	queue := j.ScriptType.Queue()
	until := d.now().Add(j.WaitsAtMost()).Unix()
	err = d.try(ctx, op, in, func() error {
		n, err := adoptScript.Run(ctx, c, []string{j.Key(), waitingKey, queue}, until, queue).Int()
		adopted = n == 1
		return err
	})
	return adopted, err
}
