package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// Waiting for an end looks at the job's hash: soon at first, since many jobs are
// short, then twice a second.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// await waits for the job's end. A caller who goes away ends the waiting, not the
// job; one who asks again joins it. When the job's time has passed it ends here.
func (s *Server) await(ctx context.Context, j hero.Job) (Answer, error) {
	for looks := (backoff.Exponential{First: firstLook, Most: lastLook}); ; {
		now, err := s.load(ctx, address{j.ContextID, j.CallerID, j.ID})
		if err != nil {
			return Answer{}, err
		}
		if now.Status.Ended() {
			return hero.AnswerOf(now.Status, now.Result), nil
		}
		if until, why := s.until(now); time.Now().After(until) {
			return s.expire(ctx, now, why)
		}
		if err := backoff.Wait(ctx, looks.Next()); err != nil {
			return Answer{}, storage(fmt.Errorf("stopped waiting: the job goes on: %w", err))
		}
	}
}

// expire records that no end came in time, unless one just did.
func (s *Server) expire(ctx context.Context, j hero.Job, why string) (Answer, error) {
	ended, err := s.end(ctx, j, why)
	if err != nil {
		return Answer{}, err
	}
	return hero.AnswerOf(ended.Status, ended.Result), nil
}

// end moves the job to error with the reason, unless it ended by itself; what is
// recorded then is the answer.
func (s *Server) end(ctx context.Context, j hero.Job, why string) (hero.Job, error) {
	ended, _, err := s.db.MoveJob(ctx, j.ContextID, j.CallerID, j.ID, hero.JobError, map[string]string{hero.ResultError: why})
	if err == nil {
		return ended, nil
	}
	if !errors.Is(err, redisdb.ErrIllegal) {
		return hero.Job{}, failed(err, "job %d", j.ID)
	}
	return s.load(ctx, address{j.ContextID, j.CallerID, j.ID})
}

// start queues a job that was stored.
func (s *Server) start(ctx context.Context, p hero.JobQuery) (bool, error) {
	j, err := s.meant(ctx, p)
	if err != nil {
		return false, err
	}
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

// get gives the whole job.
func (s *Server) get(ctx context.Context, p hero.JobQuery) (Job, error) {
	j, err := s.meant(ctx, p)
	if err != nil {
		return Job{}, err
	}
	return FromHero(j), nil
}

func (s *Server) status(ctx context.Context, p hero.JobQuery) (State, error) {
	j, err := s.meant(ctx, p)
	if err != nil {
		return State{}, err
	}
	if given, err := s.given(ctx, j); err != nil || !given {
		return State{}, cmp.Or(err, error(notFound("job %d was not given to this supervisor", j.ID)))
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

// given tells whether a job that waits came here: its hash may be the coordinator's,
// on the same Redis, and the call that was to bring the job was lost.
func (s *Server) given(ctx context.Context, j hero.Job) (bool, error) {
	if j.Status != hero.JobDispatched && j.Status != hero.JobWaiting {
		return true, nil
	}
	c, err := s.db.Client(j.ContextID)
	if err != nil {
		return false, storage(err)
	}
	is, err := c.HExists(ctx, j.Key(), fieldContent).Result()
	if err != nil {
		return false, storage(s.db.Explain("read "+j.Key(), j.ContextID, err))
	}
	return is, nil
}

// result is the recorded end; a job without one is an error that says where it stands.
func (s *Server) result(ctx context.Context, p hero.JobQuery) (Answer, error) {
	j, err := s.meant(ctx, p)
	if err != nil {
		return Answer{}, err
	}
	if !j.Status.Ended() {
		return Answer{}, invalid("job %d has not ended: it is %s", j.ID, j.Status)
	}
	return hero.AnswerOf(j.Status, j.Result), nil
}

// stop ends a job; its runner ends the script when it sees that. False means that
// it had ended before.
func (s *Server) stop(ctx context.Context, p hero.JobQuery) (bool, error) {
	j, err := s.meant(ctx, p)
	if err != nil || j.Status.Ended() {
		return false, err
	}
	ended, err := s.end(ctx, j, stopped)
	return err == nil && ended.Result[hero.ResultError] == stopped, err
}

// stopped is the reason of a job that job.stop ended.
const stopped = "stopped"

// delete forgets a job. One that runs is stopped first by who wants that.
func (s *Server) delete(ctx context.Context, p hero.JobQuery) (bool, error) {
	j, err := s.meant(ctx, p)
	if err != nil {
		return false, err
	}
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

// logPrefix begins the list that runners write a job's lines to, each after the
// name of its stream; the job's key follows.
const logPrefix = "edda:log:"

// logs are the lines that the job wrote, as far as its runner keeps them; of a
// runner that keeps none it is what the result tells.
func (s *Server) logs(ctx context.Context, p hero.JobQuery) ([]string, error) {
	j, err := s.meant(ctx, p)
	if err != nil {
		return nil, err
	}
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
	if len(out) > 0 {
		return out, nil
	}
	return told(j), nil
}

func told(j hero.Job) []string {
	out := []string{}
	for _, key := range []string{hero.ResultOutput, hero.ResultError} {
		if text := strings.TrimRight(j.Result[key], "\n"); text != "" {
			out = append(out, strings.Split(text, "\n")...)
		}
	}
	return out
}
