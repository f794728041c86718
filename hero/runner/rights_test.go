package runner

import (
	"context"
	"testing"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/realservers"
)

// A runner whose Redis user has the documented rights, and no more, is refused
// nothing.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	rule, err := realservers.RedisRights("runner", "pw")
	if err != nil {
		t.Fatal(err)
	}
	server, err := realservers.Redis(realservers.RedisOptions{Users: []string{rule}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	w := &world{t: t, server: server, db: openDB(t, server.Address())}
	w.must(w.db.PutContext(t.Context(), hero.Context{ID: tenant, Admins: []uint32{actor}}))
	w.must(w.db.PutMessage(t.Context(), tenant, hero.Message{ID: 101, CallerID: actor, ContextID: tenant}))
	w.must(w.db.PutRunner(t.Context(), tenant, hero.Runner{ID: 20, Local: true}))
	db, err := redisdb.Open(redisdb.Options{URL: "redis://edda-runner:pw@" + server.Address()})
	w.must(err)
	t.Cleanup(func() { _ = db.Close() })
	r, err := New(20, db, newScripts(t, t.TempDir()), Options{Alive: quick(Options{}).Alive, Look: quick(Options{}).Look, Concurrency: 2}) // finds its contexts
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	c, err := w.db.Client(tenant)
	w.must(err)
	t.Cleanup(func() {
		if denied := c.Do(context.Background(), "acl", "log").Val().([]any); len(denied) > 0 {
			t.Errorf("denied: %v", denied)
		}
	})

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
	cancel()
	w.must(<-done)
}
