package router

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/hero/supervisor"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childRedis); address != "" {
		os.Exit(child(address, os.Getenv(childStep)))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // the tests mostly wait
		panic(err)
	}
	os.Exit(m.Run())
}

// bed is a Redis for one test, with two contexts. In both, actor 12 is an admin, actor 13 an
// executor and actor 14 a reader; actor 15 has no right.
type bed struct {
	t     *testing.T
	db    *redisdb.DB
	redis *realservers.Server
}

func newBed(t *testing.T) *bed {
	t.Helper()
	t.Parallel()
	return another(t, realservers.RedisOptions{})
}

// another makes a bed without t.Parallel, for a test with several.
func another(t *testing.T, o realservers.RedisOptions) *bed {
	t.Helper()
	s, db := redisdbtest.New(t, o)
	b := &bed{t: t, db: db, redis: s}
	for _, id := range []uint32{1, 2} {
		b.must(b.db.PutContext(t.Context(), hero.Context{ID: id, Admins: []uint32{12}, Executors: []uint32{13}, Readers: []uint32{14}}))
	}
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	testkit.Must(b.t, err)
}

func (b *bed) raw(context uint32) *redis.Client {
	b.t.Helper()
	c, err := b.db.Client(context)
	b.must(err)
	return c
}

// start runs a router until the test ends or stop is called.
func (b *bed) start(o Options) (r *Router, stop func()) {
	b.t.Helper()
	r, err := New(b.db, quick(o))
	b.must(err)
	return r, b.run(r)
}

func quick(o Options) Options {
	o.Look, o.Watch = 50*time.Millisecond, cmp.Or(o.Watch, 20*time.Millisecond)
	return o
}

func (b *bed) run(r interface{ Run(context.Context) error }) (stop func()) {
	return testkit.Run(b.t, r.Run)
}

// send writes a message as an actor does: the hash, and its key on msg_out.
func (b *bed) send(m hero.Message) hero.Message {
	b.t.Helper()
	if m.ID == 0 {
		m.ID = 101
	}
	if m.CallerID == 0 {
		m.CallerID = 12
	}
	if m.ContextID == 0 {
		m.ContextID = 1
	}
	if m.MessageType == "" {
		m.MessageType = hero.MessageJob
	}
	b.must(b.db.PutMessage(b.t.Context(), m.ContextID, m))
	b.must(b.raw(m.ContextID).LPush(b.t.Context(), hero.MsgOut, m.Key()).Err())
	return m
}

func job(id uint32) hero.Job {
	return hero.Job{ID: id, Script: fmt.Sprintf("print(%d)", id), ScriptType: hero.ScriptPython, Timeout: 5}
}

func (b *bed) message(m hero.Message) hero.Message {
	b.t.Helper()
	got, err := b.db.Message(b.t.Context(), m.ContextID, m.CallerID, m.ID)
	b.must(err)
	return got
}

// ended waits for the message's end.
func (b *bed) ended(m hero.Message) hero.Message {
	b.t.Helper()
	testkit.Until(b.t, 20*time.Second, m.Key()+" ends", func() bool { return b.message(m).Status.Ended() })
	return b.message(m)
}

// end waits until the message has ended and the context is idle, and checks its status.
func (b *bed) end(m hero.Message, want hero.MessageStatus) hero.Message {
	b.t.Helper()
	got := b.ended(m)
	if got.Status != want {
		b.t.Fatalf("%s is %s, want %s; logs %v", m.Key(), got.Status, want, got.Logs)
	}
	b.idle(m.ContextID)
	return got
}

// idle waits until no message of the context is in delivery.
func (b *bed) idle(context uint32) {
	b.t.Helper()
	testkit.Until(b.t, 20*time.Second, "nothing is on its way", func() bool {
		n := int64(0)
		for _, list := range []string{hero.MsgOut, hero.MsgOutCoordinator, msgInCoordinator} {
			l, err := b.raw(context).LLen(b.t.Context(), list).Result()
			b.must(err)
			n += l
		}
		return n == 0
	})
}

// inbox pops the context's msg_in, as an actor does.
func (b *bed) inbox(context uint32) []hero.Message {
	b.t.Helper()
	var out []hero.Message
	for {
		key, err := b.raw(context).RPop(b.t.Context(), hero.MsgIn).Result()
		if errors.Is(err, redis.Nil) {
			return out
		}
		b.must(err)
		caller, id, err := hero.ParseMessageKey(key)
		b.must(err)
		m, err := b.db.Message(b.t.Context(), context, caller, id)
		b.must(err)
		out = append(out, m)
	}
}

