package router

import (
	"testing"
	"time"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/testkit"
)

// Redis refuses no command of a router whose user has exactly the documented rights.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	s, db, admin := redisdbtest.As(t, "router")
	b, supervisor := &bed{t: t, db: admin, redis: s}, newBoss(t)
	for _, id := range []uint32{1, 2} {
		b.must(b.db.PutContext(t.Context(), hero.Context{ID: id, Admins: []uint32{12}, Executors: []uint32{13}}))
	}
	b.must(b.db.PutActor(t.Context(), hero.Actor{ID: 13}))
	b.runner(hero.Runner{ID: 20, Address: supervisor.URL}, 1)
	b.runner(hero.Runner{ID: 21, Local: true}, 2)
	r, err := New(db, quick(Options{}))
	b.must(err)
	b.run(r)

	b.end(b.send(hero.Message{Job: []hero.Job{job(2001)}}), hero.MessageProcessed)                                    // by a supervisor
	b.end(b.send(hero.Message{ID: 102, MessageType: hero.MessageChat, Message: "hi", To: 13}), hero.MessageProcessed) // to an actor
	m := b.send(hero.Message{ID: 103, ContextID: 2, Job: []hero.Job{job(2002)}})                                      // to a queue
	testkit.Until(t, 20*time.Second, "the job is queued", func() bool { return b.raw(2).LLen(t.Context(), "queue:python").Val() == 1 })
	if _, _, err := b.db.MoveJob(t.Context(), 2, 12, 2002, hero.JobFinished, map[string]string{"output": "1"}); err != nil {
		t.Fatal(err)
	}
	b.end(m, hero.MessageProcessed)
	b.must(b.raw(1).LPush(t.Context(), hero.MsgOut, "message:12:999").Err()) // leads nowhere
	b.idle(1)
	b.must(b.raw(1).SAdd(t.Context(), redisdb.RunningLists, "queue:python:running:20").Err())
	b.rounds(1) // a waiting job of another program
	urgent := job(2009)
	urgent.Priority = hero.PriorityHigh
	b.send(hero.Message{ID: 109, ContextID: 2, Job: []hero.Job{job(2008)}})
	testkit.Until(t, 20*time.Second, "a job is queued", func() bool { return b.raw(2).LLen(t.Context(), "queue:python").Val() == 2 })
	b.send(hero.Message{ID: 110, ContextID: 2, Job: []hero.Job{urgent}})
	testkit.Until(t, 20*time.Second, "the next one is first", func() bool { return b.raw(2).LIndex(t.Context(), "queue:python", -1).Val() == "job:12:2009" })
}
