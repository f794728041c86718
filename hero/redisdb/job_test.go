package redisdb

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

func jobStatuses() []hero.JobStatus {
	return []hero.JobStatus{hero.JobDispatched, hero.JobWaiting, hero.JobStarted, hero.JobError, hero.JobFinished}
}

func TestAJobTakesLegalStepsOnly(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	legal := map[string]bool{
		"dispatched waiting_for_prerequisites": true, "dispatched started": true, "dispatched error": true, "dispatched finished": true,
		"waiting_for_prerequisites dispatched": true, "waiting_for_prerequisites started": true, "waiting_for_prerequisites error": true,
		"started finished": true, "started error": true,
	}
	for _, from := range jobStatuses() {
		for _, to := range jobStatuses() {
			step := fmt.Sprintf("%s %s", from, to)
			testkit.Must(t, c.Del(ctx, "job:12:5").Err())
			testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in, Status: from, Result: map[string]string{"old": "1"}}))
			j, moved, err := d.MoveJob(ctx, in, 12, 5, to, map[string]string{"new": "2"})
			now, getErr := d.Job(ctx, in, 12, 5)
			testkit.Must(t, getErr)
			switch {
			case legal[step]:
				if err != nil || !moved || now.Status != to || now.Result["new"] != "2" || j.Status != to || j.Result["new"] != "2" {
					t.Errorf("%s: %v %v, is %+v", step, moved, err, now)
				}
			case from == to:
				if err != nil || moved || now.Result["old"] != "1" || j.Status != to {
					t.Errorf("%s: %v %v, is %+v", step, moved, err, now)
				}
			default:
				if !errors.Is(err, ErrIllegal) || !errors.Is(err, edda.Permanent) || moved || now.Status != from || now.Result["old"] != "1" {
					t.Errorf("%s: %v %v, is %+v", step, moved, err, now)
				}
			}
			if err := d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in, Status: from}); legal[step] && errors.Is(err, ErrIllegal) != !to.MayBecome(from) {
				t.Errorf("put %s over %s: %v", from, to, err)
			}
		}
	}
	_, _, err := d.MoveJob(ctx, in, 12, 6, hero.JobStarted, nil)
	is(t, err, ErrNotFound)
}

func TestAStepWithoutAResultKeepsIt(t *testing.T) {
	d, in, _ := fresh(t)
	testkit.Must(t, d.PutJob(t.Context(), hero.Job{ID: 5, CallerID: 12, ContextID: in, Result: map[string]string{"a": "1"}}))
	if j, _, err := d.MoveJob(t.Context(), in, 12, 5, hero.JobStarted, nil); err != nil || j.Result["a"] != "1" {
		t.Error(j, err)
	}
}

func TestAJobIsTriedAgain(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	for i, from := range jobStatuses() {
		id := uint32(i)
		testkit.Must(t, d.PutJob(ctx, hero.Job{ID: id, CallerID: 12, ContextID: in, Status: from, Result: map[string]string{"error": "exit 1"}}))
		j, err := d.RetryJob(ctx, in, 12, id)
		if from == hero.JobStarted || from == hero.JobError {
			if now, _ := d.Job(ctx, in, 12, id); err != nil || j.Status != hero.JobDispatched || now.Status != hero.JobDispatched || len(now.Result) != 0 {
				t.Errorf("%s: %v, is %+v", from, err, now)
			}
			continue
		}
		if !errors.Is(err, ErrIllegal) {
			t.Errorf("%s: %v", from, err)
		}
	}
	_, err := d.RetryJob(ctx, in, 12, 99)
	is(t, err, ErrNotFound)
}

func TestOneOfManyStartsAJob(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in}))
	var won atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if _, moved, err := d.MoveJob(ctx, in, 12, 5, hero.JobStarted, nil); err != nil {
				t.Error(err)
			} else if moved {
				won.Add(1)
			}
		})
	}
	if all.Wait(); won.Load() != 1 {
		t.Errorf("%d started it", won.Load())
	}
}

