package supervisor

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/testkit"
)

func done(j hero.Job) (hero.JobStatus, map[string]string) {
	return hero.JobFinished, map[string]string{"output": "ran " + j.Script}
}

func TestJobRunInEveryShape(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	runner(t, db, 1, "queue:python", done)
	flat := `{"secret":"admin-secret",` + wire[1:]
	for i, params := range []string{
		`{"secret":"admin-secret","job":` + wire + `}`,
		`[{"secret":"admin-secret","job":` + wire + `}]`,
		`{"params":{"secret":"admin-secret","job":` + wire + `}}`,
		`[{"params":{"secret":"admin-secret","job":` + wire + `}}]`,
		flat, `[` + flat + `]`,
	} {
		params = strings.Replace(params, `"2001"`, fmt.Sprintf(`"%d"`, 2001+i), 1)
		got, code := call(t, h, "job.run", params)
		if code != 0 || !reflect.DeepEqual(got, map[string]any{"success": "ran print(1)"}) {
			t.Errorf("%s: %v, code %d", params, got, code)
		}
	}
}

func TestAFailedJobIsASuccessfulCall(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	runner(t, db, 1, "queue:python", func(hero.Job) (hero.JobStatus, map[string]string) {
		return hero.JobError, map[string]string{"error": "exit 3"}
	})
	got, code := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+wire+`}]`)
	if code != 0 || !reflect.DeepEqual(got, map[string]any{"error": "exit 3"}) {
		t.Errorf("%v, code %d", got, code)
	}
}

func TestAJobRunsOnce(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	var runs atomic.Int32
	runner(t, db, 1, "queue:python", func(j hero.Job) (hero.JobStatus, map[string]string) {
		return hero.JobFinished, map[string]string{"output": fmt.Sprint(runs.Add(1))}
	})
	for range 3 {
		got, code := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+wire+`}]`)
		if code != 0 || !reflect.DeepEqual(got, map[string]any{"success": "1"}) {
			t.Errorf("%v, code %d", got, code)
		}
	}
	later := strings.Replace(wire, `"2025-08-29T10:29:32Z","updated_at"`, `"2026-01-01T00:00:00Z","attempt":2,"updated_at"`, 1)
	if got, _ := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+later+`}]`); !reflect.DeepEqual(got, map[string]any{"success": "1"}) {
		t.Errorf("a finished job was run again by a later attempt: %v", got)
	}
	other := strings.Replace(wire, "print(1)", "print(2)", 1)
	if got, code := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+other+`}]`); code != jsonrpc.AlreadyExists {
		t.Errorf("another job of the same id: %v, code %d", got, code)
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestAFailedJobRunsAgainForAHigherAttemptOnly(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	var runs atomic.Int32
	runner(t, db, 1, "queue:python", func(j hero.Job) (hero.JobStatus, map[string]string) {
		return hero.JobError, map[string]string{"error": fmt.Sprint(runs.Add(1))}
	})
	for _, tt := range []struct{ attempt, want string }{{"1", "1"}, {"1", "1"}, {"2", "2"}, {"2", "2"}, {"1", "2"}, {"3", "3"}} {
		job := strings.Replace(wire, `"timeout":5`, `"timeout":5,"attempt":`+tt.attempt, 1)
		if got, _ := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+job+`}]`); !reflect.DeepEqual(got, map[string]any{"error": tt.want}) {
			t.Errorf("attempt %s: %v, want %s", tt.attempt, got, tt.want)
		}
	}
}

