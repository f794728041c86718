package redisdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"strconv"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// stepField marks a job or message with the last step that it took, so that a
// step whose answer was lost is known again.
const stepField = "edda_step"

// Job reads a job.
func (d *DB) Job(ctx context.Context, in, caller, id uint32) (hero.Job, error) {
	return get(ctx, d, in, hero.JobKey(caller, id), jobOf(in))
}

// jobOf reads a job of a context's database. One that names no context is of that;
// one that names another is to run there.
func jobOf(in uint32) read[hero.Job] {
	return func(key string, h map[string]string) (hero.Job, error) {
		j, err := hero.ReadJob(key, h)
		j.ContextID = cmp.Or(j.ContextID, in)
		return j, err
	}
}

// Peeked is where a job stands, and for whom.
type Peeked struct {
	Status          hero.JobStatus
	FlowID, Attempt uint32
}

// PeekJobs reads the statuses of some jobs in one trip. A job that is missing or cannot
// be read has no status.
func (d *DB) PeekJobs(ctx context.Context, in uint32, keys []string) ([]Peeked, error) {
	const op = "look at jobs"
	c, err := d.Client(in)
	if err != nil {
		return nil, err
	}
	looks := make([]*redis.SliceCmd, len(keys))
	err = d.try(ctx, op, in, func() error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				looks[i] = p.HMGet(ctx, key, "status", "flow_id", "attempt")
			}
			return nil
		})
		var said redis.Error
		if errors.As(err, &said) {
			return nil // a key is no hash
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Peeked, len(keys))
	for i := range keys {
		out[i] = peeked(looks[i].Val())
	}
	return out, nil
}

func peeked(v []any) (p Peeked) {
	if len(v) != 3 {
		return p
	}
	status, _ := v[0].(string)
	p.Status, _ = hero.ParseJobStatus(status) // none where it is no word of ours
	for i, to := range []*uint32{&p.FlowID, &p.Attempt} {
		text, _ := v[i+1].(string)
		n, _ := strconv.ParseUint(text, 10, 32)
		*to = uint32(n)
	}
	return p
}

// PutJob creates or replaces a job of context j.ContextID. The status of one
// that is there takes legal steps only, else ErrIllegal.
func (d *DB) PutJob(ctx context.Context, j hero.Job) error {
	return put(ctx, d, j.ContextID, j, "status", hero.ReadJob, func(j *hero.Job, was hero.Job, there bool) error {
		d.stamp(&j.CreatedAt, &j.UpdatedAt, was.CreatedAt)
		if there && !was.Status.MayBecome(j.Status) {
			return illegal(was.Key(), string(was.Status), string(j.Status))
		}
		return nil
	})
}

// ClaimJob writes the job where there is none; where there is one that may be carried,
// it notes the message that carries it now. It returns the job as it is.
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
		if len(was.Dependends) == 0 { // the message may say more of what it waits for
			now.Dependends = j.Dependends
		}
		if len(was.Prerequisites) == 0 {
			now.Prerequisites = j.Prerequisites
		}
		return change{guard: "message_key", set: pick(hero.Fields(now), "message_key", "dependends", "prerequisites")}, nil
	})
	return now, err
}

// Jobs lists all of a context, by caller and id; see Flows about an error.
func (d *DB) Jobs(ctx context.Context, in uint32) ([]hero.Job, error) {
	return scan(ctx, d, in, "job", hero.IsJobKey, jobOf(in), byID(func(j hero.Job) [2]uint32 { return [2]uint32{j.CallerID, j.ID} }))
}

// deleteScript deletes a job and takes its caller, and no other, out of the index
// of those that have one of its id. What may be refused comes first.
// KEYS job, index. ARGV: caller.
var deleteScript = redis.NewScript(`
redis.call('SREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])`)

// DeleteJob deletes a job that is there and can be read, and with it what a
// supervisor finds it by.
func (d *DB) DeleteJob(ctx context.Context, in, caller, id uint32) error {
	if _, err := d.Job(ctx, in, caller, id); err != nil {
		return err
	}
	key := hero.JobKey(caller, id)
	op := "delete " + key
	c, err := d.tenant(op, in)
	if err != nil {
		return err
	}
	return d.try(ctx, op, in, func() error {
		return deleteScript.Run(ctx, c, []string{key, hero.JobCallersKey(id)}, caller).Err()
	})
}

// MoveJob takes a legal step of a job's life, and replaces its result unless
// that is nil. A job that has the status already is as it was: moved is false.
// Any other step is ErrIllegal; a job that ended never changes.
func (d *DB) MoveJob(ctx context.Context, in, caller, id uint32, to hero.JobStatus, result map[string]string) (j hero.Job, moved bool, err error) {
	return d.stepJob(ctx, in, hero.JobKey(caller, id), func(j *hero.Job) (bool, error) {
		if j.Status == to || !j.Status.MayBecome(to) {
			return false, unless(j.Status == to, illegal(j.Key(), string(j.Status), string(to)))
		}
		if j.Status = to; result != nil {
			j.Result = maps.Clone(result)
		}
		return true, nil
	})
}

// DropJob ends a job in error that is no flow's and has not begun; any other job
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

// RetryJob brings a job that started or failed back to dispatched, without a
// result.
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

func unless(fine bool, err error) error {
	if fine {
		return nil
	}
	return err
}

func illegal(key, from, to string) error {
	return edda.Classify(edda.Permanent, "%s is %s and cannot become %s: %w", key, from, to, ErrIllegal)
}

// stepJob changes a job's status and result, if step says so.
func (d *DB) stepJob(ctx context.Context, in uint32, key string, step func(*hero.Job) (bool, error)) (j hero.Job, moved bool, err error) {
	mark := rand.Text()
	err = update(ctx, d, in, key, jobOf(in), func(was hero.Job, h map[string]string) (change, error) {
		if len(h) == 0 {
			return change{}, missing(key)
		}
		if j = was; h[stepField] == mark {
			return change{}, nil // written before, and the answer lost
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

// pick takes some of the fields.
func pick(fields map[string]string, names ...string) map[string]string {
	out := make(map[string]string, len(names)+1)
	for _, name := range names {
		if v, ok := fields[name]; ok {
			out[name] = v
		}
	}
	return out
}