func TestOneOfTwoEndsWins(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	for id := range uint32(20) {
		testkit.Must(t, d.PutJob(ctx, hero.Job{ID: id, CallerID: 12, ContextID: in, Status: hero.JobStarted}))
		var won atomic.Value
		var all sync.WaitGroup
		for _, end := range []hero.JobStatus{hero.JobFinished, hero.JobError} {
			all.Go(func() {
				_, moved, err := d.MoveJob(ctx, in, 12, id, end, map[string]string{"by": string(end)})
				switch {
				case moved:
					if won.Swap(end) != nil {
						t.Error("both ended it")
					}
				case !errors.Is(err, ErrIllegal):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if j, err := d.Job(ctx, in, 12, id); err != nil || j.Status != won.Load() || j.Result["by"] != string(j.Status) {
			t.Errorf("%+v, %v: %v", j, won.Load(), err)
		}
	}
}

func TestAStepWhoseAnswerIsLostIsKnownAgain(t *testing.T) {
	// Scripts are sent by their hash, with the fields.
	broken(t, stepField, func(t *testing.T, d *DB, in uint32) {
		ctx := t.Context()
		testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in}))
		if j, moved, err := d.MoveJob(ctx, in, 12, 5, hero.JobStarted, nil); err != nil || !moved || j.Status != hero.JobStarted {
			t.Error(j, moved, err)
		}
	})
	broken(t, "\r\nerror\r\n", func(t *testing.T, d *DB, in uint32) {
		ctx := t.Context()
		testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in, Status: hero.JobStarted}))
		if _, moved, err := d.MoveJob(ctx, in, 12, 5, hero.JobError, map[string]string{"error": "exit 1"}); err != nil || !moved {
			t.Error(moved, err)
		}
	})
	broken(t, stepField, func(t *testing.T, d *DB, in uint32) {
		ctx := t.Context()
		testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in, Status: hero.JobError}))
		if j, err := d.RetryJob(ctx, in, 12, 5); err != nil || j.Status != hero.JobDispatched {
			t.Error(j, err)
		}
	})
}

func TestAPutWhoseAnswerIsLostIsDoneAgain(t *testing.T) {
	broken(t, "print(1)", func(t *testing.T, d *DB, in uint32) {
		ctx := t.Context()
		testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: in, Script: "print(1)"}))
		if j, err := d.Job(ctx, in, 12, 5); err != nil || j.Script != "print(1)" {
			t.Error(j, err)
		}
	})
}

func TestADeletedJobIsFoundByItsIdNoMore(t *testing.T) {
	d, in, c := fresh(t)
	ctx, index := t.Context(), hero.JobCallersKey(5)
	for _, caller := range []uint32{12, 13} {
		testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: caller, ContextID: in}))
		testkit.Must(t, c.SAdd(ctx, index, caller).Err())
	}
	testkit.Must(t, d.DeleteJob(ctx, in, 12, 5))
	if left := c.SMembers(ctx, index).Val(); len(left) != 1 || left[0] != "13" {
		t.Errorf("the index has %q", left)
	}
	if _, err := d.Job(ctx, in, 13, 5); err != nil {
		t.Errorf("the other caller's job: %v", err)
	}
	is(t, d.DeleteJob(ctx, in, 12, 5), ErrNotFound)

	testkit.Must(t, c.Del(ctx, index).Err())
	testkit.Must(t, c.Set(ctx, index, "another program's", 0).Err())
	if err := d.DeleteJob(ctx, in, 13, 5); err == nil {
		t.Error("an index that is none was taken")
	}
	if _, err := d.Job(ctx, in, 13, 5); err != nil {
		t.Errorf("a delete that was refused did half: %v", err)
	}
	testkit.Must(t, c.Del(ctx, index).Err())
	testkit.Must(t, d.DeleteJob(ctx, in, 13, 5))
	if n := c.Exists(ctx, index, hero.JobKey(13, 5)).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