func TestAJobThatStillLiesInItsQueueIsNotQueuedTwice(t *testing.T) {
	db := emptyDB(t)
	j := hero.Job{ID: 5, CallerID: 12, ContextID: 1, Script: "x", ScriptType: "python", Executor: "python"}
	for attempt := range uint32(4) {
		j.Attempt = attempt
		if _, err := Enqueue(t.Context(), db, j, "queue:python", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := db.Depth(t.Context(), 1, "queue:python"); n != 1 {
		t.Errorf("%d keys in the queue", n)
	}
}

func TestTheWholeLifeOfAJob(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	want := func(method, params string, want any) {
		t.Helper()
		got, code := call(t, h, method, params)
		if code != 0 || want != nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: %v, code %d, want %v", method, params, got, code, want)
		}
	}
	id := `[{"secret":"admin-secret","job_id":"2001"}]`
	want("jobs.create", `[{"secret":"admin-secret","job":`+wire+`}]`, "2001")
	want("create_job", `[{"secret":"admin-secret","job":`+wire+`}]`, "2001") // the same again
	if n, _ := db.Depth(t.Context(), 1, "queue:python"); n != 0 {
		t.Fatalf("creating queued %d", n)
	}
	got, _ := call(t, h, "job.status", id)
	state := got.(map[string]any)
	if state["job_id"] != "2001" || state["status"] != "dispatched" || state["created_at"] != "2025-08-29T10:29:32Z" || state["completed_at"] != nil {
		t.Errorf("status %v", state)
	}
	if _, code := call(t, h, "job.result", id); code != jsonrpc.InvalidParams {
		t.Errorf("result of a job without an end: code %d", code)
	}
	want("job.start", id, true)
	want("job.start", id, true)
	if n, _ := db.Depth(t.Context(), 1, "queue:python"); n != 1 {
		t.Fatalf("starting twice queued %d", n)
	}
	runner(t, db, 1, "queue:python", done)
	testkit.Until(t, 20*time.Second, "the end", func() bool {
		got, _ := call(t, h, "job.status", id)
		return got.(map[string]any)["status"] == "finished"
	})
	want("job.result", id, map[string]any{"success": "ran print(1)"})
	want("job.logs", id, []any{"ran print(1)"})
	want("get_job_logs", id, []any{"ran print(1)"})
	want("job.stop", id, false) // it has ended
	got, _ = call(t, h, "get_job", `[{"secret":"admin-secret","id":2001}]`)
	if job := got.(map[string]any); job["payload"] != "print(1)" || job["runner"] != "python" || job["status"] != "finished" || job["caller_id"] != "12" {
		t.Errorf("get_job %v", job)
	}
	if got, _ := call(t, h, "list_jobs", `[{"secret":"admin-secret"}]`); len(got.([]any)) != 1 {
		t.Errorf("jobs %v", got)
	}
	want("delete_job", id, true)
	if _, code := call(t, h, "job.status", id); code != jsonrpc.NotFound {
		t.Errorf("a deleted job: code %d", code)
	}
	want("list_runners", `[]`, []any{"python"})
	got, _ = call(t, h, "get_runner_status", `[{"secret":"admin-secret","name":"python"}]`)
	if !reflect.DeepEqual(got, map[string]any{"name": "python", "queue": "queue:python", "waiting": 0.0}) {
		t.Errorf("runner %v", got)
	}
}

func TestAnIDOfTwoContextsAsksForMore(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	for _, context := range []string{"1", "2"} {
		job := strings.Replace(wire, `"context_id":"1"`, `"context_id":"`+context+`"`, 1)
		if _, code := call(t, h, "jobs.create", `[{"secret":"admin-secret","job":`+job+`}]`); code != 0 {
			t.Fatal(code)
		}
	}
	if got, code := call(t, h, "job.status", `[{"secret":"admin-secret","job_id":"2001"}]`); code != jsonrpc.InvalidParams || !strings.Contains(got.(string), "context_id") {
		t.Errorf("%v, code %d", got, code)
	}
	if _, code := call(t, h, "job.status", `[{"secret":"admin-secret","job_id":"2001","context_id":"2"}]`); code != 0 {
		t.Errorf("code %d", code)
	}
	if _, code := call(t, h, "job.status", `[{"secret":"admin-secret","job_id":"2001","context_id":"2","caller_id":"13"}]`); code != jsonrpc.NotFound {
		t.Errorf("code %d", code)
	}
}

func TestScopes(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{Registrars: []string{"reg-secret"}, Users: []string{"user-secret"}})
	made := func(scope string) string {
		got, code := call(t, h, "auth.create_key", `[{"admin_key":"admin-secret","name":"n","scope":"`+scope+`"}]`)
		if code != 0 {
			t.Fatal(got)
		}
		return got.(map[string]any)["key"].(string)
	}
	admin, registrar, user := made("admin"), made("registrar"), made("user")
	may := func(secret, method, rest string) bool {
		_, code := call(t, h, method, `[{"secret":"`+secret+`"`+rest+`}]`)
		return code != jsonrpc.PermissionDenied
	}
	for secret, scope := range map[string]string{admin: "admin", registrar: "registrar", user: "user", "admin-secret": "admin", "reg-secret": "registrar", "user-secret": "user", "wrong": "", "": ""} {
		for method, who := range map[string]string{"jobs.list": "admin user", "register_runner": "admin registrar", "get_runner_status": "admin registrar user"} {
			want := scope != "" && strings.Contains(who, scope)
			if got := may(secret, method, `,"name":"x","queue":"queue:x"`); got != want {
				t.Errorf("%s with scope %q: %v", method, scope, got)
			}
		}
		_, code := call(t, h, "auth.create_key", `[{"admin_key":"`+secret+`","name":"n","scope":"user"}]`)
		if (code == 0) != (scope == "admin") {
			t.Errorf("create_key with scope %q: code %d", scope, code)
		}
		got, _ := call(t, h, "auth.verify", `[{"key":"`+secret+`"}]`)
		if v := got.(map[string]any); v["valid"] != (scope != "") || v["scope"] != scope {
			t.Errorf("verify with scope %q: %v", scope, v)
		}
	}
	if out := post(t, h, `{"jsonrpc":"2.0","id":1,"method":"jobs.list"}`, user); out["error"] != nil {
		t.Errorf("a bearer token is not taken: %v", out)
	}
	if out := post(t, h, `{"jsonrpc":"2.0","id":1,"method":"jobs.list","params":[{"secret":"wrong"}]}`, user); out["error"] == nil {
		t.Error("a wrong secret beside a right token is taken")
	}
}

