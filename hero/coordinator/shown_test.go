package coordinator

import (
	"fmt"
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
)

// behind delays the dispatches of flows in Redis by some reads of the flow's state, like a
// slow outbox.
func (w *world) behind(looks int) {
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	w.flows.quiet, w.flows.later = true, looks
}

// projected updates Redis at once again.
func (w *world) projected() {
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	w.flows.quiet, w.flows.later = false, 0
}

// flow.prerequisite_met answered with a ready job, and a job.update of it was refused, because
// in Redis the job still waited; or it was accepted, and the flow did not get it.
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

// The same right after the start: the dispatch overwrote the update of an executor.
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

// The same right after a failed attempt, before the next one is dispatched.
func TestAnUpdateOfTheNextAttemptIsRefused(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil)
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "error"}, nil)
	w.behind(9)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil) // goes on after the failure
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "finished"}, nil)
	if n := len(w.flows.reports); n != 2 || w.flows.reports[1].Status != hero.NodeCompleted {
		t.Errorf("the flow was told %+v", w.flows.reports)
	}
}

// The error names a missing projection, so the update is not lost silently.
func TestAnUpdateOfAJobThatIsNotShownInTimeSaysSo(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	w.behind(1 << 30)
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, nil) // answers nevertheless
	if _, _, err := w.db.MoveJob(t.Context(), 7, admin, 1, hero.JobWaiting, nil); err != nil {
		t.Fatal(err)
	}
	if d := w.refused(jsonrpc.StorageError, "job.update", dict2{"context_id": 7, "caller_id": admin, "id": 1, "status": "finished"}); d.Do == "" || d.Key != "job:1:1" {
		t.Errorf("%+v", d)
	}
	w.projected()
	// A waiting job outside of a flow is not affected.
	w.job(5)
	if _, _, err := w.db.MoveJob(t.Context(), 7, admin, 5, hero.JobWaiting, nil); err != nil {
		t.Fatal(err)
	}
	if d := w.refused(jsonrpc.InvalidParams, "job.update", dict2{"context_id": 7, "caller_id": admin, "id": 5, "status": "finished"}); d.Field != "status" {
		t.Errorf("%+v", d)
	}
}

// A job failed in one flow, and belongs to another now.
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
