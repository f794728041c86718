package redisdb

import (
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

// This file is how a job outside of a flow waits for the jobs that it depends on and
// for its prerequisites. A flow orders its own jobs.

// Gate tells whether a job may run as far as what it waits for is concerned.
type Gate int

// The gates.
const (
	GateOpen   Gate = iota
	GateClosed      // something is still to come
	GateFailed      // a job that it depends on failed, or the wait took too long
)

const (
	// waitingKey is a context's sorted list of jobs that wait, by when they are given up.
	waitingKey = "edda:waiting"
	// Fields of ours in a waiting job's hash: when it is given up, and what is pushed
	// on which list once it may run.
	waitsField, pushField, ontoField = "edda_waits_until", "edda_push", "edda_onto"
	// releasePage bounds the waiting jobs that are read at a time, and releaseMost those of
	// one look: with ten thousand waiting a look still takes Redis some milliseconds.
	releasePage, releaseMost = 500, 1000
)

// waitFields are what of a job's hash says what it waits for, and for whom.
var waitFields = []string{"id", "caller_id", "context_id", "flow_id", "message_key", "queue_timeout", "status", "script_type", "executor",
	"prerequisites", "met", "dependends", "depends", "dependencies", waitsField}

// Gate looks at what the job waits for. why says what is missing or what failed.
func (d *DB) Gate(ctx context.Context, in uint32, j hero.Job) (g Gate, why string, err error) {
	if !j.Waits() {
		return GateOpen, "", nil
	}
	op := "look at what " + j.Key() + " waits for"
	c, err := d.tenant(op, in)
	if err != nil {
		return GateClosed, "", err
	}
	err = d.try(ctx, op, in, func() error {
		pipe := c.Pipeline()
		needs := make([]*redis.SliceCmd, len(j.Dependends))
		for i, id := range j.Dependends {
			needs[i] = pipe.HMGet(ctx, hero.JobKey(j.CallerID, id), "id", "status", "result")
		}
		until := pipe.HGet(ctx, j.Key(), waitsField)
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		g, why = gateOf(j, needs)
		if at, err := until.Int64(); g == GateClosed && err == nil && d.now().Unix() >= at {
			g, why = GateFailed, fmt.Sprintf("queue_timeout: not met within %s: %s", j.WaitsAtMost(), why)
		}
		return nil
	})
	return g, why, err
}

// gateOf decides by what the hashes of the other jobs say.
func gateOf(j hero.Job, needs []*redis.SliceCmd) (Gate, string) {
	var missing []string
	for i, id := range j.Dependends {
		h := needs[i].Val()
		text, _ := h[1].(string)
		status, err := hero.ParseJobStatus(text)
		switch {
		case h[0] == nil:
			missing = append(missing, fmt.Sprintf("job %d is not there", id))
		case err == nil && status == hero.JobError:
			result, _ := h[2].(string)
			return GateFailed, fmt.Sprintf("dependency %d failed: %s", id, failureIn(result))
		case err != nil || status != hero.JobFinished:
			missing = append(missing, fmt.Sprintf("job %d has not finished", id))
		}
	}
	for _, name := range j.Prerequisites {
		if !slices.Contains(j.Met, name) {
			missing = append(missing, fmt.Sprintf("prerequisite %q is not met", name))
		}
	}
	if len(missing) > 0 {
		return GateClosed, strings.Join(missing, ", ")
	}
	return GateOpen, ""
}

// failureIn is why a job failed, by the text of its result.
func failureIn(result string) string {
	if why := hero.ReadResult(result)[hero.ResultError]; why != "" {
		return why
	}
	return "it did not say why"
}

// holdScript has a job wait and takes its key off the list it was taken into. 0: it is
// gone or ended. KEYS job, waiting, list taken into. ARGV: until, push, onto, now.
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

// Hold has a job wait, for its queue timeout at most: once its gate is not closed, push goes onto that list. into,
// where not empty, is the list that the job's key was taken into, and leaves.
func (d *DB) Hold(ctx context.Context, in uint32, j hero.Job, push, onto, into string) error {
	op := "have " + j.Key() + " wait"
	c, err := d.tenant(op, in)
	if err != nil {
		return err
	}
	keys := []string{j.Key(), waitingKey}
	if into != "" {
		keys = append(keys, into)
	}
	until := d.now().Add(j.WaitsAtMost()).Unix()
	hold := func() (bool, error) {
		return true, holdScript.Run(ctx, c, keys, until, push, onto, d.seconds()).Err()
	}
	return d.try(ctx, op, in, func() error {
		if into == "" {
			_, err := hold()
			return err
		}
		return d.intakes.at(place{in, into}).leaves(j.Key(), hold)
	})
}

// waiter is a job that waits, as far as its gate is concerned.
type waiter struct {
	job    hero.Job
	broken bool // its hash cannot be read
	looks  bool // it still waits
	gate   Gate
}

// waiters look at the gates of some jobs in two trips. The gate of one that is gone, or
// that waits no more, is open.
func (d *DB) waiters(ctx context.Context, in uint32, c *database, keys []string) ([]waiter, error) {
	out := make([]waiter, len(keys))
	err := d.try(ctx, "look at the jobs that wait", in, func() error {
		pipe := c.Pipeline()
		hashes := make([]*redis.SliceCmd, len(keys))
		for i, key := range keys {
			hashes[i] = pipe.HMGet(ctx, key, waitFields...)
		}
		if err := network(pipe.Exec(ctx)); err != nil {
			return err
		}
		until, needs := make([]int64, len(keys)), make([][]*redis.SliceCmd, len(keys))
		pipe = c.Pipeline()
		for i, key := range keys {
			h := map[string]string{}
			for n, v := range hashes[i].Val() {
				if text, ok := v.(string); ok {
					h[waitFields[n]] = text
				}
			}
			if out[i] = (waiter{}); len(h) == 0 && hashes[i].Err() == nil {
				continue
			}
			var err error
			out[i].job, err = jobOf(in)(key, h)
			j := out[i].job
			out[i].broken = err != nil || hashes[i].Err() != nil
			out[i].looks = !out[i].broken && j.Waits() && !j.Status.Ended() && j.Status != hero.JobStarted
			if !out[i].looks {
				continue
			}
			until[i], _ = strconv.ParseInt(h[waitsField], 10, 64)
			for _, id := range j.Dependends {
				needs[i] = append(needs[i], pipe.HMGet(ctx, hero.JobKey(j.CallerID, id), "id", "status", "result"))
			}
		}
		if err := network(pipe.Exec(ctx)); err != nil {
			return err
		}
		for i := range keys {
			if j := out[i].job; out[i].looks {
				if out[i].gate, _ = gateOf(j, needs[i]); out[i].gate == GateClosed && until[i] != 0 && d.now().Unix() >= until[i] {
					out[i].gate = GateFailed
				}
			}
		}
		return nil
	})
	return out, err
}

// network is the error of a pipeline that did not get through; what Redis said of one
// command is in the command.
func network(_ []redis.Cmder, err error) error {
	var said redis.Error
	if errors.As(err, &said) && !redis.HasErrorPrefix(err, "LOADING") && !redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}

// releaseScript ends a job's waiting and pushes the key that Hold named, once. A job that
// was queued or begun meanwhile is not pushed a second time.
// KEYS job, waiting, list. ARGV: push, now, attempt.
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

// Release lets the waiting jobs of a context go whose gate opened, and ends those that
// can never run. It looks at releaseMost of them from that place on; next is where the
// next look begins, 0 once all were looked at. waiting tells whether there were any. Any
// number of processes may do it at once.
func (d *DB) Release(ctx context.Context, in uint32, from int64) (next int64, waiting bool, err error) {
	const op = "look at the jobs that wait"
	c, err := d.tenant(op, in)
	if err != nil {
		return from, false, err
	}
	for looked := 0; looked < releaseMost; looked += releasePage {
		var page []string
		err := d.try(ctx, op, in, func() (err error) {
			page, err = c.ZRange(ctx, waitingKey, from, from+releasePage-1).Result()
			return err
		})
		if err != nil || len(page) == 0 {
			return 0, from > 0, err
		}
		waiting = true
		list, err := d.waiters(ctx, in, c, page)
		if err != nil {
			return from, waiting, err
		}
		for i, w := range list {
			gone := false
			if !w.broken && w.gate != GateClosed { // a broken one stays until it is repaired or deleted
				if gone, err = d.releaseOne(ctx, in, c, page[i]); err != nil {
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

// releaseOne looks at one waiting job; gone tells that it waits no more.
func (d *DB) releaseOne(ctx context.Context, in uint32, c *database, key string) (gone bool, err error) {
	var j hero.Job
	var h map[string]string
	err = d.try(ctx, "read "+key, in, func() error {
		j, h, err = load(ctx, c, key, jobOf(in))
		return err
	})
	var broken *hero.FieldError
	switch {
	case errors.As(err, &broken):
		return false, nil // until it is repaired or deleted
	case err != nil:
		return false, err
	case len(h) == 0:
		return true, d.unwait(ctx, in, c, key)
	case j.Status.Ended():
		return true, d.tellWaited(ctx, in, c, j)
	case j.Status == hero.JobStarted: // another process released it
		return true, d.unwait(ctx, in, c, key)
	}
	g, why, err := d.Gate(ctx, in, j)
	switch {
	case err != nil || g == GateClosed:
		return false, err
	case g == GateOpen:
		return true, d.try(ctx, "release "+key, in, func() error {
			return releaseScript.Run(ctx, c, []string{key, waitingKey, h[ontoField]}, h[pushField], d.seconds(), max(j.Attempt, 1)).Err()
		})
	}
	j, _, err = d.MoveJob(ctx, in, j.CallerID, j.ID, hero.JobError, map[string]string{hero.ResultError: why})
	if err != nil && !errors.Is(err, edda.Permanent) {
		return false, err
	}
	return err == nil, d.tellWaited(ctx, in, c, j)
}

// tellWaited sends word of a job that ended while it waited; the job leaves the list
// last, so that the word is sent though this is cut off.
func (d *DB) tellWaited(ctx context.Context, in uint32, c *database, j hero.Job) error {
	if !j.Status.Ended() {
		return nil
	}
	m := hero.EndMessage(j, in)
	command := "waited/" + j.Key() + "/" + strconv.FormatUint(uint64(j.CreatedAt), 10) + "/" + strconv.FormatUint(uint64(j.Attempt), 10)
	if _, _, err := d.Send(ctx, in, command, m); err != nil {
		return err
	}
	return d.unwait(ctx, in, c, j.Key())
}

// Unhold removes a job from those that wait: the caller has looked at its gate.
func (d *DB) Unhold(ctx context.Context, in uint32, key string) error {
	c, err := d.tenant("forget that "+key+" waits", in)
	if err != nil {
		return err
	}
	return d.unwait(ctx, in, c, key)
}

func (d *DB) unwait(ctx context.Context, in uint32, c *database, key string) error {
	return d.try(ctx, "forget that "+key+" waits", in, func() error { return c.ZRem(ctx, waitingKey, key).Err() })
}

// MeetJob notes that a prerequisite of a job outside of a flow holds.
func (d *DB) MeetJob(ctx context.Context, in, caller, id uint32, name string) (j hero.Job, err error) {
	key := hero.JobKey(caller, id)
	err = update(ctx, d, in, key, jobOf(in), func(was hero.Job, h map[string]string) (change, error) {
		if len(h) == 0 {
			return change{}, missing(key)
		}
		if j = was; slices.Contains(was.Met, name) {
			return change{}, nil
		}
		j.Met, j.UpdatedAt = append(slices.Clone(was.Met), name), d.seconds()
		return change{guard: "met", set: pick(hero.Fields(j), "met", "updated_at")}, nil
	})
	return j, err
}