func TestBadInput(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	with := func(field, value string) string {
		was := map[string]string{"id": `"2001"`, "caller_id": `"12"`, "context_id": `"1"`, "executor": `"python"`, "created_at": `"2025-08-29T10:29:32Z"`, "timeout": "5", "runner": `"python"`}[field]
		return `[{"secret":"admin-secret","job":` + strings.Replace(wire, `"`+field+`":`+was, `"`+field+`":`+value, 1) + `}]`
	}
	tests := []struct {
		name, method, params string
		code                 int
		says                 string
	}{
		{"too large", "job.run", with("id", `"4294967296"`), jsonrpc.InvalidParams, "below 4294967296"},
		{"negative", "job.run", with("caller_id", `-1`), jsonrpc.InvalidParams, "caller_id"},
		{"context 0", "job.run", with("context_id", `"0"`), jsonrpc.InvalidParams, "context"},
		{"no database", "job.run", with("context_id", `"16"`), jsonrpc.StorageError, "databases N"},
		{"time", "job.run", with("created_at", `"yesterday"`), jsonrpc.InvalidParams, "RFC 3339"},
		{"timeout", "job.run", with("timeout", `-5`), jsonrpc.InvalidParams, "timeout"},
		{"id object", "job.run", with("id", `{}`), jsonrpc.InvalidParams, "id"},
		{"no job", "job.run", `[{"secret":"admin-secret"}]`, jsonrpc.InvalidParams, "job.id"},
		{"nothing", "job.status", `[{"secret":"admin-secret"}]`, jsonrpc.InvalidParams, "job_id"},
		{"unknown", "job.status", `[{"secret":"admin-secret","job_id":"9"}]`, jsonrpc.NotFound, "no job 9"},
		{"queue", "register_runner", `[{"secret":"admin-secret","name":"x","queue":"context:1"}]`, jsonrpc.InvalidParams, "queue:"},
		{"name", "register_runner", `[{"secret":"admin-secret","name":"","queue":"queue:x"}]`, jsonrpc.InvalidParams, "name"},
		{"scope", "auth.create_key", `[{"admin_key":"admin-secret","name":"x","scope":"root"}]`, jsonrpc.InvalidParams, "scope"},
		{"method", "job.dance", `[{}]`, jsonrpc.MethodNotFound, ""},
	}
	for _, tt := range tests {
		got, code := call(t, h, tt.method, tt.params)
		said := fmt.Sprint(got)
		if code != tt.code || !strings.Contains(said, tt.says) || strings.Contains(said, "admin-secret") {
			t.Errorf("%s: %v, code %d, want %d with %q", tt.name, got, code, tt.code, tt.says)
		}
	}
	foreign := strings.Replace(wire, `"runner":"python","executor":"python"`, `"runner":"cobol","executor":"cobol"`, 1)
	if got, code := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+foreign+`}]`); code != jsonrpc.NotFound || !strings.Contains(got.(string), "register_runner") {
		t.Errorf("no runner: %v, code %d", got, code)
	}
}

