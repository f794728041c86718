package redisdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// Gate reports whether the dependencies and prerequisites of a job outside of a flow let it
// run. A flow orders its own jobs.
type Gate int

// The states of a gate.
const (
	GateOpen   Gate = iota
	GateClosed      // a dependency has not finished, or a prerequisite is not met
	GateFailed      // a dependency failed, or the wait took too long
)

const (
	// waitingKey is a context's sorted set of waiting jobs, by the end of their wait.
	waitingKey = "edda:waiting"
	// Fields of ours in a waiting job's hash: the end of its wait, the key to push once it
	// may run, and the list to push it on.
	waitsField, pushField, ontoField = "edda_waits_until", "edda_push", "edda_onto"
	// releasePage bounds the waiting jobs that one request reads, and releaseMost those of
	// one Release: ten thousand waiting jobs still take Redis some milliseconds.
	releasePage, releaseMost = 500, 1000
)

// waitFields are the fields of a job that decide its gate.
var waitFields = []string{"id", "caller_id", "context_id", "flow_id", "message_key", "queue_timeout", "status", "script_type", "executor",
	"prerequisites", "met", "dependends", "depends", "dependencies", waitsField}

// needFields are the fields of a job that decide the gates of its dependents.
var needFields = []string{"id", "status", "result"}

// Gate reads the job's dependencies and decides its gate. why names what is missing or
// what failed.
func (d *DB) Gate(ctx context.Context, in uint32, j hero.Job) (g Gate, why string, err error) {
	if !j.Waits() {
		return GateOpen, "", nil
	}
	keys := append(needsOf(j), j.Key())
	g = GateClosed
	err = d.at(ctx, "look at what "+j.Key()+" waits for", in, j.Key(), func(c *database) error {
		hashes, err := lookup(ctx, c, keys, append(slices.Clone(needFields), waitsField)...)
		if err != nil {
			return err
		}
		needs, own := hashes[:len(hashes)-1], hashes[len(hashes)-1]
		g, why = d.gateOf(j, needs, own)
		return nil
	})
	return g, why, err
}

// needsOf returns the keys of the jobs that a job depends on.
func needsOf(j hero.Job) []string {
	keys := make([]string, len(j.Dependends))
	for i, id := range j.Dependends {
		keys[i] = hero.JobKey(j.CallerID, id)
	}
	return keys
}

// gateOf decides by the hashes of the dependencies and the job's own.
func (d *DB) gateOf(j hero.Job, needs []map[string]string, own map[string]string) (Gate, string) {
	var missing []string
	for i, id := range j.Dependends {
		h := needs[i]
		status, err := hero.ParseJobStatus(h["status"])
		switch {
		case h["id"] == "":
			missing = append(missing, fmt.Sprintf("job %d is not there", id))
		case err == nil && status == hero.JobError:
			return GateFailed, fmt.Sprintf("dependency %d failed: %s", id, failureIn(h["result"]))
		case err != nil || status != hero.JobFinished:
			missing = append(missing, fmt.Sprintf("job %d has not finished", id))
		}
	}
	for _, name := range j.Prerequisites {
		if !slices.Contains(j.Met, name) {
			missing = append(missing, fmt.Sprintf("prerequisite %q is not met", name))
		}
	}
	if len(missing) == 0 {
		return GateOpen, ""
	}
	why := strings.Join(missing, ", ")
	if until, err := strconv.ParseInt(own[waitsField], 10, 64); err == nil && until != 0 && d.now().Unix() >= until {
		return GateFailed, fmt.Sprintf("queue_timeout: not met within %s: %s", j.WaitsAtMost(), why)
	}
	return GateClosed, why
}

// failureIn returns the reason in the result of a failed job.
func failureIn(result string) string {
	return cmp.Or(hero.ReadResult(result)[hero.ResultError], "it did not say why")
}

