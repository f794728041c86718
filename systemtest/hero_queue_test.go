//go:build !race

package systemtest

import (
	"fmt"
	"testing"
	"time"

	"edda/hero"
	"edda/internal/realservers"
)

// queueEnds bounds sixty scripts of half a second on two places of a busy machine.
const queueEnds = 4 * time.Minute

// A job's timeout is that of its execution. Sixty jobs of half a second that may run for
// five seconds take fifteen on two places: most of them wait longer than they may run.
func TestSixtyJobsThatWaitLongerThanTheyMayRunAllFinish(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	h.coordinator()
	h.runner([]string{"EDDA_HERO_RUNNER_CONCURRENCY=2"})
	h.place(7, hero.Runner{ID: ourRunner, Local: true})
	var wide []step
	for id := uint32(1); id <= 60; id++ {
		wide = append(wide, step{id: id, script: "import time; time.sleep(0.5); print('ran')", timeout: 12})
	}
	h.flow(7, 33, wide...)
	untilIn(t, queueEnds, "the flow ends", func() bool {
		f, err := h.db.Flow(t.Context(), 7, 33)
		return err == nil && f.Status.Ended()
	})
	want := map[string]string{}
	for _, s := range wide {
		want[fmt.Sprintf("%d.output", s.id)] = "ran"
	}
	h.finished(7, 33, want)
	for _, s := range wide {
		if j := h.job(7, s.id); j.Attempt != 1 {
			t.Errorf("job %d was dispatched %d times", s.id, j.Attempt)
		}
	}
}

// A job that nobody begins within its queue_timeout ends, and says so.
func TestAJobThatNobodyBeginsEndsWithItsQueueTimeout(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	h.coordinator()
	h.place(7, hero.Runner{ID: ourRunner, Local: true}) // of which no process runs
	var ignored any
	h.call("job.create", object{"context_id": 7, "job": object{"id": 1, "caller_id": heroActor, "script": "print(1)", "script_type": "python", "timeout": 60, "queue_timeout": 1}}, &ignored)
	h.call("flow.create", object{"context_id": 7, "flow": object{"id": 33, "caller_id": heroActor, "jobs": []int{1}}}, &ignored)
	h.begin(7, 33)
	if f := h.ended(7, 33); f.Status != hero.FlowError || f.Result["error"] != "job 1 failed: queue_timeout: not begun within 1s" {
		t.Errorf("%s: %v", f.Status, f.Result)
	}
	if j := h.job(7, 1); j.QueueTimeout != 1 || j.Status != hero.JobError {
		t.Errorf("%+v", j)
	}
}