func TestABrokenHashIsLeftAlone(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	c, err := db.Client(1)
	testkit.Must(t, err)
	testkit.Must(t, c.Set(t.Context(), "job:12:2001", "mine", 0).Err())
	if _, code := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+wire+`}]`); code != jsonrpc.StorageError {
		t.Errorf("code %d", code)
	}
	if v, _ := c.Get(t.Context(), "job:12:2001").Result(); v != "mine" {
		t.Errorf("the key holds %q now", v)
	}
}

func TestARunnerRegistersAndASecondSupervisorKnowsIt(t *testing.T) {
	db := emptyDB(t)
	first := serve(t, db, Options{Runners: map[string]string{}})
	if got, code := call(t, first, "register_runner", `[{"secret":"admin-secret","name":"snake","queue":"queue:snakes"}]`); code != 0 || got != nil {
		t.Fatal(got, code)
	}
	first.Close()
	second := serve(t, db, Options{Runners: map[string]string{}})
	runner(t, db, 1, "queue:snakes", done)
	job := strings.Replace(wire, `"runner":"python"`, `"runner":"snake"`, 1)
	if got, code := call(t, second, "job.run", `[{"secret":"admin-secret","job":`+job+`}]`); code != 0 {
		t.Error(got)
	}
}

func TestARestartedSupervisorStillAnswers(t *testing.T) {
	db := emptyDB(t)
	runner(t, db, 1, "queue:python", done)
	first := serve(t, db, Options{})
	if got, code := call(t, first, "job.run", `[{"secret":"admin-secret","job":`+wire+`}]`); code != 0 {
		t.Fatal(got)
	}
	first.Close()
	second := serve(t, redisdbtest.Open(t, redisdb.Options{Addr: redisAddr}), Options{})
	id := `[{"secret":"admin-secret","job_id":"2001"}]`
	if got, _ := call(t, second, "job.result", id); !reflect.DeepEqual(got, map[string]any{"success": "ran print(1)"}) {
		t.Errorf("%v", got)
	}
	if got, _ := call(t, second, "job.status", id); got.(map[string]any)["status"] != "finished" {
		t.Errorf("%v", got)
	}
}

func TestJobRunEndsWithTheQueueTimeoutOfAJobThatNoRunnerBegins(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{Grace: 50 * time.Millisecond})
	short := strings.Replace(wire, `"timeout":5`, `"timeout":5,"queue_timeout":1`, 1)
	got, _ := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+short+`}]`)
	text, _ := got.(map[string]any)["error"].(string)
	if !strings.HasPrefix(text, "queue_timeout: not begun within") {
		t.Errorf("%v", got)
	}
	if again, _ := call(t, h, "job.result", `[{"secret":"admin-secret","job_id":"2001"}]`); !reflect.DeepEqual(again, got) {
		t.Errorf("recorded is %v, answered was %v", again, got)
	}
}

