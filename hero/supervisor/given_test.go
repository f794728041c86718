package supervisor

import (
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

// The coordinator's hash of a job lies on the same Redis, and the call that was to
// bring the job was lost: whoever asks must not wait for it for ever.
func TestTheHashOfAJobThatWasNeverSentIsNotTakenForTheJob(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	j := hero.Job{ID: 2001, CallerID: 12, ContextID: 1, Script: "print(1)", ScriptType: "python", Timeout: 5, Status: hero.JobDispatched}
	testkit.Must(t, db.PutJob(t.Context(), j))
	id := `[{"secret":"admin-secret","job_id":"2001","caller_id":"12","context_id":"1"}]`
	if got, code := call(t, h, "job.status", id); code != jsonrpc.NotFound {
		t.Errorf("before it came: %v (%d)", got, code)
	}
	if got, code := call(t, h, "jobs.create", `[{"secret":"admin-secret","job":`+wire+`}]`); code != 0 {
		t.Fatal(got)
	}
	if got, code := call(t, h, "job.status", id); code != 0 || got.(map[string]any)["status"] != "dispatched" {
		t.Errorf("after it came: %v (%d)", got, code)
	}
}
