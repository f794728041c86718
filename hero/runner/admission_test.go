package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda/hero"
)

// A job of a caller without the right does not run, even if another actor has queued it. Its
// error names the reason, and its caller gets the result.
func TestAJobOfAnActorWithoutTheRightIsNotRunFromAQueue(t *testing.T) {
	w := newWorld(t)
	w.must(w.db.PutContext(t.Context(), hero.Context{ID: tenant, Admins: []uint32{actor}, Executors: []uint32{13}, Readers: []uint32{14}}))
	ran := filepath.Join(t.TempDir(), "ran")
	ids := map[uint32]bool{actor: true, 13: true, 14: false, 99: false}
	for caller := range ids {
		j := hero.Job{ID: caller, CallerID: caller, ContextID: tenant, ScriptType: "bash", Script: fmt.Sprintf("echo %d >> %s", caller, ran), Status: hero.JobDispatched, Retries: 2}
		w.must(w.db.PutJob(t.Context(), j))
		w.must(w.db.Push(t.Context(), tenant, "queue:bash", j.Key()))
	}
	w.start(20, newScripts(t, t.TempDir()), Options{})
	for caller, may := range ids {
		var j hero.Job
		w.eventually(fmt.Sprintf("the job of actor %d ends", caller), func() (ended bool) {
			var err error
			j, err = w.db.Job(t.Context(), tenant, caller, caller)
			w.must(err)
			return j.Status.Ended()
		})
		why := fmt.Sprintf("permission denied: actor %d is neither admin nor executor of context 7", caller)
		if may != (j.Status == hero.JobFinished) || may == strings.Contains(j.Result["error"], why) {
			t.Errorf("actor %d: %s %v", caller, j.Status, j.Result)
		}
	}
	text, _ := os.ReadFile(ran)
	if got := string(text); len(strings.Fields(got)) != 2 || strings.Contains(got, "99") || strings.Contains(got, "14") {
		t.Errorf("ran: %s", got)
	}
	w.eventually("all four are told", func() bool { return len(w.told()) == 4 })
	w.idle(20)
}

func (w *world) waiting() []string {
	w.t.Helper()
	c, err := w.db.Client(tenant)
	w.must(err)
	keys, err := c.ZRange(w.t.Context(), "edda:waiting", 0, -1).Result()
	w.must(err)
	return keys
}

// A job outside of a flow runs after its dependencies, in whatever order they are queued.
func TestAJobInAQueueRunsBeforeTheJobItDependsOn(t *testing.T) {
	w := newWorld(t)
	order := filepath.Join(t.TempDir(), "order")
	write := func(id uint32) string { return fmt.Sprintf("echo %d >> %s", id, order) }
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.queue(hero.Job{ID: 3, ScriptType: "bash", Script: write(3), Dependends: []uint32{1, 2}})
	w.eventually("job 3 waits", func() bool { return w.status(3) == hero.JobWaiting && len(w.waiting()) == 1 })
	w.queue(hero.Job{ID: 1, ScriptType: "bash", Script: "sleep 0.3; " + write(1)})
	w.ended(1)
	w.queue(hero.Job{ID: 2, ScriptType: "bash", Script: write(2), Dependends: []uint32{1}})
	if j := w.ended(3); j.Status != hero.JobFinished {
		t.Errorf("%s %v", j.Status, j.Result)
	}
	text, _ := os.ReadFile(order)
	if got := strings.Fields(string(text)); fmt.Sprint(got) != "[1 2 3]" {
		t.Errorf("ran in the order %v", got)
	}
	if left := w.waiting(); len(left) > 0 {
		t.Errorf("%v wait", left)
	}
	w.idle(20)
}

// A job with the status waiting_for_prerequisites, which other programs push, waits until
// each prerequisite is met.
func TestAJobInAQueueRunsWithoutItsPrerequisites(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	j := hero.Job{ID: 1, CallerID: actor, ContextID: tenant, ScriptType: "bash", Script: "echo ran", Prerequisites: []string{"file-x", "paid"}, Status: hero.JobWaiting}
	w.must(w.db.PutJob(t.Context(), j))
	w.must(w.db.Push(t.Context(), tenant, "queue:bash", j.Key()))
	w.eventually("it waits", func() bool { return len(w.waiting()) == 1 })
	for i, name := range []string{"file-x", "file-x", "paid"} {
		if i < 2 {
			if got := w.status(1); got != hero.JobWaiting {
				t.Errorf("it is %s", got)
			}
		}
		_, err := w.db.MeetJob(t.Context(), tenant, actor, 1, name)
		w.must(err)
	}
	if j := w.ended(1); j.Status != hero.JobFinished || len(j.Met) != 2 {
		t.Errorf("%+v", j)
	}
	w.idle(20)
}

