// Package redisdbtest starts the Redis of a test, and opens it as a redisdb.DB. The server
// and the DB end with the test. Only tests import the package.
package redisdbtest

import (
	"context"
	"testing"

	"edda/hero/redisdb"
	"edda/internal/realservers"
)

// Start starts a Redis.
func Start(t testing.TB, o realservers.RedisOptions) *realservers.Server {
	t.Helper()
	s, err := realservers.Redis(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Open opens a DB.
func Open(t testing.TB, o redisdb.Options) *redisdb.DB {
	t.Helper()
	db, err := redisdb.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// New starts a Redis and opens it.
func New(t testing.TB, o realservers.RedisOptions) (*realservers.Server, *redisdb.DB) {
	t.Helper()
	s := Start(t, o)
	return s, Open(t, redisdb.Options{Addr: s.Address()})
}

// As starts a Redis and opens it twice: as a role with exactly the rights of docs/HERO.md,
// and as an administrator. The test fails if Redis has denied the role a command.
func As(t testing.TB, role string) (s *realservers.Server, db, admin *redisdb.DB) {
	t.Helper()
	rule, err := realservers.RedisRights(role, "pw")
	if err != nil {
		t.Fatal(err)
	}
	s, admin = New(t, realservers.RedisOptions{Users: []string{rule}})
	t.Cleanup(func() {
		c, err := admin.Client(0)
		if err != nil {
			t.Fatal(err)
		}
		if denied, err := c.Do(context.Background(), "acl", "log").Slice(); err != nil || len(denied) > 0 {
			t.Errorf("denied: %v, %v", denied, err)
		}
	})
	return s, Open(t, redisdb.Options{URL: "redis://edda-" + role + ":pw@" + s.Address()}), admin
}
