package redisdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"edda/internal/realservers"
	"edda/internal/testkit"
)

// shared is a Redis for tests that do not stop it. contexts counts the databases in use.
var (
	shared   *realservers.Server
	contexts atomic.Uint32
)

func TestMain(m *testing.M) {
	s, err := realservers.Redis(realservers.RedisOptions{Databases: 500})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = s
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// real starts a Redis for one test.
func real(t testing.TB, o realservers.RedisOptions) *realservers.Server {
	t.Helper()
	s, err := realservers.Redis(o)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, s.Stop()) })
	return s
}

// open opens a DB that closes with the test.
func open(t testing.TB, o Options) *DB {
	t.Helper()
	d, err := Open(o)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, d.Close()) })
	return d
}

// fresh opens a DB of the shared Redis, with a context that no other test has and its raw
// client.
func fresh(t testing.TB) (*DB, uint32, *redis.Client) {
	t.Helper()
	d := open(t, Options{Addr: shared.Address()})
	in := contexts.Add(1)
	return d, in, raw(t, d, in)
}

func raw(t testing.TB, d *DB, in uint32) *redis.Client {
	t.Helper()
	c, err := d.Client(in)
	testkit.Must(t, err)
	return c
}

// is fails unless the error is of that kind.
func is(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want %v", err, kind)
	}
}

// hashOf reads a hash past the DB.
func hashOf(t testing.TB, c *redis.Client, key string) map[string]string {
	t.Helper()
	h, err := c.HGetAll(context.Background(), key).Result()
	testkit.Must(t, err)
	return h
}
