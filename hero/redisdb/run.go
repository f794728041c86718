package redisdb

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// This file is what a runner does to a job. Each step is one script, so that it
// happens whole or not at all, and knows its own work when its answer was lost.

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
	return fmt.Sprintf("%d/%d/%d/%s", r.Runner, r.Attempt, r.Number, r.token)
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

// Work is a job with what concerns those who run it.
type Work struct {
	hero.Job
	Run  Run  // the last one of its attempt; zero before the first
	Stop bool // somebody asks that it be ended
	seen map[string]string
}

// asWork reads what runners keep in a job's hash.
func asWork(j hero.Job, h map[string]string) Work {
	w := Work{Job: j, Run: parseRun(h[runField]), seen: h}
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

// Work reads a job for those who run it.
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

// stepLua begins the scripts here: the run, the last step and the attempt that the
// job has, and its status, however that is written.
const stepLua = `
local seen = redis.call('HMGET', KEYS[1], '` + runField + `', '` + stepField + `', 'attempt', 'status')
local run, step, attempt = seen[1] or '', seen[2] or '', seen[3] or ''
local status = string.gsub(string.lower(seen[4] or 'dispatched'), '[^a-z]', '')
`

// beginScript: 1 begun, 0 the job is no longer what was seen.
// ARGV: the run, the run that was seen, the attempt that was seen, the time.
var beginScript = redis.NewScript(stepLua + `
if run == ARGV[1] then return 1 end
if status ~= 'dispatched' and status ~= 'waitingforprerequisites' or run ~= ARGV[2] or attempt ~= ARGV[3] then return 0 end
if not seen[4] and redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'status', 'started', 'updated_at', ARGV[4], '` + runField + `', ARGV[1])
return 1`)

// BeginRun starts a job that was read as Work: it is dispatched, and this runner
// alone runs it. A job that is no longer as it was read is ErrIllegal.
func (d *DB) BeginRun(ctx context.Context, in uint32, w Work, runner uint32) (Work, error) {
	run := Run{Runner: runner, Attempt: w.Attempt, Number: w.Run.Number + 1, token: rand.Text()}
	op := "start " + w.Key()
	c, err := d.tenant(op, in)
	if err != nil {
		return Work{}, err
	}
	var begun int
	err = d.try(ctx, op, in, func() error {
		begun, err = beginScript.Run(ctx, c, []string{w.Key()}, run.String(), w.seen[runField], w.seen["attempt"], d.seconds()).Int()
		return err
	})
	if err != nil {
		return Work{}, err
	}
	if begun == 0 {
		return Work{}, illegal(w.Key(), "no longer "+string(w.Status), "started")
	}
	w.Run, w.Status = run, hero.JobStarted
	return w, nil
}

// endScript ends a run: the job's end, the message that tells of it, and the key's
// way out of the runner's list. 1 done, 0 the run is not the current one, 2 the
// message's id is another's.
//
// KEYS job, runner's list, msg_out, message. ARGV: run, mark, number of the job's
// values, these, the message's. It looks before it writes.
var endScript = redis.NewScript(stepLua + `
if step == ARGV[2] then return 1 end
if run ~= ARGV[1] or status ~= 'started' then return 0 end
if redis.call('EXISTS', KEYS[4]) == 1 then return 2 end
redis.call('LLEN', KEYS[2])
redis.call('LLEN', KEYS[3])
local n = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], unpack(ARGV, 4, 3 + n))
redis.call('HSET', KEYS[4], unpack(ARGV, 4 + n))
redis.call('LPUSH', KEYS[3], KEYS[4])
redis.call('LREM', KEYS[2], -1, KEYS[1])
return 1`)

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
	mark := rand.Text()
	tell.Status = hero.MessageDispatched
	d.stamp(&tell.CreatedAt, &tell.UpdatedAt, 0)
	command := "run/" + w.Key() + "/" + w.Run.String()
	at := d.intakes.at(place{in, into})
	for probe := range probes {
		tell.ID = derived("message", command, tell.CallerID, probe)
		what := 0
		err := d.try(ctx, op, in, func() error {
			return at.leaves(w.Key(), func() (bool, error) {
				what, err = d.endOnce(ctx, c, w, mark, into, command, tell)
				return what == 1, err
			})
		})
		d.short.note(err, d.now())
		switch {
		case err != nil:
			return err
		case what == 0:
			return illegal(w.Key(), "not in this run", string(to))
		case what == 1:
			return nil
		}
	}
	return &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: "found no free id for its message: delete what is done"}
}

func (d *DB) endOnce(ctx context.Context, c *lane, w Work, mark, into, command string, tell hero.Message) (int, error) {
	set := pick(hero.Job{Status: w.Status, Result: w.Result, UpdatedAt: w.UpdatedAt}.Fields(), "status", "result", "updated_at")
	set[stepField] = mark
	args := []any{w.Run.String(), mark, 2 * len(set)}
	args = appendFields(args, set)
	fields := tell.Fields()
	fields[commandField] = command
	args = appendFields(args, fields)
	return endScript.Run(ctx, c, []string{w.Key(), into, hero.MsgOut, tell.Key()}, args...).Int()
}

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
		now, err := hero.ParseJobStatus(status)
		out[i] = Watched{Current: err == nil && now == hero.JobStarted && run == w.Run.String(), Stop: stopAsked(stop, w.Attempt)}
	}
	return out, nil
}