// pop waits for one message in msg_in.
func (b *bed) pop(context uint32) hero.Message {
	b.t.Helper()
	var got []hero.Message
	testkit.Until(b.t, 20*time.Second, "a message in msg_in", func() bool {
		got = append(got, b.inbox(context)...)
		return len(got) > 0
	})
	if len(got) != 1 {
		b.t.Fatalf("%d messages in msg_in: %v", len(got), got)
	}
	return got[0]
}

func (b *bed) job(context, caller, id uint32) hero.Job {
	b.t.Helper()
	j, err := b.db.Job(b.t.Context(), context, caller, id)
	b.must(err)
	return j
}

// reports records the reports of a coordinator's flows, once for each id.
type reports struct {
	mu   sync.Mutex // guards the fields below
	got  []hero.Report
	fail func(hero.Report) error
}

func (f *reports) Report(_ context.Context, r hero.Report) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail(r); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(f.got, func(o hero.Report) bool { return o.ID == r.ID }) {
		f.got = append(f.got, r)
	}
	return nil
}

// ends lists the reports of ended jobs.
func (f *reports) ends() []hero.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.got), func(r hero.Report) bool { return !r.Status.Ended() })
}

// boss is a fake supervisor; the test's function work runs its jobs.
type boss struct {
	*httptest.Server
	secret string
	mu     sync.Mutex // guards the fields below
	runs   map[string]int
	hang   chan struct{}  // closed at the test's end
	ends   map[string]any // answers of jobs that ended
	asked  int            // job.status calls
	work   func(w http.ResponseWriter, j supervisor.Job) any
	before func(w http.ResponseWriter, method string) (handled bool)
}

// newBoss makes a supervisor that finishes every job with its payload, unless the test
// replaces work. After a nil from work it writes no answer, because work wrote one.
func newBoss(t *testing.T) *boss {
	t.Helper()
	b := &boss{runs: map[string]int{}, ends: map[string]any{}, hang: make(chan struct{})}
	b.work = func(_ http.ResponseWriter, j supervisor.Job) any {
		return map[string]string{"success": "ran " + j.Payload}
	}
	b.Server = httptest.NewServer(b)
	t.Cleanup(func() { close(b.hang); b.Close() })
	return b
}

func (s *boss) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage
		Method string
		Params []struct {
			Secret string
			Job    supervisor.Job
			JobID  string `json:"job_id"`
		}
	}
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, &call)
	}
	if err != nil || len(call.Params) != 1 {
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	if s.before != nil && s.before(w, call.Method) {
		return
	}
	if call.Params[0].Secret != s.secret {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32003,"message":"wrong secret"}}`, call.ID)
		return
	}
	answer := s.answer(w, call.Method, call.Params[0].JobID, call.Params[0].Job)
	if answer == nil {
		return
	}
	if code, ok := answer.(int); ok {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, call.ID, code)
		return
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, text)
}

func (s *boss) answer(w http.ResponseWriter, method, id string, j supervisor.Job) any {
	if method == "job.run" {
		s.mu.Lock()
		s.runs[string(j.ID)]++
		work := s.work
		s.mu.Unlock()
		answer := work(w, j)
		s.mu.Lock()
		defer s.mu.Unlock()
		if answer != nil {
			s.ends[string(j.ID)] = answer
		}
		return answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.ends[id]
	switch {
	case s.runs[id] == 0:
		return -32001
	case method == "job.status" && end == nil:
		s.asked++
		return map[string]string{"job_id": id, "status": "started"}
	case method == "job.status":
		s.asked++
		return map[string]string{"job_id": id, "status": "Finished"}
	case method == "job.result":
		return end
	case method == "job.stop":
		return true
	}
	return -32601
}

func (s *boss) ran(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

func (b *bed) runner(r hero.Runner, context uint32) {
	b.t.Helper()
	b.must(b.db.PutRunner(b.t.Context(), context, r))
}

func said(m hero.Message) string {
	var out []string
	for _, l := range m.Logs {
		out = append(out, l.Text)
	}
	return strings.Join(out, "\n")
}
