package coordinator

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/hero/jsonrpc"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// Redis is killed, restarted, made read-only and filled. Each call returns the reason, and the
// coordinator recovers without a restart.
func TestARedisThatIsAwayIsSaidAndComesBack(t *testing.T) {
	redis := redisdbtest.Start(t, realservers.RedisOptions{AppendOnly: true})
	w := worldOn(t, redis, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	w.healthy()

	testkit.Must(t, redis.Kill())
	w.trouble("check that Redis runs", everyKind())
	testkit.Must(t, redis.Restart())
	w.recovers()

	raw, err := w.db.Client(0)
	testkit.Must(t, err)
	testkit.Must(t, raw.Do(t.Context(), "REPLICAOF", "127.0.0.1", closedPort(t)).Err())
	w.trouble("replica", writes())
	w.call("job.load", dict2{"context_id": 7, "caller_id": 1, "id": 10}, nil) // reading goes on
	testkit.Must(t, raw.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	w.recovers()

	raw.ConfigSet(t.Context(), "maxmemory", "1")
	w.trouble("maxmemory", writes()[:1]) // Redis accepts a write that frees memory first
	raw.ConfigSet(t.Context(), "maxmemory", "0")
	w.recovers()
}

type storageCall struct {
	method string
	params dict2
}

// writes lists calls that write to Redis.
func writes() []storageCall {
	return []storageCall{
		{"actor.create", dict2{"actor": dict2{"id": 6, "pubkey": "aa"}}},
		{"context.create", dict2{"context": dict2{"id": 7, "admins": []int{1}}}},
		{"runner.create", dict2{"context_id": 7, "runner": dict2{"id": 6, "local": true}}},
		{"job.create", dict2{"context_id": 7, "job": dict2{"id": 6, "caller_id": 1, "script": "x", "script_type": "v"}}},
		{"job.update", dict2{"context_id": 7, "caller_id": 1, "id": 10, "status": "started"}},
		{"flow.create", dict2{"context_id": 7, "flow": dict2{"id": 6, "caller_id": 1}}},
		{"message.create", dict2{"context_id": 7, "message": dict2{"id": 6, "caller_id": 1, "message_type": "chat"}}},
	}
}

// everyKind lists calls that need Redis.
func everyKind() []storageCall {
	return append(writes(), storageCall{"flow.start", dict2{"context_id": 7, "id": 1}}, storageCall{"job.list", dict2{"context_id": 7}}, storageCall{"context.list", dict2{}})
}

// trouble makes calls that must all fail with the reason.
func (w *world) trouble(says string, calls []storageCall) {
	w.t.Helper()
	var made sync.WaitGroup
	for _, c := range calls {
		made.Go(func() {
			var e *jsonrpc.Error
			if err := w.http1.Call(context.Background(), c.method, c.params, nil); !errors.As(err, &e) || e.Code != jsonrpc.StorageError {
				w.t.Errorf("%s: %v, want %d", c.method, err, jsonrpc.StorageError)
			} else if d := detailOf(w.t, e); !strings.Contains(d.Why+d.Do, says) || d.Do == "" {
				w.t.Errorf("%s: %+v, want %q", c.method, d, says)
			}
		})
	}
	made.Wait()
	if err := w.Check(w.t.Context()); err == nil || !strings.Contains(err.Error(), "redis: ") || !strings.Contains(err.Error(), says) {
		w.t.Errorf("health says %v, want %q", err, says)
	}
}

func (w *world) healthy() {
	w.t.Helper()
	if err := w.Check(w.t.Context()); err != nil {
		w.t.Errorf("health: %v", err)
	}
}

// recovers waits until calls succeed again, and checks that no object was lost or half
// written.
func (w *world) recovers() {
	w.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for w.Check(w.t.Context()) != nil {
		if time.Now().After(deadline) {
			w.t.Fatalf("it does not recover: %v", w.Check(w.t.Context()))
		}
	}
	w.call("flow.load", dict2{"context_id": 7, "id": 1}, nil)
	w.call("runner.create", dict2{"context_id": 7, "runner": dict2{"id": 20, "local": true}}, nil)
	w.refused(jsonrpc.NotFound, "message.load", dict2{"context_id": 7, "caller_id": 1, "id": 6})
	w.refused(jsonrpc.NotFound, "runner.load", dict2{"context_id": 7, "id": 6})
}

// closedPort returns a port without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	testkit.Must(t, l.Close())
	return port
}

func TestHealthAsksMyceliumToo(t *testing.T) {
	away := errors.New("connection refused: start mycelium")
	w := newWorld(t, Options{Mycelium: func(ctx context.Context) error { return away }})
	if err := w.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "mycelium: connection refused") || strings.Contains(err.Error(), "redis") {
		t.Errorf("health says %v", err)
	}
	away = nil
	w.healthy()
}
