package dispatcher

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// The Redis rights in docs/HERO.md are enough for a client and a worker, and grant no other
// key.
func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/HERO.md")
	testkit.Must(t, err)
	var users []string
	for _, line := range regexp.MustCompile(`(?m)^user (edda-dispatcher-.*)$`).FindAllStringSubmatch(string(page), -1) {
		users = append(users, line[1])
	}
	if len(users) != 2 {
		t.Fatalf("docs/HERO.md has the users %q", users)
	}
	b := benchOn(t, redisdbtest.Start(t, realservers.RedisOptions{Users: users}), Options{})
	as := func(role string) *redis.Client {
		o := options(b.server.Address())
		o.Username, o.Password = "edda-dispatcher-"+role, "PASSWORD"
		db := redis.NewClient(o)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	b.db = as("client")
	if b.client, err = New(b.db, Options{}); err != nil {
		t.Fatal(err)
	}
	keeper := *b
	keeper.keep()
	worker := *b
	worker.db = as("worker")
	f := &failing{}
	stop := worker.work("w", f.Execute, WorkerOptions{Concurrency: 2, Keep: time.Hour})
	b.dispatch(Job{WorkerID: "others", Script: "x"})
	b.dispatch(Job{WorkerID: "others", Script: "x", Priority: hero.PriorityHigh})
	b.dispatch(Job{ID: "a", Concurrent: true, Retries: 1})
	b.create("b", "fail", Job{Dependencies: []string{"a"}, Retries: 1})
	if _, err := b.client.Submit(b.ctx, "b"); err != nil {
		t.Error(err)
	}
	if got := b.ended("b"); got != "error exit 3" {
		t.Error(got)
	}
	if _, err := b.client.Requeue(b.ctx, "b"); err != nil {
		t.Error(err)
	}
	b.ended("b")
	for _, err := range b.client.List(b.ctx, Filter{}) {
		if err != nil {
			t.Error(err)
		}
	}
	for _, role := range []*bench{b, &worker} {
		c, err := New(role.db, Options{})
		testkit.Must(t, err)
		if _, err := c.Sweep(b.ctx); err != nil {
			t.Error(err)
		}
	}
	b.create("c", "x", Job{})
	if _, err := b.client.Stop(b.ctx, "c"); err != nil {
		t.Error(err)
	}
	if _, err := b.client.WorkerAlive(b.ctx, "w"); err != nil {
		t.Error(err)
	}
	stop()
	err = trouble("look elsewhere", b.db.Get(b.ctx, "job:1:2").Err())
	if !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), "see Redis permissions in docs/HERO.md") {
		t.Errorf("a key of others: %v", err)
	}
}
