package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// redisAddr is the Redis of this package's tests. Each test empties it first.
var redisAddr string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		s, err := realservers.Redis(realservers.RedisOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = s.Stop() }()
		redisAddr = s.Address()
		return m.Run()
	}())
}

func emptyDB(t *testing.T) *redisdb.DB {
	t.Helper()
	db := redisdbtest.Open(t, redisdb.Options{Addr: redisAddr})
	c, err := db.Client(0)
	if err == nil {
		err = c.FlushAll(t.Context()).Err()
	}
	testkit.Must(t, err)
	for _, id := range []uint32{1, 2} {
		testkit.Must(t, db.PutContext(t.Context(), hero.Context{ID: id, Admins: []uint32{12}}))
	}
	return db
}

// serve starts a supervisor with one registered runner, which does not run.
func serve(t *testing.T, db *redisdb.DB, o Options) *httptest.Server {
	t.Helper()
	if o.Admins == nil {
		o.Admins = []string{"admin-secret"}
	}
	if o.Runners == nil {
		o.Runners = map[string]string{"python": "queue:python"}
	}
	s, err := New(db, o)
	testkit.Must(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h
}

// post sends raw JSON-RPC and returns the whole answer.
func post(t *testing.T, h *httptest.Server, body, bearer string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL, strings.NewReader(body))
	testkit.Must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	answer, err := h.Client().Do(r)
	testkit.Must(t, err)
	defer answer.Body.Close()
	var out map[string]any
	testkit.Must(t, json.NewDecoder(answer.Body).Decode(&out))
	return out
}

// call is post of one method; it returns the result and the error's code.
func call(t *testing.T, h *httptest.Server, method, params string) (any, int) {
	t.Helper()
	out := post(t, h, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params), "")
	if e, ok := out["error"].(map[string]any); ok {
		return e["data"], int(e["code"].(float64))
	}
	return out["result"], 0
}

// runner takes the jobs of a queue, and calls work with each.
func runner(t *testing.T, db *redisdb.DB, context uint32, queue string, work func(hero.Job) (hero.JobStatus, map[string]string)) {
	t.Helper()
	ctx, stop := contextWithStop(t)
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			key, err := db.Take(ctx, context, queue, queue+":running", 50*time.Millisecond)
			if err != nil {
				continue
			}
			caller, id, err := hero.ParseJobKey(key)
			if err != nil {
				t.Error(err)
				return
			}
			j, err := db.Job(ctx, context, caller, id)
			if err == nil {
				_, _, err = db.MoveJob(ctx, context, caller, id, hero.JobStarted, nil)
			}
			if err == nil {
				status, result := work(j)
				if status != "" {
					_, _, err = db.MoveJob(ctx, context, caller, id, status, result)
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			_ = db.Done(ctx, context, queue+":running", key)
		}
	}()
}

func contextWithStop(t *testing.T) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	return ctx, cancel
}

const wire = `{"id":"2001","caller_id":"12","context_id":"1","payload":"print(1)","runner":"python","executor":"python","timeout":5,"env_vars":{},"created_at":"2025-08-29T10:29:32Z","updated_at":"2025-08-29T10:29:32Z"}`

// answering is a foreign supervisor that answers every call with the result.
func answering(result func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request struct{ ID json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&request)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, result())
	}
}