// If a job fails, all jobs that depend on it, directly or not, end with its reason, and their
// callers get it. A job that waits too long names the missing dependency.
func TestAJobWhoseDependencyFailedEndsWithTheReason(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.queue(hero.Job{ID: 4, ScriptType: "bash", Script: "true", Dependends: []uint32{77}})
	w.queue(hero.Job{ID: 3, ScriptType: "bash", Script: "true", Dependends: []uint32{2}})
	w.queue(hero.Job{ID: 2, ScriptType: "bash", Script: "true", Dependends: []uint32{1}, Retries: 3})
	w.eventually("three wait", func() bool { return len(w.waiting()) == 3 })
	w.queue(hero.Job{ID: 1, ScriptType: "bash", Script: "echo no >&2; exit 3"})
	for id, why := range map[uint32]string{2: "dependency 1 failed: exit 3: no", 3: "dependency 2 failed: dependency 1 failed: exit 3: no"} {
		if j := w.ended(id); j.Status != hero.JobError || j.Result["error"] != why {
			t.Errorf("job %d: %s %v", id, j.Status, j.Result)
		}
	}
	w.eventually("all three are told", func() bool { return len(w.told()) == 3 })
	c, err := w.db.Client(tenant)
	w.must(err)
	w.must(c.HSet(t.Context(), hero.JobKey(actor, 4), "edda_waits_until", 1).Err())
	if j := w.ended(4); j.Result["error"] != "queue_timeout: not met within 24h0m0s: job 77 is not there" {
		t.Errorf("%v", j.Result)
	}
	w.idle(20)
}

// A runner dies between a dependency's end and the release. The next look of any runner
// releases the job. A job that was deleted or stopped is no longer waiting.
func TestJobsThatWaitOutliveTheirRunner(t *testing.T) {
	w := newWorld(t)
	stop := w.start(20, newScripts(t, t.TempDir()), Options{})
	for id := uint32(2); id <= 4; id++ {
		w.queue(hero.Job{ID: id, ScriptType: "bash", Script: "true", Dependends: []uint32{1}})
	}
	w.eventually("they wait", func() bool { return len(w.waiting()) == 3 })
	stop()
	w.must(w.db.DeleteJob(t.Context(), tenant, actor, 3))
	_, _, err := w.db.MoveJob(t.Context(), tenant, actor, 4, hero.JobError, map[string]string{"error": "stopped"})
	w.must(err)
	w.must(w.db.PutJob(t.Context(), hero.Job{ID: 1, CallerID: actor, ContextID: tenant, ScriptType: "bash", Script: "true", Status: hero.JobFinished}))
	w.start(21, newScripts(t, t.TempDir()), Options{})
	if j := w.ended(2); j.Status != hero.JobFinished {
		t.Errorf("%s %v", j.Status, j.Result)
	}
	w.eventually("nothing waits", func() bool { return len(w.waiting()) == 0 })
	w.idle(21)
}

// A flow orders its own jobs: the runner does not hold a job that a flow dispatched.
func TestAJobThatItsFlowDispatchedDoesNotWait(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.queue(hero.Job{ID: 2, ScriptType: "bash", Script: "true", Dependends: []uint32{1}, Prerequisites: []string{"x"}, FlowID: 33, Attempt: 1})
	if j := w.ended(2); j.Status != hero.JobFinished {
		t.Errorf("%s %v", j.Status, j.Result)
	}
}

// The job was given up after a day, regardless of its queue_timeout.
func TestAJobThatWaitsForOthersIgnoresItsQueueTimeout(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	const days = 3 * 24 * 3600
	w.queue(hero.Job{ID: 1, ScriptType: "bash", Script: "true", Dependends: []uint32{77}, QueueTimeout: 1})
	w.queue(hero.Job{ID: 2, ScriptType: "bash", Script: "true", Prerequisites: []string{"paid"}, QueueTimeout: days})
	if j := w.ended(1); j.Status != hero.JobError || j.Result["error"] != "queue_timeout: not met within 1s: job 77 is not there" {
		t.Errorf("%s %v", j.Status, j.Result)
	}
	w.eventually("the second waits", func() bool { return len(w.waiting()) == 1 })
	c, err := w.db.Client(tenant)
	w.must(err)
	until, err := c.ZScore(t.Context(), "edda:waiting", hero.JobKey(actor, 2)).Result()
	w.must(err)
	if left := until - float64(time.Now().Unix()); left > days || left < days-600 {
		t.Errorf("it waits for %v s more, want %d", left, days)
	}
}
