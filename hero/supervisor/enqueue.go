package supervisor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/redisdb"
)

// Verdict is the outcome of Enqueue.
type Verdict string

// The verdicts.
const (
	Queued Verdict = "queued" // the queue has it
	Stored Verdict = "stored" // stored and not queued
	Known  Verdict = "known"  // queued before; its hash has its status
	Other  Verdict = "other"  // another job has the id; nothing changed
	Held   Verdict = "held"   // it waits for other jobs or prerequisites, and is queued afterwards
	Failed Verdict = "failed" // a dependency failed, so its hash has an error
)

// The supervisor's fields in a job's hash, beside queued, the last attempt that was queued.
const (
	fieldRunner  = "runner"  // the registered runner that the job names
	fieldContent = "content" // the digest of every job that came here, for its current attempt
)

// supervisedKey is a sorted set in a context's database: job keys by the time at which the
// sweep gives them up.
const supervisedKey = "edda:supervised"

// enqueue stores a job and queues it, once for each attempt, in one step.
//
// A finished job never runs again. A failed job, or one whose runner left it started, runs
// again only for a higher attempt, which may change its definition. A job that is still in
// its queue is not pushed again.
//
// An existing job keeps its definition, because it is the same work and its hash may have
// more fields than the caller knows. A failed job with a higher attempt takes the new one.
//
// KEYS job, queue, supervised, index. ARGV: whether to queue, attempt, content, script,
// time to give up (0: never), caller, number of words of the state and of the definition;
// then the state, the definition, and the fields of a new job only.
var enqueue = redis.NewScript(hero.QueueLua + `
local h = redis.call('HMGET', KEYS[1], 'status', 'queued', 'content', 'script')
local run, attempt = ARGV[1] == '1', tonumber(ARGV[2])
local status, queued = string.lower(h[1] or ''):gsub('"', ''), tonumber(h[2] or '0') or 0
local mended = run and status == 'error' and queued > 0 and attempt > queued
if not mended and h[4] and ((h[3] and h[3] ~= ARGV[3]) or (not h[3] and h[4] ~= ARGV[4])) then return 'other' end
if status == 'finished' then return 'known' end
if queued >= attempt or (h[3] and not run) then return 'known' end
if status == 'error' and queued == 0 and run and attempt <= 1 then return 'known' end
local last = 8 + tonumber(ARGV[7])
if not h[4] then last = #ARGV elseif mended then last = last + tonumber(ARGV[8]) end
redis.call('HSET', KEYS[1], unpack(ARGV, 9, last))
redis.call('HSET', KEYS[1], 'content', ARGV[3], 'status', 'dispatched')
redis.call('HDEL', KEYS[1], 'result')
redis.call('SADD', KEYS[4], ARGV[6])
if not run then return 'stored' end
redis.call('HSET', KEYS[1], 'queued', ARGV[2])
if ARGV[5] ~= '0' then redis.call('ZADD', KEYS[3], ARGV[5], KEYS[1]) end
if queued == 0 or not redis.call('LPOS', KEYS[2], KEYS[1]) then queue(KEYS[2], KEYS[1], '') end
return 'queued'
`)

// Enqueue stores the job in its context's database and pushes its key to the queue, in one
// step that may be repeated. A job that exists with the same content is Known and not
// queued again, unless it did not finish and the attempt is higher. With an empty queue it
// is only stored. A supervisor's sweep ends the job at giveUp, unless that is zero. The
// definition of an existing job does not change.
//
// extra holds further fields and values of the hash.
func Enqueue(ctx context.Context, db *redisdb.DB, j hero.Job, queue string, giveUp time.Time, extra ...string) (Verdict, error) {
	op := "queue " + j.Key()
	c, err := db.Client(j.ContextID)
	if err != nil {
		return "", err
	}
	gate, why := redisdb.GateOpen, ""
	if queue != "" {
		waits, err := known(ctx, db, j)
		if errors.Is(err, errOther) {
			return Other, nil
		}
		if err == nil {
			gate, why, err = db.Gate(ctx, j.ContextID, waits)
		}
		if err != nil {
			return "", err
		}
	}
	if gate != redisdb.GateOpen {
		return held(ctx, db, j, queue, gate, why, giveUp, extra)
	}
	run, until := "1", int64(0)
	if queue == "" {
		run, queue = "0", j.Key() // a permitted name for KEYS[2]; the script does not use it
	}
	if !giveUp.IsZero() {
		until = giveUp.Unix()
	}
	state, definition, fresh := parts(stored(j), extra)
	args := []any{run, max(j.Attempt, 1), content(j), j.Script, until, j.CallerID, len(state), len(definition)}
	args = append(append(append(args, state...), definition...), fresh...)
	keys := []string{j.Key(), queue, supervisedKey, hero.JobCallersKey(j.ID)}
	v, err := enqueue.Run(ctx, c, keys, args...).Text()
	return Verdict(v), db.Explain(op, j.ContextID, err)
}

