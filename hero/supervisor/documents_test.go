package supervisor

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

const documented = `{"id":"job-123","caller_id":"client-1","context_id":"context-1","payload":"print(1)","runner":"osis_runner_1","executor":"osis","timeout":30,"env_vars":{},"created_at":"2025-08-29T10:29:32Z","updated_at":"2025-08-29T10:29:32Z"}`

// rightful makes a context with actor 1 as an executor.
func rightful(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	db := emptyDB(t)
	testkit.Must(t, db.PutContext(t.Context(), hero.Context{ID: 1, Admins: []uint32{12}, Executors: []uint32{1}, Readers: []uint32{13}}))
	h := serve(t, db, o)
	runner(t, db, 1, "osis_runner_1", done)
	runner(t, db, 1, "queue:python", done)
	return h
}

// The seven exchanges of the documents, word for word.
func TestTheSevenDocumentedExchangesCannotSucceed(t *testing.T) {
	h := rightful(t, Options{})
	for _, c := range []struct{ method, params, want string }{
		{"register_runner", `[{"secret":"admin-secret","name":"osis_runner_1","queue":"osis_runner_1"}]`, "<nil>"},
		{"list_runners", `[]`, "[osis_runner_1 python]"},
		{"jobs.create", `[{"secret":"admin-secret","job":` + documented + `}]`, "job-123"},
		{"job.run", `[{"secret":"admin-secret","job":` + documented + `}]`, "map[success:ran print(1)]"},
		{"auth.verify", `[{"key":"admin-secret"}]`, "map[name:admin 1 scope:admin valid:true]"},
	} {
		if got, code := call(t, h, c.method, c.params); code != 0 || fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, code %d, want %s", c.method, got, code, c.want)
		}
	}
	if got, code := call(t, h, "auth.create_key", `[{"admin_key":"admin-secret","name":"me","scope":"user"}]`); code != 0 {
		t.Errorf("auth.create_key: %v, code %d", got, code)
	}
	listed := post(t, h, `{"jsonrpc":"2.0","id":1,"method":"jobs.list","params":[]}`, "admin-secret")
	if jobs, ok := listed["result"].([]any); !ok || len(jobs) != 1 || jobs[0].(map[string]any)["id"] != "job-123" {
		t.Errorf("jobs.list: %v", listed)
	}
	for _, method := range []string{"job.status", "job.result", "job.logs", "get_job", "job.delete"} {
		if got, code := call(t, h, method, `[{"secret":"admin-secret","job_id":"job-123"}]`); code != 0 {
			t.Errorf("%s: %v, code %d", method, got, code)
		}
	}
	if _, code := call(t, h, "job.status", `[{"secret":"admin-secret","job_id":"job-124"}]`); code != jsonrpc.NotFound {
		t.Errorf("a job that is not there: code %d", code)
	}
	// An unknown field is refused by its name.
	for from, to := range map[string]string{
		`"context-1"`: `"tenant-1"`, `"client-1"`: `"bob"`, `"print(1)"`: `" "`, `"job-123"`: `"99999999999"`,
	} {
		got, code := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+strings.Replace(documented, from, to, 1)+`}]`)
		if code != jsonrpc.InvalidParams || !strings.Contains(fmt.Sprint(got), "job.") {
			t.Errorf("%s: %v, code %d", to, got, code)
		}
	}
	for _, queue := range []string{"msg_out", "context:1", "edda:waiting", "a b", ""} {
		if got, code := call(t, h, "register_runner", fmt.Sprintf(`[{"secret":"admin-secret","name":"x","queue":%q}]`, queue)); code != jsonrpc.InvalidParams {
			t.Errorf("queue %q: %v, code %d", queue, got, code)
		}
	}
	for _, method := range []string{"start_runner", "stop_runner", "get_runner_logs"} {
		if got, code := call(t, h, method, `[{"name":"python"}]`); code != jsonrpc.MethodNotFound || !strings.Contains(fmt.Sprint(got), "edda run --role runner") {
			t.Errorf("%s: %v, code %d", method, got, code)
		}
	}
}