func TestTheSweepEndsJobsWithoutACaller(t *testing.T) {
	db := emptyDB(t)
	s, err := New(db, Options{Admins: []string{"a"}, Grace: time.Millisecond})
	testkit.Must(t, err)
	for id, until := range map[uint32]time.Time{1: time.Now().Add(-time.Second), 2: time.Now().Add(time.Hour), 3: time.Now().Add(-time.Second), 4: time.Now().Add(-time.Second)} {
		j := hero.Job{ID: id, CallerID: 12, ContextID: 1, ScriptType: "python", Executor: "python", Timeout: 3600}
		if _, err := Enqueue(t.Context(), db, j, "queue:python", until); err != nil {
			t.Fatal(err)
		}
	}
	since(t, db, 1, time.Now().Add(-hero.DefaultQueueTimeout-time.Minute))
	since(t, db, 2, time.Now().Add(-2*time.Hour)) // queued for longer than its timeout
	begun(t, db, 3, time.Now())                   // queued for long, and begun now
	begun(t, db, 4, time.Now().Add(-2*time.Hour))
	for range 2 {
		testkit.Must(t, s.runOnce(t.Context()))
	}
	c, err := db.Client(1)
	testkit.Must(t, err)
	if waits := c.ZRange(t.Context(), supervisedKey, 0, -1).Val(); !slices.Equal(waits, []string{"job:12:3", "job:12:2"}) && !slices.Equal(waits, []string{"job:12:2", "job:12:3"}) {
		t.Errorf("looked at again: %v", waits)
	}
	for id, want := range map[uint32]hero.JobStatus{1: hero.JobError, 2: hero.JobDispatched, 3: hero.JobStarted, 4: hero.JobError} {
		if j, err := db.Job(t.Context(), 1, 12, id); err != nil || j.Status != want {
			t.Errorf("job %d is %s (%v), want %s", id, j.Status, err, want)
		}
	}
}

