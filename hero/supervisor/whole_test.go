package supervisor

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"edda/hero"
	"edda/internal/testkit"
)

// A job's hash that the coordinator wrote keeps its retries, dependends and
// prerequisites when the supervisor on the same Redis has the job run.
func TestASupervisorOnTheCoordinatorsRedisKeepsTheHashOfAJobWhole(t *testing.T) {
	for name, flow := range map[string]uint32{"outside of a flow": 0, "of a flow": 71} {
		t.Run(name, func(t *testing.T) {
			db := emptyDB(t)
			h := serve(t, db, Options{})
			testkit.Must(t, db.PutJob(t.Context(), hero.Job{ID: 21, CallerID: 12, ContextID: 1, Script: "x", ScriptType: "python", Status: hero.JobFinished}))
			j := hero.Job{
				ID: 2001, CallerID: 12, ContextID: 1, Script: "print(1)", ScriptType: "python", Executor: "python", Timeout: 5, Retries: 2,
				EnvVars: map[string]string{"WHO": "me"}, Dependends: []uint32{21}, FlowID: flow, Attempt: min(flow, 1),
				Signatures: json.RawMessage(`[{"by":"a"}]`), Status: hero.JobDispatched,
			}
			if flow != 0 {
				j.Prerequisites = []string{"file-x"} // the flow has checked it
			}
			testkit.Must(t, db.PutJob(t.Context(), j))
			c, err := db.Client(1)
			testkit.Must(t, err)
			testkit.Must(t, c.HSet(t.Context(), j.Key(), "theirs", "kept").Err())
			before := c.HGetAll(t.Context(), j.Key()).Val()
			runner(t, db, 1, "queue:python", done)
			text, err := json.Marshal(ToRun(j))
			testkit.Must(t, err)
			for range 2 { // the second call is only answered
				if got, code := call(t, h, "job.run", fmt.Sprintf(`[{"secret":"admin-secret","job":%s}]`, text)); code != 0 || !reflect.DeepEqual(got, map[string]any{"success": "ran print(1)"}) {
					t.Fatalf("%v, code %d", got, code)
				}
			}
			after := c.HGetAll(t.Context(), j.Key()).Val()
			for _, state := range []string{"status", "result", "updated_at", "content", "queued", fieldRunner, "edda_step"} {
				delete(before, state)
				delete(after, state)
			}
			if !maps.Equal(before, after) {
				t.Errorf("the hash was\n%v\nand is\n%v", before, after)
			}
		})
	}
}

// A higher attempt of a failed job in the supervisor's own Redis takes the new definition,
// and keeps the fields that the wire omits.
func TestAMendedJobTakesTheFieldsOfTheWireAndKeepsTheOthers(t *testing.T) {
	db := emptyDB(t)
	testkit.Must(t, db.PutJob(t.Context(), hero.Job{ID: 4, CallerID: 12, ContextID: 1, Script: "x", ScriptType: "python", Status: hero.JobFinished}))
	j := hero.Job{ID: 5, CallerID: 12, ContextID: 1, Script: "bad", ScriptType: "python", Executor: "python", Attempt: 1, Retries: 2, Dependends: []uint32{4}}
	enqueue := func(j hero.Job, want Verdict) {
		t.Helper()
		if v, err := Enqueue(t.Context(), db, j, "queue:python", time.Time{}); err != nil || v != want {
			t.Fatalf("%s, %v, want %s", v, err, want)
		}
	}
	enqueue(j, Queued)
	if _, _, err := db.MoveJob(t.Context(), 1, 12, 5, hero.JobError, nil); err != nil {
		t.Fatal(err)
	}
	mended := j
	mended.Script, mended.Attempt, mended.Retries, mended.Dependends = "good", 2, 0, nil
	enqueue(mended, Queued)
	got, err := db.Job(t.Context(), 1, 12, 5)
	if err != nil || got.Script != "good" || got.Attempt != 2 || got.Retries != 2 || len(got.Dependends) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	worse := mended
	worse.Script, worse.Attempt = "worse", 3 // it waits: another job under its id is refused
	enqueue(worse, Other)
}