// A supervisor refuses a job of an actor without the right, or in a missing context, with
// any key. A key may be bound to contexts and callers.
func TestASupervisorRunsJobsOfActorsWithoutTheRight(t *testing.T) {
	h := rightful(t, Options{Users: []string{"anybody"}})
	run := func(secret, caller, context, id string) int {
		job := strings.NewReplacer(`"2001"`, `"`+id+`"`, `"12"`, `"`+caller+`"`, `"context_id":"1"`, `"context_id":"`+context+`"`).Replace(wire)
		_, code := call(t, h, "job.run", fmt.Sprintf(`[{"secret":%q,"job":%s}]`, secret, job))
		return code
	}
	key := func(params string) string {
		t.Helper()
		got, code := call(t, h, "auth.key.create", `[{"admin_key":"admin-secret","name":"bound","scope":"user",`+params+`}]`)
		if code != 0 {
			t.Fatalf("%v, code %d", got, code)
		}
		return got.(map[string]any)["key"].(string)
	}
	ofOne, inTwo := key(`"callers":["1"]`), key(`"contexts":["context-2"]`)
	for _, c := range []struct {
		secret, caller, context, id string
		want                        int
	}{
		{"admin-secret", "12", "1", "5", 0}, {"admin-secret", "1", "1", "6", 0},
		{"admin-secret", "999", "1", "7", jsonrpc.PermissionDenied}, {"admin-secret", "13", "1", "7", jsonrpc.PermissionDenied},
		{"anybody", "999", "1", "7", jsonrpc.PermissionDenied}, {"admin-secret", "12", "9", "7", jsonrpc.NotFound},
		{ofOne, "12", "1", "7", jsonrpc.PermissionDenied}, {ofOne, "1", "1", "7", 0}, {inTwo, "12", "1", "8", jsonrpc.PermissionDenied},
	} {
		if got := run(c.secret, c.caller, c.context, c.id); got != c.want {
			t.Errorf("%+v: code %d", c, got)
		}
	}
	if _, code := call(t, h, "job.result", `[{"secret":"`+ofOne+`","job_id":"5","caller_id":"12","context_id":"1"}]`); code != jsonrpc.NotFound {
		t.Errorf("another caller's result: code %d", code)
	}
	if got, _ := call(t, h, "jobs.list", `[{"secret":"`+ofOne+`"}]`); len(got.([]any)) != 2 {
		t.Errorf("jobs of others are listed: %v", got)
	}
	if got, _ := call(t, h, "auth.key.list", `[{"admin_key":"admin-secret"}]`); len(got.([]any)) != 2 || strings.Contains(fmt.Sprint(got), ofOne) {
		t.Errorf("%v", got)
	}
	if got, code := call(t, h, "auth.key.remove", `[{"admin_key":"admin-secret","name":"bound"}]`); got != true || code != 0 {
		t.Errorf("%v, code %d", got, code)
	}
	if got := run(ofOne, "1", "1", "7"); got != jsonrpc.PermissionDenied {
		t.Errorf("a key that was removed: code %d", got)
	}
}

// A job outside of a flow gets its retries, from a supervisor that makes retries and from one
// that does not.
func TestRetriesOfAJobInNoFlowAreLostThroughASupervisor(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	var runs atomic.Int32
	runner(t, db, 1, "queue:python", func(hero.Job) (hero.JobStatus, map[string]string) {
		runs.Add(1)
		return hero.JobError, map[string]string{"error": "exit 3"}
	})
	j := hero.Job{ID: 5, CallerID: 12, ContextID: 1, Script: "x", ScriptType: "python", Timeout: 5, Retries: 2}
	c := NewClient(HTTP(h.URL, "", h.Client()), "admin-secret", "test")
	status, result, err := c.Run(t.Context(), c.NewID(), j, nil)
	if err != nil || status != hero.JobError || !reflect.DeepEqual(result, map[string]string{"error": "exit 3"}) || runs.Load() != 1 {
		t.Errorf("ours: %s %v %v, %d runs, which are its runner's to make", status, result, err, runs.Load())
	}
	if stored, err := db.Job(t.Context(), 1, 12, 5); err != nil || stored.Retries != 2 {
		t.Errorf("%+v, %v", stored, err)
	}
	for n, tt := range []struct {
		flow, ends uint32
		want       int32
	}{{0, 9, 3}, {0, 2, 2}, {33, 9, 1}} {
		var sent atomic.Int32
		foreign := httptest.NewServer(answering(func() string {
			if uint32(sent.Add(1)) == tt.ends {
				return `{"success":"done"}`
			}
			return `{"error":"exit 3"}`
		}))
		j := j
		j.FlowID = tt.flow
		_, _, err := NewClient(HTTP(foreign.URL, "", foreign.Client()), "s", "test").Run(t.Context(), "again", j, nil)
		foreign.Close()
		if err != nil || sent.Load() != tt.want {
			t.Errorf("%d: %d runs, want %d, %v", n, sent.Load(), tt.want, err)
		}
	}
}

// The supervisor's own Redis has no hash of the contexts in its settings, and their jobs were
// refused. Other contexts, and actors without a right in a stored context, stay refused.
func TestASupervisorWithARedisOfItsOwnRefusesTheContextsItServes(t *testing.T) {
	h := rightful(t, Options{Contexts: []uint32{1, 9}})
	for _, c := range []struct {
		context, caller string
		want            int
	}{{"9", "999", 0}, {"1", "12", 0}, {"1", "999", jsonrpc.PermissionDenied}, {"8", "12", jsonrpc.NotFound}} {
		job := strings.NewReplacer(`"12"`, `"`+c.caller+`"`, `"context_id":"1"`, `"context_id":"`+c.context+`"`).Replace(wire)
		if _, code := call(t, h, "jobs.create", `[{"secret":"admin-secret","job":`+job+`}]`); code != c.want {
			t.Errorf("%+v: code %d", c, code)
		}
	}
}
