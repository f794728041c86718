package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// await looks at the job's hash: often at first, because many jobs are short, then twice a
// second.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// await waits for the job's end. It ends an expired job. A caller that disconnects ends the
// wait and not the job; a repeated call waits again.
func (s *Server) await(ctx context.Context, j hero.Job) (Answer, error) {
	for looks := (backoff.Exponential{First: firstLook, Most: lastLook}); ; {
		now, err := s.load(ctx, jobAddress{j.ContextID, j.CallerID, j.ID})
		if err == nil && !now.Status.Ended() {
			if until, why := s.until(now); time.Now().After(until) {
				now, err = s.end(ctx, now, why)
			}
		}
		if err != nil {
			return Answer{}, err
		}
		if now.Status.Ended() {
			return hero.AnswerOf(now.Status, now.Result), nil
		}
		if err := backoff.Wait(ctx, looks.Next()); err != nil {
			return Answer{}, storage(fmt.Errorf("stopped waiting: the job goes on: %w", err))
		}
	}
}

// end records an error as the job's end, unless the job has ended. It returns the job with
// the recorded end.
func (s *Server) end(ctx context.Context, j hero.Job, why string) (hero.Job, error) {
	ended, _, err := s.db.MoveJob(ctx, j.ContextID, j.CallerID, j.ID, hero.JobError, map[string]string{hero.ResultError: why})
	if err == nil {
		return ended, nil
	}
	if !errors.Is(err, redisdb.ErrIllegal) {
		return hero.Job{}, failed(err, "job %d", j.ID)
	}
	return s.load(ctx, jobAddress{j.ContextID, j.CallerID, j.ID})
}

// start queues a job that was stored.
func (s *Server) start(ctx context.Context, j hero.Job) (bool, error) {
	c, err := s.db.Client(j.ContextID)
	if err != nil {
		return false, storage(err)
	}
	wire := FromHero(j)
	if runner, err := c.HGet(ctx, j.Key(), fieldRunner).Result(); err == nil && runner != "" {
		wire.Runner = runner
	}
	return true, s.queue(ctx, j, wire)
}

// get shows the whole job.
func (s *Server) get(_ context.Context, j hero.Job) (Job, error) { return FromHero(j), nil }

func (s *Server) status(ctx context.Context, j hero.Job) (State, error) {
	if j.Status == hero.JobDispatched || j.Status == hero.JobWaiting {
		// The hash may be the coordinator's, on the same Redis, although the call that was to
		// bring the job was lost.
		c, err := s.db.Client(j.ContextID)
		if err != nil {
			return State{}, storage(err)
		}
		given, err := c.HExists(ctx, j.Key(), fieldContent).Result()
		if err != nil {
			return State{}, storage(s.db.Explain("read "+j.Key(), j.ContextID, err))
		}
		if !given {
			return State{}, notFound("job %d was not given to this supervisor", j.ID)
		}
	}
	out := State{JobID: idOf(j), Status: string(j.Status), CreatedAt: rfc3339(j.CreatedAt)}
	if j.Status == hero.JobStarted {
		out.StartedAt = rfc3339(j.UpdatedAt)
	}
	if j.Status.Ended() {
		out.CompletedAt = rfc3339(j.UpdatedAt)
	}
	return out, nil
}

// result returns the recorded end. A job that has not ended is an error.
func (s *Server) result(_ context.Context, j hero.Job) (Answer, error) {
	if !j.Status.Ended() {
		return Answer{}, invalid("job %d has not ended: it is %s", j.ID, j.Status)
	}
	return hero.AnswerOf(j.Status, j.Result), nil
}

// stop ends a job. Its runner sees that and ends the script. False means that the job had
// ended before.
func (s *Server) stop(ctx context.Context, j hero.Job) (bool, error) {
	if j.Status.Ended() {
		return false, nil
	}
	ended, err := s.end(ctx, j, stopped)
	return err == nil && ended.Result[hero.ResultError] == stopped, err
}

// stopped is the reason of a job that job.stop ended.
const stopped = "stopped"

// delete deletes a job. The caller must stop a running job first.
func (s *Server) delete(ctx context.Context, j hero.Job) (bool, error) {
	if j.Status == hero.JobStarted {
		return false, invalid("job %d runs: stop it first", j.ID)
	}
	c, err := s.db.Client(j.ContextID)
	if err != nil {
		return false, storage(err)
	}
	pipe := c.TxPipeline()
	pipe.LRem(ctx, j.ScriptType.Queue(), 0, j.Key())
	pipe.ZRem(ctx, supervisedKey, j.Key())
	pipe.SRem(ctx, hero.JobCallersKey(j.ID), j.CallerID)
	pipe.Del(ctx, j.Key(), logPrefix+j.Key())
	if _, err := pipe.Exec(ctx); err != nil {
		return false, storage(err)
	}
	return true, nil
}

// logPrefix and the job's key name the list of the job's output. A runner writes each line
// after the name of its stream.
const logPrefix = "edda:log:"

// logs returns the lines of the job that its runner keeps; if the runner keeps none, the
// output and the error in the result.
func (s *Server) logs(ctx context.Context, j hero.Job) ([]string, error) {
	c, err := s.db.Client(j.ContextID)
	if err != nil {
		return nil, storage(err)
	}
	lines, err := c.LRange(ctx, logPrefix+j.Key(), 0, -1).Result()
	if err != nil {
		return nil, storage(s.db.Explain("read the log of "+j.Key(), j.ContextID, err))
	}
	out := []string{}
	for _, line := range lines {
		_, text, _ := strings.Cut(line, " ")
		out = append(out, text)
	}
	for _, key := range []string{hero.ResultOutput, hero.ResultError} {
		if text := strings.TrimRight(j.Result[key], "\n"); text != "" && len(lines) == 0 {
			out = append(out, strings.Split(text, "\n")...)
		}
	}
	return out, nil
}
