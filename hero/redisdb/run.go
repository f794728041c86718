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

// This file is what a runner does to a job. Each step happens whole or not at all,
// and knows its own work when its answer was lost.

// runField names, in a job's hash, the run that was begun last.
const runField = "edda_run"

// Run is one run of a job by a runner.
type Run struct {
	Runner  uint32
	Attempt uint32 // the flow's, which the run belongs to
	Number  uint32 // of the attempt's runs, from 1; what was interrupted does not count
	token   string // tells it from every other
}

func (r Run) String() string {
	b := make([]byte, 0, 64)
	for _, n := range [...]uint32{r.Runner, r.Attempt, r.Number} {
		b = append(strconv.AppendUint(b, uint64(n), 10), '/')
	}
	return string(append(b, r.token...))
}

// parseRun reads a run; what is none is the zero run.
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

// Work is a job with the fields that concern its runner.
type Work struct {
	hero.Job
	Run  Run  // the last one of its attempt; zero before the first
	Stop bool // the job is to be stopped
}

// asWork reads what runners keep in a job's hash.
func asWork(j hero.Job, h map[string]string) Work {
	w := Work{Job: j, Run: parseRun(h[runField])}
	if w.Run.Attempt != j.Attempt {
		w.Run = Run{}
	}
	w.Stop = stopAsked(h[stopField], j.Attempt)
	return w
}

// stopAsked: a stop names the attempt that is to be ended.
func stopAsked(stop string, attempt uint32) bool {
	return stop != "" && stop == strconv.FormatUint(uint64(attempt), 10)
}

// Work reads a job for its runner.
func (d *DB) Work(ctx context.Context, in, caller, id uint32) (w Work, err error) {
	key := hero.JobKey(caller, id)
	op := "read " + key
	c, err := d.at(op, in, key)
	if err != nil {
		return Work{}, err
	}
	err = d.try(ctx, op, in, func() error {
		j, h, err := load(ctx, c, key, jobOf(in))
		if err == nil && len(h) == 0 {
			err = missing(key)
		}
		w = asWork(j, h)
		return err
	})
	return w, err
}

