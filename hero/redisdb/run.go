package redisdb

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// The methods of this file are a runner's steps of a job. Each happens whole or not at all,
// and recognises its own work when its answer was lost.

// runField names the last run that began, in a job's hash.
const runField = "edda_run"

// Run is one run of a job by a runner.
type Run struct {
	Runner  uint32
	Attempt uint32 // of the job's flow
	Number  uint32 // among the attempt's runs, from 1; interrupted ones do not count
	token   string // unique
}

func (r Run) String() string {
	b := make([]byte, 0, 64)
	for _, n := range [...]uint32{r.Runner, r.Attempt, r.Number} {
		b = append(strconv.AppendUint(b, uint64(n), 10), '/')
	}
	return string(append(b, r.token...))
}

// parseRun reads a run; any other text is the zero run.
func parseRun(s string) (r Run) {
	words := strings.Split(s, "/")
	if len(words) != 4 {
		return Run{}
	}
	for i, to := range []*uint32{&r.Runner, &r.Attempt, &r.Number} {
		n, err := strconv.ParseUint(words[i], 10, 32)
		if err != nil {
			return Run{}
		}
		*to = uint32(n)
	}
	r.token = words[3]
	return r
}

// RunnerJob is a job with the fields of its runner.
type RunnerJob struct {
	hero.Job
	Run  Run  // the last one of its attempt; zero before the first
	Stop bool // the runner is to stop the job
}

// asWork adds the runner's fields of a job's hash.
func asWork(j hero.Job, h map[string]string) RunnerJob {
	w := RunnerJob{Job: j, Run: parseRun(h[runField])}
	if w.Run.Attempt != j.Attempt {
		w.Run = Run{}
	}
	w.Stop = stopAsked(h[stopField], j.Attempt)
	return w
}

// stopAsked reports whether the stop, which names an attempt, is for this one.
func stopAsked(stop string, attempt uint32) bool {
	return stop != "" && stop == decimal(attempt)
}

// Work reads a job for its runner.
func (d *DB) Work(ctx context.Context, in, caller, id uint32) (RunnerJob, error) {
	j, h, err := getHash(ctx, d, in, hero.JobKey(caller, id), jobOf(in))
	return asWork(j, h), err
}

// Begin reads a job and starts it: from now on only this runner runs it. The caller has
// taken the job's key out of the kind's queue. begun is false, and nothing is written, if
// the job has another kind, has started or has ended, or if it waits and ready is false.
// ready tells that the caller has seen its gate open. mark names this taking: a repeated
// call with the same mark is the same run.
func (d *DB) Begin(ctx context.Context, in uint32, key string, kind hero.ScriptType, ready bool, runner uint32, mark string) (w RunnerJob, begun bool, err error) {
	var now *redis.MapStringStringCmd
	s := &step{
		keys: []string{key},
		look: func(p redis.Pipeliner) { now = p.HGetAll(ctx, key) },
		decide: func(to *writes) error {
			h, err := now.Result()
			if err == nil && len(h) == 0 {
				err = missing(key)
			}
			if err != nil {
				return err
			}
			j, err := jobOf(in)(key, h)
			if w = asWork(j, h); err != nil {
				return err
			}
			if begun = w.Run.token == mark && w.Status == hero.JobStarted; begun || !w.MayBegin(kind) || w.Waits() && !ready {
				return nil
			}
			begun = true
			w.Run = Run{Runner: runner, Attempt: w.Attempt, Number: w.Run.Number + 1, token: mark}
			w.Status = hero.JobStarted
			to.set(key, "status", string(w.Status), "updated_at", decimal(d.seconds()), runField, w.Run.String())
			return nil
		},
	}
	err = d.at(ctx, "start "+key, in, key, func(c *database) error { return c.step(ctx, s) })
	return w, begun && err == nil, err
}

// MayBegin reports whether a runner of that kind may begin the job.
func (w RunnerJob) MayBegin(kind hero.ScriptType) bool {
	return (w.Status == hero.JobDispatched || w.Status == hero.JobWaiting) && w.ScriptType == kind
}

