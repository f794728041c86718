package redisdb

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"edda/hero"
)

// A stray is a job with the status waiting_for_prerequisites that no part of Edda queued or
// holds. Another program wrote its hash and pushed its key on no queue.

// strayPage is the number of keys that one Strays passes: about a millisecond of Redis.
const strayPage = 1000

// Strays reads a page of a context's keys. It returns the jobs outside of flows and
// messages that have the status waiting_for_prerequisites, do not wait here, and have
// everything that they wait for. Call it again with next, which is 0 after the last page.
func (d *DB) Strays(ctx context.Context, in uint32, cursor uint64) (found []hero.Job, next uint64, err error) {
	var keys []string
	err = d.at(ctx, "look for stray jobs", in, "job:", func(c *database) error {
		page, n, err := c.ScanType(ctx, cursor, "job:*", strayPage, "hash").Result()
		if err != nil {
			return err
		}
		keys, next = nil, n
		hashes, err := lookup(ctx, c, page, "status")
		if err != nil {
			return err
		}
		var candidates []string
		for i, key := range page {
			if s, err := hero.ParseJobStatus(hashes[i]["status"]); err == nil && s == hero.JobWaiting && hero.IsKey("job", key) {
				candidates = append(candidates, key)
			}
		}
		if len(candidates) == 0 {
			return nil
		}
		pipe, scores := c.Pipeline(), make([]*redis.FloatCmd, len(candidates))
		for i, key := range candidates {
			scores[i] = pipe.ZScore(ctx, waitingKey, key)
		}
		if err := pipelined(pipe.Exec(ctx)); err != nil {
			return err
		}
		for i, key := range candidates {
			if errors.Is(scores[i].Err(), redis.Nil) {
				keys = append(keys, key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, cursor, err
	}
	list, err := d.waiters(ctx, in, keys)
	for _, w := range list {
		if !w.broken && w.job.Status == hero.JobWaiting && w.job.Waits() && w.job.MessageKey == "" && w.gate != GateClosed {
			found = append(found, w.job)
		}
	}
	return found, next, err
}

// InFlows returns the keys of the jobs that the flows of the context name. Their flows
// release them, also before they start. It fails where a flow cannot be read.
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

// adoptScript has a stray wait here, unless it changed or lies in a list that runners take it
// from or took it into. The latter are no KEYS: a user needs the right to write to those.
// KEYS job, waiting, queue. ARGV: end of the wait, queue.
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

// RunningLists is the set of the lists that the runners of a context took jobs into.
const RunningLists = "edda:running"

// Adopt has a stray wait here: Release queues it for the runners of its type, or ends it.
func (d *DB) Adopt(ctx context.Context, in uint32, j hero.Job) (adopted bool, err error) {
	queue := j.ScriptType.Queue()
	until := d.now().Add(j.WaitsAtMost()).Unix()
	n, err := d.script(ctx, "have "+j.Key()+" wait", in, adoptScript, []string{j.Key(), waitingKey, queue}, until, queue)
	return n == 1, err
}
