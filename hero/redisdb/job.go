package redisdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// stepField marks a job or message with its last step, which is recognised by it when its
// answer was lost.
const stepField = "edda_step"

// Job reads a job.
func (d *DB) Job(ctx context.Context, in, caller, id uint32) (hero.Job, error) {
	return get(ctx, d, in, hero.JobKey(caller, id), jobOf(in))
}

// jobOf reads the jobs of one context. A job that names no context is of that one; a job
// that names another context runs there.
func jobOf(in uint32) read[hero.Job] {
	return func(key string, h map[string]string) (hero.Job, error) {
		j, err := hero.ReadJob(key, h)
		j.ContextID = cmp.Or(j.ContextID, in)
		return j, err
	}
}

// Peeked is the status of a job, and the flow and attempt that it belongs to.
type Peeked struct {
	Status          hero.JobStatus
	FlowID, Attempt uint32
}

// PeekJobs reads the statuses of some jobs in one trip. A job that is missing or cannot
// be read has no status.
func (d *DB) PeekJobs(ctx context.Context, in uint32, keys []string) ([]Peeked, error) {
	out := make([]Peeked, len(keys))
	err := d.at(ctx, "look at jobs", in, "job:", func(c *database) error {
		hashes, err := lookup(ctx, c, keys, "status", "flow_id", "attempt")
		for i, h := range hashes {
			r := hero.ReadHash(keys[i], h)
			status, _ := hero.ParseJobStatus(h["status"])
			out[i] = Peeked{status, r.Number("flow_id"), r.Number("attempt")}
		}
		return err
	})
	return out, err
}

// PutJob creates or replaces a job of context j.ContextID. The status of an existing job
// takes legal steps only, else ErrIllegal.
func (d *DB) PutJob(ctx context.Context, j hero.Job) error {
	return put(ctx, d, j.ContextID, j, "status", hero.ReadJob, func(was hero.Job) error {
		if !was.Status.MayBecome(j.Status) {
			return illegal(was.Key(), string(was.Status), string(j.Status))
		}
		return nil
	})
}

// ClaimJob writes the job if there is none. If may accepts the one that exists, ClaimJob
// notes the message that carries it now. It returns the job as it is in Redis.
func (d *DB) ClaimJob(ctx context.Context, j hero.Job, may func(was hero.Job) bool) (now hero.Job, err error) {
	err = update(ctx, d, j.ContextID, j.Key(), jobOf(j.ContextID), func(was hero.Job, h map[string]string) (change, error) {
		if len(h) == 0 {
			now = j
			d.stamp(&now.CreatedAt, &now.UpdatedAt, 0)
			return change{guard: "id", set: hero.Fields(now)}, nil
		}
		if now = was; !may(was) || was.MessageKey == j.MessageKey {
			return change{}, nil
		}
		now.MessageKey = j.MessageKey
		if len(was.Dependends) == 0 { // the message may add what the job waits for
			now.Dependends = j.Dependends
		}
		if len(was.Prerequisites) == 0 {
			now.Prerequisites = j.Prerequisites
		}
		return change{guard: "message_key", set: pick(hero.Fields(now), "message_key", "dependends", "prerequisites")}, nil
	})
	return now, err
}

// Jobs lists all jobs of a context, by caller and id. About an error see Flows.
func (d *DB) Jobs(ctx context.Context, in uint32) ([]hero.Job, error) {
	return scan(ctx, d, in, "job", jobOf(in))
}

// deleteScript deletes a job, and its caller from the index of the callers that have a job
// of its id. The command that Redis may refuse comes first. KEYS job, index. ARGV: caller.
var deleteScript = redis.NewScript(`
redis.call('SREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])`)

// DeleteJob deletes a job that exists and can be read, and the index by which a supervisor
// finds it.
func (d *DB) DeleteJob(ctx context.Context, in, caller, id uint32) error {
	if _, err := d.Job(ctx, in, caller, id); err != nil {
		return err
	}
	key := hero.JobKey(caller, id)
	_, err := d.script(ctx, "delete "+key, in, deleteScript, []string{key, hero.JobCallersKey(id)}, caller)
	return err
}

// MoveJob sets a job's status, by a legal step, and its result unless that is nil. A job
// that has the status already stays as it is: moved is false. Any other step is
// ErrIllegal; a job that ended never changes.
func (d *DB) MoveJob(ctx context.Context, in, caller, id uint32, to hero.JobStatus, result map[string]string) (j hero.Job, moved bool, err error) {
	return d.stepJob(ctx, in, hero.JobKey(caller, id), func(j *hero.Job) (bool, error) {
		if j.Status == to {
			return false, nil
		}
		if !j.Status.MayBecome(to) {
			return false, illegal(j.Key(), string(j.Status), string(to))
		}
		if j.Status = to; result != nil {
			j.Result = maps.Clone(result)
		}
		return true, nil
	})
}

// DropJob ends a job in error if it belongs to no flow and has not begun. Any other job
// stays as it is.
func (d *DB) DropJob(ctx context.Context, in, caller, id uint32, result map[string]string) error {
	_, _, err := d.stepJob(ctx, in, hero.JobKey(caller, id), func(j *hero.Job) (bool, error) {
		if j.FlowID != 0 || j.Status == hero.JobStarted || j.Status.Ended() {
			return false, nil
		}
		j.Status, j.Result = hero.JobError, maps.Clone(result)
		return true, nil
	})
	return err
}

// RetryJob sets a job that started or failed back to dispatched, without a result.
func (d *DB) RetryJob(ctx context.Context, in, caller, id uint32) (hero.Job, error) {
	j, _, err := d.stepJob(ctx, in, hero.JobKey(caller, id), func(j *hero.Job) (bool, error) {
		if !j.Status.MayRetry() {
			return false, illegal(j.Key(), string(j.Status), "retried")
		}
		j.Status, j.Result = hero.JobDispatched, map[string]string{}
		return true, nil
	})
	return j, err
}

func illegal(key, from, to string) error {
	return edda.Classify(edda.Permanent, "%s is %s and cannot become %s: %w", key, from, to, ErrIllegal)
}

// stepJob changes a job's status and result if step returns true.
func (d *DB) stepJob(ctx context.Context, in uint32, key string, step func(*hero.Job) (bool, error)) (j hero.Job, moved bool, err error) {
	mark := rand.Text()
	err = edit(ctx, d, in, key, jobOf(in), func(was hero.Job, h map[string]string) (change, error) {
		if j = was; h[stepField] == mark {
			return change{}, nil // an earlier try wrote it, and its answer was lost
		}
		if moved, err = step(&j); err != nil || !moved {
			return change{}, err
		}
		j.UpdatedAt = d.seconds()
		set := pick(hero.Fields(j), "status", "result", "updated_at")
		set[stepField] = mark
		return change{guard: "status", set: set}, nil
	})
	return j, moved && err == nil, err
}

// pick returns some of the fields.
func pick(fields map[string]string, names ...string) map[string]string {
	out := make(map[string]string, len(names)+1)
	for _, name := range names {
		if v, ok := fields[name]; ok {
			out[name] = v
		}
	}
	return out
}
