package coordinator

import (
	"fmt"
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
)

// behind has Redis show what a flow dispatched only after some looks at the flow's state, as
// the outbox does that is behind.
func (w *world) behind(looks int) {
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	w.flows.quiet, w.flows.later = true, looks
}

// projected tells Redis at once again.
func (w *world) projected() {
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	w.flows.quiet, w.flows.later = false, 0
}

// flow.prerequisite_met had answered which jobs are ready, and job.update of one of them was refused,
// because it still waited as Redis had it; or it was taken, and the flow never heard of it.
func TestAnUpdateRightAfterThePrerequisiteWasMetIsRefused(t *testing.T) {
	for _, status := range []hero.JobStatus{hero.JobFinished, hero.JobError, hero.JobStarted} {
		t.Run(string(status), func(t *testing.T) {
			w := newWorld(t, Options{}).settle()
			w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": 1, "caller_id": admin, "script": "x", "script_type": "v", "prerequisites": []string{"paid"}}}, nil)
			w.flow(33, 1)
			w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil)
			if _, _, err := w.db.MoveJob(t.Context(), 7, admin, 1, hero.JobWaiting, nil); err != nil {
				t.Fatal(err)
			}
			w.behind(5)
			var ready []uint32
			w.call("flow.prerequisite_met", dict2{"context_id": 7, "id": 33, "caller_id": admin, "name": "paid"}, &ready)
			if fmt.Sprint(ready) != "[1]" {
				t.Fatalf("ready are %v", ready)
			}
			var j hero.Job
			w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": status}, &j)
			if j.Status != status || j.FlowID != 33 || j.Attempt != 1 {
				t.Errorf("the job is %+v", j)
			}
			if len(w.flows.reports) != 1 || w.flows.reports[0].Node != 1 || w.flows.reports[0].Attempt != 1 {
				t.Errorf("the flow was told %+v", w.flows.reports)
			}
		})
	}
}

// The same right after the start: what an executor said then was dispatched over.
func TestAnUpdateRightAfterTheStartIsLost(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.job(2, 1)
	w.flow(33, 1, 2)
	w.behind(5)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil)
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "error"}, nil)
	if len(w.flows.reports) != 1 || w.flows.reports[0].Status != hero.NodeFailed {
		t.Errorf("the flow was told %+v", w.flows.reports)
	}
}

// And right after an attempt that failed: the next one is dispatched in a moment.
func TestAnUpdateOfTheNextAttemptIsRefused(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil)
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "error"}, nil)
	w.behind(9)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil) // where it failed
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "finished"}, nil)
	if n := len(w.flows.reports); n != 2 || w.flows.reports[1].Status != hero.NodeCompleted {
		t.Errorf("the flow was told %+v", w.flows.reports)
	}
}

// A projection that does not come is said as what it is, and the update is not lost without a word.
func TestAnUpdateOfAJobThatIsNotShownInTimeSaysSo(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	w.behind(1 << 30)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil) // it answers nevertheless
	if _, _, err := w.db.MoveJob(t.Context(), 7, admin, 1, hero.JobWaiting, nil); err != nil {
		t.Fatal(err)
	}
	if d := w.refused(jsonrpc.StorageError, "job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "finished"}); d.Do == "" || d.Key != "job:1:1" {
		t.Errorf("%+v", d)
	}
	w.projected()
	// A job that waits in no flow is as before.
	w.job(5)
	if _, _, err := w.db.MoveJob(t.Context(), 7, admin, 5, hero.JobWaiting, nil); err != nil {
		t.Fatal(err)
	}
	if d := w.refused(jsonrpc.InvalidParams, "job.update", dict2{"context_id": 7, "caller_id": admin, "id": 5, "status": "finished"}); d.Field != "status" {
		t.Errorf("%+v", d)
	}
}

// A job that failed in one flow is another's now.
func TestAnUpdateOfAJobThatAnotherFlowDispatchedIsRefused(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil)
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "error"}, nil)
	w.call("flow.create", dict2{"context_id": 7, "flow": dict2{"id": 34, "caller_id": admin, "nodes": []dict2{{"id": 1, "prerequisites": []string{"paid"}}}}}, nil)
	w.call("flow.start", dict2{"context_id": 7, "id": 34}, nil)
	w.behind(5)
	w.call("flow.prerequisite_met", dict2{"context_id": 7, "id": 34, "caller_id": admin, "name": "paid"}, nil)
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "finished"}, nil)
	if n := len(w.flows.reports); n != 2 || w.flows.reports[1].FlowID != 34 {
		t.Errorf("the flows were told %+v", w.flows.reports)
	}
}