// holdScript has a job wait and removes its key from the list that it was taken into. It
// answers 0 if the job is deleted, started or ended. KEYS job, waiting, list taken into.
// ARGV: end of the wait, push, onto, now.
var holdScript = redis.NewScript(`
local status = string.gsub(string.lower(redis.call('HGET', KEYS[1], 'status') or ''), '[^a-z]', '')
local there = redis.call('EXISTS', KEYS[1]) == 1 and status ~= 'finished' and status ~= 'error' and status ~= 'started'
if there then
  redis.call('HSETNX', KEYS[1], '` + waitsField + `', ARGV[1])
  redis.call('HSET', KEYS[1], 'status', 'waiting_for_prerequisites', 'updated_at', ARGV[4], '` + pushField + `', ARGV[2], '` + ontoField + `', ARGV[3])
  redis.call('ZADD', KEYS[2], redis.call('HGET', KEYS[1], '` + waitsField + `'), KEYS[1])
end
if KEYS[3] then redis.call('LREM', KEYS[3], -1, KEYS[1]) end
return there and 1 or 0`)

// Hold has a job wait, for its queue timeout at most. Release pushes push on the list onto
// once the job's gate is open or failed. into, if not empty, is the list that the job's
// key was taken into, and leaves.
func (d *DB) Hold(ctx context.Context, in uint32, j hero.Job, push, onto, into string) error {
	op, keys := "have "+j.Key()+" wait", []string{j.Key(), waitingKey}
	until := d.now().Add(j.WaitsAtMost()).Unix()
	if into == "" {
		_, err := d.script(ctx, op, in, holdScript, keys, until, push, onto, d.seconds())
		return err
	}
	keys = append(keys, into)
	return d.leaves(ctx, op, in, into, j.Key(), func(c *database) (bool, error) {
		return true, holdScript.Run(ctx, c, keys, until, push, onto, d.seconds()).Err()
	})
}

// waiter is a waiting job and its gate.
type waiter struct {
	job    hero.Job
	broken bool // its hash cannot be read
	gate   Gate
}

// waiters decides the gates of some jobs in two trips. The gate of a job that is deleted or
// does not wait is open.
func (d *DB) waiters(ctx context.Context, in uint32, keys []string) ([]waiter, error) {
	out := make([]waiter, len(keys))
	err := d.at(ctx, "read the waiting jobs", in, waitingKey, func(c *database) error {
		hashes, err := lookup(ctx, c, keys, waitFields...)
		if err != nil {
			return err
		}
		var needs []string
		for i, h := range hashes {
			if out[i] = (waiter{broken: h == nil}); len(h) == 0 {
				continue
			}
			j, err := jobOf(in)(keys[i], h)
			out[i] = waiter{job: j, broken: err != nil}
			if err == nil && j.Waits() && !j.Status.Ended() && j.Status != hero.JobStarted {
				out[i].gate = GateClosed // until it is decided
				needs = append(needs, needsOf(j)...)
			}
		}
		found, err := lookup(ctx, c, needs, needFields...)
		if err != nil {
			return err
		}
		for i, w := range out {
			if w.gate == GateClosed {
				n := len(w.job.Dependends)
				out[i].gate, _ = d.gateOf(w.job, found[:n], hashes[i])
				found = found[n:]
			}
		}
		return nil
	})
	return out, err
}

// releaseScript ends a job's wait and pushes the key that Hold named, once. It does not push
// a job that was queued or begun meanwhile. KEYS job, waiting, list. ARGV: push, now, attempt.
var releaseScript = redis.NewScript(hero.QueueLua + `
if redis.call('ZSCORE', KEYS[2], KEYS[1]) == false then return 0 end
local status = string.gsub(string.lower(redis.call('HGET', KEYS[1], 'status') or ''), '[^a-z]', '')
redis.call('HDEL', KEYS[1], '` + waitsField + `')
if status == 'started' or redis.call('LPOS', KEYS[3], ARGV[1]) then
  redis.call('ZREM', KEYS[2], KEYS[1])
  return 0
end
redis.call('HSET', KEYS[1], 'status', 'dispatched', 'updated_at', ARGV[2])
if ARGV[1] == KEYS[1] then
  redis.call('HSET', KEYS[1], '` + queuedField + `', ARGV[3])
  queue(KEYS[3], KEYS[1], '')
else
  redis.call('LPUSH', KEYS[3], ARGV[1])
end
redis.call('ZREM', KEYS[2], KEYS[1])
return 1`)