// EndRun records the end of a run and its result, sends the message with the result, and
// removes the job from the list that it was taken into: all or nothing. It returns
// ErrIllegal and changes nothing if the run is not the job's current one, or the job
// has ended otherwise.
func (d *DB) EndRun(ctx context.Context, in uint32, w RunnerJob, to hero.JobStatus, result map[string]string, into string, tell hero.Message) error {
	op, key, run, mark := "end "+w.Key(), w.Key(), w.Run.String(), rand.Text()
	w.Status, w.Result, w.UpdatedAt = to, result, d.seconds()
	tell.Status = hero.MessageDispatched
	d.stamp(&tell.CreatedAt, &tell.UpdatedAt, 0)
	command := "run/" + key + "/" + run
	for probe := range probes {
		tell.ID = derived("message", command, tell.CallerID, probe)
		message := append(hero.Pairs(tell), commandField, command)
		var now *redis.SliceCmd
		var taken *redis.IntCmd
		ended := false // else the message's id is another one's
		s := &step{
			keys: []string{key, tell.Key()}, list: hero.MsgOut, bytes: size(message),
			look: func(p redis.Pipeliner) {
				now, taken = p.HMGet(ctx, key, runField, stepField, "status"), p.Exists(ctx, tell.Key())
			},
			decide: func(to *writes) error {
				h := fieldsRead(now, runField, stepField, "status")
				if ended = h[stepField] == mark; now.Err() != nil || ended {
					return now.Err()
				}
				if h[runField] != run || !isStarted(h["status"]) {
					return illegal(key, "not in this run", string(w.Status))
				}
				if n, err := taken.Result(); err != nil || n > 0 {
					return err
				}
				ended = true
				to.set(key, append(w.Ending(), stepField, mark)...)
				to.set(tell.Key(), message...)
				to.do("LREM", into, -1, key)
				to.pushes(tell.Key())
				return nil
			},
		}
		err := d.leaves(ctx, op, in, into, key, func(c *database) (bool, error) {
			err := c.step(ctx, s)
			return err == nil && ended, err
		})
		d.short.note(err, d.now())
		if err != nil || ended {
			return err
		}
	}
	return &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: "found no free id for its message: delete what is done"}
}

// isStarted reads a status in any spelling.
func isStarted(status string) bool {
	now, err := hero.ParseJobStatus(status)
	return err == nil && now == hero.JobStarted
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// size returns the number of bytes of the texts among words.
func size(words []any) (n int) {
	for _, w := range words {
		if s, ok := w.(string); ok {
			n += len(s)
		}
	}
	return n
}

// dropScript answers 1 if it dropped the run, 0 if the run is not the current one.
// KEYS job, runner's list, queue. ARGV: run, mark, the run to record, now, push command.
var dropScript = redis.NewScript(`
local seen = redis.call('HMGET', KEYS[1], '` + runField + `', '` + stepField + `', 'status')
local run, step = seen[1] or '', seen[2] or ''
local status = string.gsub(string.lower(seen[3] or 'dispatched'), '[^a-z]', '')
if step == ARGV[2] then return 1 end
if run ~= ARGV[1] or status ~= 'started' then return 0 end
redis.call('LLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
redis.call('HSET', KEYS[1], 'status', 'dispatched', 'updated_at', ARGV[4], '` + runField + `', ARGV[3], '` + stepField + `', ARGV[2])
redis.call('HDEL', KEYS[1], 'result')
redis.call('LREM', KEYS[2], -1, KEYS[1])
redis.call(ARGV[5], KEYS[3], KEYS[1])
return 1`)

// DropRun gives a run up: the job is dispatched again and waits in its queue. An interrupted
// run does not count, and its job goes to the front of the queue; else the job goes to
// the end. ErrIllegal is as of EndRun.
func (d *DB) DropRun(ctx context.Context, in uint32, w RunnerJob, interrupted bool, into string) error {
	mark, recorded, side := rand.Text(), w.Run, "LPUSH"
	if recorded.token = rand.Text(); interrupted {
		recorded.Number--
		side = "RPUSH"
	}
	dropped, keys := 0, []string{w.Key(), into, w.ScriptType.Queue()}
	err := d.leaves(ctx, "requeue "+w.Key(), in, into, w.Key(), func(c *database) (_ bool, err error) {
		dropped, err = dropScript.Run(ctx, c, keys, w.Run.String(), mark, recorded.String(), d.seconds(), side).Int()
		return dropped == 1, err
	})
	if err == nil && dropped == 0 {
		err = illegal(w.Key(), "not in this run", "queued")
	}
	return err
}

// Watched is the state of a run, for its runner.
type Watched struct {
	Current bool // the run still is the job's, and has not ended
	Stop    bool
}

// Watch reads the jobs of some runs in one trip, in their order.
func (d *DB) Watch(ctx context.Context, in uint32, runs []RunnerJob) ([]Watched, error) {
	keys, out := make([]string, len(runs)), make([]Watched, len(runs))
	for i, w := range runs {
		keys[i] = w.Key()
	}
	err := d.at(ctx, "watch jobs", in, "job:", func(c *database) error {
		hashes, err := lookup(ctx, c, keys, "status", runField, stopField)
		for i, h := range hashes {
			out[i] = Watched{Current: isStarted(h["status"]) && h[runField] == runs[i].Run.String(), Stop: stopAsked(h[stopField], runs[i].Attempt)}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