func TestAWaitingRunSurvivesItsCallerGoingAway(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	release := make(chan struct{})
	var runs atomic.Int32
	runner(t, db, 1, "queue:python", func(j hero.Job) (hero.JobStatus, map[string]string) {
		runs.Add(1)
		<-release
		return done(j)
	})
	ctx, leave := contextWithStop(t)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"job.run","params":[{"secret":"admin-secret","job":`+wire+`}]}`))
	testkit.Must(t, err)
	r.Header.Set("Content-Type", "application/json")
	left := make(chan error, 1)
	go func() {
		answer, err := h.Client().Do(r)
		if err == nil {
			answer.Body.Close()
		}
		left <- err
	}()
	testkit.Until(t, 20*time.Second, "the job runs", func() bool { return runs.Load() == 1 })
	leave()
	if err := <-left; err == nil {
		t.Fatal("the call was answered before the job ended")
	}
	close(release)
	got, _ := call(t, h, "job.run", `[{"secret":"admin-secret","job":`+wire+`}]`)
	if !reflect.DeepEqual(got, map[string]any{"success": "ran print(1)"}) || runs.Load() != 1 {
		t.Errorf("%v after %d runs", got, runs.Load())
	}
}

func TestStop(t *testing.T) {
	db := emptyDB(t)
	h := serve(t, db, Options{})
	id := `[{"secret":"admin-secret","job_id":"2001"}]`
	if got, code := call(t, h, "jobs.create", `[{"secret":"admin-secret","job":`+wire+`}]`); code != 0 {
		t.Fatal(got)
	}
	if got, _ := call(t, h, "job.stop", id); got != true {
		t.Errorf("stop %v", got)
	}
	if got, _ := call(t, h, "job.result", id); !reflect.DeepEqual(got, map[string]any{"error": "stopped"}) {
		t.Errorf("result %v", got)
	}
}

func TestOverMyceliumItIsTheSameAPI(t *testing.T) {
	db := emptyDB(t)
	s, err := New(db, Options{Admins: []string{"admin-secret"}, Runners: map[string]string{"python": "queue:python"}})
	testkit.Must(t, err)
	raw := s.HandleMessage(t.Context(), mycelium.Message{Payload: []byte(`{"jsonrpc":"2.0","id":"x","method":"list_runners","params":[{}]}`)})
	if string(raw) != `{"jsonrpc":"2.0","id":"x","result":["python"]}` {
		t.Errorf("%s", raw)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Admins: []string{""}}, {Admins: []string{"a"}, Grace: -1}, {Admins: []string{"a"}, Runners: map[string]string{"x": "msg_out"}}} {
		if _, err := New(nil, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// begun sets the time at which a runner began the job.
func begun(t *testing.T, db *redisdb.DB, id uint32, at time.Time) {
	t.Helper()
	if _, _, err := db.MoveJob(t.Context(), 1, 12, id, hero.JobStarted, nil); err != nil {
		t.Fatal(err)
	}
	since(t, db, id, at)
}

// since sets the time at which the job was queued or begun.
func since(t *testing.T, db *redisdb.DB, id uint32, at time.Time) {
	t.Helper()
	c, err := db.Client(1)
	testkit.Must(t, err)
	testkit.Must(t, c.HSet(t.Context(), hero.JobKey(12, id), "updated_at", at.Unix()).Err())
}

// The timeout counts from the start of a job, so a job may wait in the queue for longer.
func TestAJobThatBeganLateIsWaitedFor(t *testing.T) {
	db := emptyDB(t)
	s, err := New(db, Options{Admins: []string{"a"}, Timeout: time.Millisecond, Grace: time.Millisecond})
	testkit.Must(t, err)
	j := hero.Job{ID: 1, CallerID: 12, ContextID: 1, ScriptType: "python", Executor: "python"}
	if _, err := Enqueue(t.Context(), db, j, "queue:python", time.Time{}); err != nil {
		t.Fatal(err)
	}
	since(t, db, 1, time.Now().Add(-time.Hour)) // waits for longer than it may run
	waiting, enough := context.WithTimeout(t.Context(), lastLook/2)
	defer enough()
	if got, err := s.await(waiting, j); err == nil || !strings.Contains(err.Error(), "the job goes on") {
		t.Errorf("%+v, %v", got, err)
	}
	begun(t, db, 1, time.Now().Add(time.Hour))
	ctx, done := context.WithTimeout(t.Context(), lastLook/2)
	defer done()
	if got, err := s.await(ctx, j); err == nil || !strings.Contains(err.Error(), "the job goes on") {
		t.Errorf("%+v, %v", got, err)
	}
	begun(t, db, 1, time.Now().Add(-time.Hour))
	if got, err := s.await(t.Context(), j); err != nil || got.Error == nil || !strings.HasPrefix(*got.Error, "timeout") {
		t.Errorf("%+v, %v", got, err)
	}
}

// The same Redis has the coordinator's hash of a job, but the call with the job was lost. The
// caller must not wait for ever.
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

// Redis refuses no command of a supervisor whose user has exactly the documented rights.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	_, db, admin := redisdbtest.As(t, "supervisor")
	testkit.Must(t, admin.PutContext(t.Context(), hero.Context{ID: 1, Admins: []uint32{12}}))
	h := serve(t, db, Options{})
	runner(t, admin, 1, "queue:python", done)
	const id = `[{"secret":"admin-secret","job_id":"2001"}]`
	for _, c := range [][2]string{
		{"auth.create_key", `[{"admin_key":"admin-secret","name":"me","scope":"user"}]`}, {"auth.verify", `[{"key":"none"}]`},
		{"register_runner", `[{"secret":"admin-secret","name":"snakes","queue":"queue:snakes"}]`}, {"list_runners", `[]`},
		{"job.run", `[{"secret":"admin-secret","job":` + wire + `}]`}, {"job.status", id}, {"job.result", id}, {"job.logs", id}, {"job.stop", id},
		{"jobs.list", `[{"secret":"admin-secret"}]`}, {"job.delete", id},
		{"jobs.create", `[{"secret":"admin-secret","job":` + wire + `}]`}, {"job.start", id},
		{"jobs.create", `[{"secret":"admin-secret","job":` + snake("3001", "normal") + `}]`}, {"job.start", `[{"secret":"admin-secret","job_id":"3001"}]`},
		{"jobs.create", `[{"secret":"admin-secret","job":` + snake("3002", "high") + `}]`}, {"job.start", `[{"secret":"admin-secret","job_id":"3002"}]`}, {"get_runner_status", `[{"secret":"admin-secret","name":"python"}]`},
	} {
		if got, code := call(t, h, c[0], c[1]); code != 0 {
			t.Errorf("%s: %v, code %d", c[0], got, code)
		}
	}
	c, err := admin.Client(1)
	testkit.Must(t, err)
	if queued := c.LRange(t.Context(), "queue:snakes", 0, -1).Val(); len(queued) != 2 || queued[1] != "job:12:3002" {
		t.Errorf("queued: %v", queued)
	}
}

// snake is a job with a priority for the runner snakes, which does not run.
func snake(id, priority string) string {
	return `{"id":"` + id + `","caller_id":"12","context_id":"1","payload":"x","runner":"snakes","executor":"snakes","timeout":5,"env_vars":{},"priority":"` + priority +
		`","created_at":"2025-08-29T10:29:32Z","updated_at":"2025-08-29T10:29:32Z"}`
}