// Release queues the waiting jobs of a context whose gate is open, and ends those whose gate
// failed. It reads at most releaseMost of them from that place on; next is the place of
// the next call, 0 after the last. waiting tells whether any job waits. Any number of
// processes may call it at once.
func (d *DB) Release(ctx context.Context, in uint32, from int64) (next int64, waiting bool, err error) {
	for looked := 0; looked < releaseMost; looked += releasePage {
		var page []string
		err := d.at(ctx, "read the waiting jobs", in, waitingKey, func(c *database) (err error) {
			page, err = c.ZRange(ctx, waitingKey, from, from+releasePage-1).Result()
			return err
		})
		if err != nil || len(page) == 0 {
			return 0, from > 0, err
		}
		waiting = true
		list, err := d.waiters(ctx, in, page)
		if err != nil {
			return from, waiting, err
		}
		for i, w := range list {
			gone := false
			if !w.broken && w.gate != GateClosed { // a broken one stays until it is repaired or deleted
				if gone, err = d.releaseOne(ctx, in, page[i]); err != nil {
					return from, waiting, err
				}
			}
			if !gone {
				from++
			}
		}
		if len(page) < releasePage {
			return 0, waiting, nil
		}
	}
	return from, waiting, nil
}

// releaseOne decides one waiting job again; gone tells that it does not wait any more.
func (d *DB) releaseOne(ctx context.Context, in uint32, key string) (gone bool, err error) {
	j, h, err := getHash(ctx, d, in, key, jobOf(in))
	var broken *hero.FieldError
	switch {
	case errors.As(err, &broken):
		return false, nil // until it is repaired or deleted
	case errors.Is(err, ErrNotFound):
		return true, d.Unhold(ctx, in, key)
	case err != nil:
		return false, err
	case j.Status.Ended():
		return true, d.tellWaited(ctx, in, j)
	case j.Status == hero.JobStarted: // another process released it
		return true, d.Unhold(ctx, in, key)
	}
	g, why, err := d.Gate(ctx, in, j)
	switch {
	case err != nil || g == GateClosed:
		return false, err
	case g == GateOpen:
		_, err := d.script(ctx, "release "+key, in, releaseScript, []string{key, waitingKey, h[ontoField]}, h[pushField], d.seconds(), max(j.Attempt, 1))
		return true, err
	}
	j, _, err = d.MoveJob(ctx, in, j.CallerID, j.ID, hero.JobError, map[string]string{hero.ResultError: why})
	if err != nil && !errors.Is(err, edda.Permanent) {
		return false, err
	}
	return err == nil, d.tellWaited(ctx, in, j)
}

// tellWaited sends the result of a job that ended while it waited. The job leaves the set of
// waiting jobs last: a crash in between sends the result again, under the same command.
func (d *DB) tellWaited(ctx context.Context, in uint32, j hero.Job) error {
	if !j.Status.Ended() {
		return nil
	}
	command := "waited/" + j.Key() + "/" + decimal(j.CreatedAt) + "/" + decimal(j.Attempt)
	if _, _, err := d.Send(ctx, in, command, hero.EndMessage(j, in)); err != nil {
		return err
	}
	return d.Unhold(ctx, in, j.Key())
}

// Unhold removes a job from those that wait. The caller has decided its gate.
func (d *DB) Unhold(ctx context.Context, in uint32, key string) error {
	return d.at(ctx, "forget that "+key+" waits", in, key, func(c *database) error { return c.ZRem(ctx, waitingKey, key).Err() })
}

// MeetJob records that a prerequisite of a job outside of a flow holds.
func (d *DB) MeetJob(ctx context.Context, in, caller, id uint32, name string) (j hero.Job, err error) {
	key := hero.JobKey(caller, id)
	err = edit(ctx, d, in, key, jobOf(in), func(was hero.Job, _ map[string]string) (change, error) {
		if j = was; slices.Contains(was.Met, name) {
			return change{}, nil
		}
		j.Met, j.UpdatedAt = append(slices.Clone(was.Met), name), d.seconds()
		return change{guard: "met", set: pick(hero.Fields(j), "met", "updated_at")}, nil
	})
	return j, err
}
