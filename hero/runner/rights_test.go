package runner

import (
	"testing"

	"edda/hero"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/testkit"
)

// Redis refuses no command of a runner whose user has exactly the documented rights.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	server, db, admin := redisdbtest.As(t, "runner")
	w := &world{t: t, server: server, db: admin}
	w.must(w.db.PutContext(t.Context(), hero.Context{ID: tenant, Admins: []uint32{actor}}))
	w.must(w.db.PutMessage(t.Context(), tenant, hero.Message{ID: 101, CallerID: actor, ContextID: tenant}))
	w.must(w.db.PutRunner(t.Context(), tenant, hero.Runner{ID: 20, Local: true}))
	r, err := New(20, db, newScripts(t, t.TempDir()), Options{Alive: quick(Options{}).Alive, Look: quick(Options{}).Look, Concurrency: 2}) // finds its contexts
	w.must(err)
	testkit.Run(t, r.Run)
	c, err := w.db.Client(tenant)
	w.must(err)

	w.queue(hero.Job{ID: 2001, Script: "print(1)", FlowID: 9, Attempt: 1, MessageKey: "message:12:101"})
	w.queue(hero.Job{ID: 2002, Script: "raise SystemExit(1)", Retries: 1})
	w.must(c.LPush(t.Context(), "queue:python", "nonsense").Err())
	if j := w.ended(2001); j.Status != hero.JobFinished {
		t.Errorf("%+v", j)
	}
	if j := w.ended(2002); j.Status != hero.JobError {
		t.Errorf("%+v", j)
	}
	w.eventually("the log is in Redis", func() bool { return len(w.list(LogKey("job:12:2001"))) > 0 })
	w.eventually("nonsense is set aside", func() bool { return len(w.list("queue:python:broken")) == 1 })
	w.eventually("nothing is taken", func() bool { return len(w.list("queue:python:running:20")) == 0 })
}