// Begin reads a job and starts it: this runner alone runs it from now on. The caller has
// taken the job's key out of the kind's queue. begun is false, and nothing is
// written, where the job does not wait to be run, or is of another kind: what it is
// says why. A job that waits for others begins only where ready says that its gate was
// looked at. mark names this taking: again with the same one it is the same run.
func (d *DB) Begin(ctx context.Context, in uint32, key string, kind hero.ScriptType, ready bool, runner uint32, mark string) (w Work, begun bool, err error) {
	op := "start " + key
	c, err := d.at(op, in, key)
	if err != nil {
		return Work{}, false, err
	}
	var now *redis.MapStringStringCmd
	s := &step{
		keys: []string{key},
		look: func(p redis.Pipeliner) { now = p.HGetAll(ctx, key) },
		decide: func(to *writes) (err error) {
			if w, err = workOf(in, key, now); err != nil {
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
	err = d.try(ctx, op, in, func() error { return c.step(ctx, s) })
	return w, begun && err == nil, err
}

// workOf reads what a look brought.
func workOf(in uint32, key string, now *redis.MapStringStringCmd) (Work, error) {
	h, err := now.Result()
	if err != nil {
		return Work{}, err
	}
	if len(h) == 0 {
		return Work{}, missing(key)
	}
	j, err := jobOf(in)(key, h)
	return asWork(j, h), err
}

// MayBegin tells whether a runner of that kind may begin the job.
func (w Work) MayBegin(kind hero.ScriptType) bool {
	return (w.Status == hero.JobDispatched || w.Status == hero.JobWaiting) && w.ScriptType == kind
}

// EndRun records the end of a run and its result, sends the message that tells of
// it, and removes the job from the list that it was taken into: all or nothing. A
// run that is no longer the job's current one, or whose job ended otherwise, is
// ErrIllegal and changes nothing.
func (d *DB) EndRun(ctx context.Context, in uint32, w Work, to hero.JobStatus, result map[string]string, into string, tell hero.Message) error {
	op := "end " + w.Key()
	c, err := d.tenant(op, in)
	if err != nil {
		return err
	}
	w.Status, w.Result, w.UpdatedAt = to, result, d.seconds()
	tell.Status = hero.MessageDispatched
	d.stamp(&tell.CreatedAt, &tell.UpdatedAt, 0)
	run := w.Run.String()
	e := &ending{work: w, run: run, into: into, mark: rand.Text(), command: "run/" + w.Key() + "/" + run, tell: tell}
	at := d.intakes.at(place{in, into})
	for probe := range probes {
		e.tell.ID = derived("message", e.command, tell.CallerID, probe)
		s := e.step(ctx)
		err := d.try(ctx, op, in, func() error {
			return at.leaves(w.Key(), func() (bool, error) {
				err := c.step(ctx, s)
				return err == nil && e.ended, err
			})
		})
		d.short.note(err, d.now())
		if err != nil || e.ended {
			return err
		}
	}
	return &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: "found no free id for its message: delete what is done"}
}

// ending is the end of a run.
type ending struct {
	work    Work
	run     string
	into    string // the list that the job was taken into
	mark    string // of this end, for the job to know it by
	command string // of the message
	tell    hero.Message
	ended   bool // else the message's id is another's
}

func (e *ending) step(ctx context.Context) *step {
	key, tell := e.work.Key(), e.tell.Key()
	var now *redis.SliceCmd
	var there *redis.IntCmd
	message := append(hero.Pairs(e.tell), commandField, e.command)
	return &step{
		keys: []string{key, tell}, list: hero.MsgOut, bytes: size(message),
		look: func(p redis.Pipeliner) {
			now, there = p.HMGet(ctx, key, runField, stepField, "status"), p.Exists(ctx, tell)
		},
		decide: func(to *writes) error {
			h, err := now.Result()
			if e.ended = err == nil && h[1] == e.mark; err != nil || e.ended {
				return err
			}
			if status, _ := h[2].(string); h[0] != e.run || !isStarted(status) {
				return illegal(key, "not in this run", string(e.work.Status))
			}
			if n, err := there.Result(); err != nil || n > 0 {
				return err
			}
			e.ended = true
			to.set(key, append(e.work.Ending(), stepField, e.mark)...)
			to.set(tell, message...)
			to.do("LREM", e.into, -1, key)
			to.pushes(tell)
			return nil
		},
	}
}

// isStarted reads a status however it is written.
func isStarted(status string) bool {
	now, err := hero.ParseJobStatus(status)
	return err == nil && now == hero.JobStarted
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// size is how many bytes the texts among words have.
func size(words []any) (n int) {
	for _, w := range words {
		if s, ok := w.(string); ok {
			n += len(s)
		}
	}
	return n
}

// stepLua begins a script: the run and the last step that the job has, and its status,
// however that is written.
const stepLua = `
local seen = redis.call('HMGET', KEYS[1], '` + runField + `', '` + stepField + `', 'status')
local run, step = seen[1] or '', seen[2] or ''
local status = string.gsub(string.lower(seen[3] or 'dispatched'), '[^a-z]', '')
`

// dropScript: 1 dropped, 0 the run is not the current one.
// KEYS job, runner's list, queue. ARGV: run, mark, what the run is noted as, the time, end to push at.
var dropScript = redis.NewScript(stepLua + `
if step == ARGV[2] then return 1 end
if run ~= ARGV[1] or status ~= 'started' then return 0 end
redis.call('LLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
redis.call('HSET', KEYS[1], 'status', 'dispatched', 'updated_at', ARGV[4], '` + runField + `', ARGV[3], '` + stepField + `', ARGV[2])
redis.call('HDEL', KEYS[1], 'result')
redis.call('LREM', KEYS[2], -1, KEYS[1])
redis.call(ARGV[5], KEYS[3], KEYS[1])
return 1`)

// DropRun gives a run up: the job is dispatched again and waits in its queue. One
// that was interrupted is the next there, and the run does not count; else it
// waits behind the others. ErrIllegal is as of EndRun.
func (d *DB) DropRun(ctx context.Context, in uint32, w Work, interrupted bool, into string) error {
	op := "requeue " + w.Key()
	c, err := d.tenant(op, in)
	if err != nil {
		return err
	}
	mark, noted, side := rand.Text(), w.Run, "LPUSH"
	if noted.token = rand.Text(); interrupted {
		noted.Number--
		side = "RPUSH"
	}
	dropped, at := 0, d.intakes.at(place{in, into})
	err = d.try(ctx, op, in, func() error {
		return at.leaves(w.Key(), func() (bool, error) {
			dropped, err = dropScript.Run(ctx, c, []string{w.Key(), into, w.ScriptType.Queue()}, w.Run.String(), mark, noted.String(), d.seconds(), side).Int()
			return dropped == 1, err
		})
	})
	if err != nil {
		return err
	}
	if dropped == 0 {
		return illegal(w.Key(), "not in this run", "queued")
	}
	return nil
}

// returnScript moves a key out of a runner's list to another list, if it is there.
var returnScript = redis.NewScript(`
redis.call('LLEN', KEYS[2])
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[1]) end
return 1`)

// Return puts a key that was taken, and with which nothing was begun, in front of
// a queue. A key that is not there any more is nowhere put.
func (d *DB) Return(ctx context.Context, in uint32, into, queue, key string) error {
	op := "return " + key + " to " + queue
	c, err := d.Client(in)
	if err != nil {
		return err
	}
	at := d.intakes.at(place{in, into})
	return d.try(ctx, op, in, func() error {
		return at.leaves(key, func() (bool, error) { return true, returnScript.Run(ctx, c, []string{into, queue}, key).Err() })
	})
}

// Watched is what a runner looks at while it runs a job.
type Watched struct {
	Current bool // the run still is the job's, and has not ended
	Stop    bool
}

// Watch looks at the jobs that are run, in one go, in their order.
func (d *DB) Watch(ctx context.Context, in uint32, runs []Work) ([]Watched, error) {
	const op = "watch jobs"
	c, err := d.tenant(op, in)
	if err != nil {
		return nil, err
	}
	looks := make([]*redis.SliceCmd, len(runs))
	err = d.try(ctx, op, in, func() error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, w := range runs {
				looks[i] = p.HMGet(ctx, w.Key(), "status", runField, stopField)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Watched, len(runs))
	for i, w := range runs {
		v := looks[i].Val()
		status, _ := v[0].(string)
		run, _ := v[1].(string)
		stop, _ := v[2].(string)
		out[i] = Watched{Current: isStarted(status) && run == w.Run.String(), Stop: stopAsked(stop, w.Attempt)}
	}
	return out, nil
}