// errOther: another job has the id.
var errOther = errors.New("another job has the id")

// known returns the stored job, whose hash may name more jobs to wait for, or the job
// itself where none is stored. For a job of a flow it returns an empty job, because the
// flow itself decides when the job may run.
func known(ctx context.Context, db *redisdb.DB, j hero.Job) (hero.Job, error) {
	was, err := db.Job(ctx, j.ContextID, j.CallerID, j.ID)
	switch {
	case errors.Is(err, redisdb.ErrNotFound):
		return j, nil
	case err != nil:
		return j, err
	case j.FlowID != 0 || was.FlowID != 0:
		return hero.Job{}, nil
	case !Same(was, j) && (was.Status != hero.JobError || max(j.Attempt, 1) <= max(was.Attempt, 1)):
		return j, errOther
	}
	return was, nil
}

// Same reports whether two jobs are the same work. A missing timeout equals any.
func Same(a, b hero.Job) bool {
	if a.Timeout == 0 || b.Timeout == 0 {
		a.Timeout, b.Timeout = 0, 0
	}
	a.Executor, b.Executor = cmp.Or(a.Executor, string(a.ScriptType)), cmp.Or(b.Executor, string(b.ScriptType))
	return content(a) == content(b)
}

// held stores a job that waits for other jobs, or ends it where one of those failed. Both
// steps may be repeated.
func held(ctx context.Context, db *redisdb.DB, j hero.Job, queue string, gate redisdb.Gate, why string, giveUp time.Time, extra []string) (Verdict, error) {
	verdict, err := Enqueue(ctx, db, j, "", giveUp, extra...)
	if err != nil || verdict == Other {
		return verdict, err
	}
	if gate == redisdb.GateClosed {
		return Held, db.Hold(ctx, j.ContextID, j, j.Key(), queue, "")
	}
	_, _, err = db.MoveJob(ctx, j.ContextID, j.CallerID, j.ID, hero.JobError, map[string]string{hero.ResultError: why})
	if errors.Is(err, redisdb.ErrIllegal) {
		err = nil // it has ended
	}
	return Failed, err
}

// parts splits a job's fields. Each attempt writes the state; a new or a mended job writes
// the definition; only a new job writes the fresh fields, which a job on the wire may omit.
func parts(j hero.Job, extra []string) (state, definition, fresh []any) {
	for _, word := range extra {
		state = append(state, word)
	}
	silent := map[string]bool{"retries": j.Retries == 0, "prerequisites": len(j.Prerequisites) == 0, "dependends": len(j.Dependends) == 0}
	for field, value := range hero.Fields(j) {
		switch field {
		case "status", "updated_at", "attempt", "message_key", "flow_id":
			state = append(state, field, value)
		default:
			if silent[field] {
				fresh = append(fresh, field, value)
			} else {
				definition = append(definition, field, value)
			}
		}
	}
	return state, definition, fresh
}

// stored returns the job with the status and times that Enqueue writes.
func stored(j hero.Job) hero.Job {
	now := uint32(time.Now().Unix())
	if j.CreatedAt == 0 {
		j.CreatedAt = now
	}
	j.UpdatedAt = now
	j.Result, j.Status = nil, hero.JobDispatched
	return j
}

// content digests the work of a job. Times, attempts and the destination of the result are
// not part of it.
func content(j hero.Job) string {
	env := j.EnvVars
	if len(env) == 0 {
		env = nil
	}
	b, _ := json.Marshal([]any{j.Script, j.Executor, j.Timeout, env}) // strings and numbers: cannot fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Taken is the error for a job whose id another job has.
func Taken(j hero.Job) error {
	return fmt.Errorf("%s exists and is another job: choose a new id", j.Key())
}
