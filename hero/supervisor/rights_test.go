package supervisor

import (
	"testing"

	"edda/hero"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/testkit"
)

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

// snake is a job that a runner without a process has, with a priority.
func snake(id, priority string) string {
	return `{"id":"` + id + `","caller_id":"12","context_id":"1","payload":"x","runner":"snakes","executor":"snakes","timeout":5,"env_vars":{},"priority":"` + priority +
		`","created_at":"2025-08-29T10:29:32Z","updated_at":"2025-08-29T10:29:32Z"}`
}
