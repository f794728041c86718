package jobeffect_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
	"edda/hero"
	"edda/hero/jobeffect"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
	"edda/manifests"
)

// patience bounds events that should happen at once.
const patience = 20 * time.Second

func compile(t *testing.T, text string) (*effects.Effect, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse("e.yaml", []byte(text))
	if problems.Failed() || len(f.Effects) != 1 {
		t.Fatalf("parse: %v", problems)
	}
	return effects.Compile(f.Effects[0], map[string]effects.ProviderKind{"job": jobeffect.Kind()})
}

func TestCheck(t *testing.T) {
	const owners = "context: 7, caller: 12"
	var accepted []string
	for _, tt := range []struct{ fields, want string }{
		{owners + ", script: print(1)", ""},
		{owners + ", file: resize.py, type: lua, timeout: 90s, queue_timeout: 2h, retries: 2, env: {A: =payload.a}, supervisor: 'http://127.0.0.1:1'", ""},
		{"context: =payload.c, caller: =payload.d, script: =payload.s, type: =payload.t, timeout: =payload.x", ""},
		{"caller: 12, script: x", "job needs context: the number of the context it runs in"},
		{"context: 7, script: x", "job needs caller: the number of the actor who asks for it"},
		{owners, "job needs one of script, the text, and file, where it is"},
		{owners + ", script: x, file: y", "job needs one of script"},
		{"context: 0, caller: 12, script: x", "context is a number from 1 to 4294967295"},
		{"context: 7, caller: 4294967296, script: x", "caller is a number from 1 to"},
		{owners + ", script: ''", "script is a text, and not empty"},
		{owners + ", script: 'print(${payload.x})'", "would be run as code: give it by env"},
		{owners + ", file: '${payload.x}.py'", "would be run as code"},
		{owners + ", file: =payload.x", "file may not come from the payload"},
		{owners + ", script: x, supervisor: =payload.s", "supervisor may not come from the payload"},
		{owners + ", script: x, type: 'a b'", "is no script type"},
		{owners + ", script: x, type: 7", "type is the name of a kind of script"},
		{owners + ", script: x, timeout: 0", "timeout is a duration above zero"},
		{owners + ", script: x, timeout: soon", "timeout is a duration above zero"},
		{owners + ", script: x, queue_timeout: 0", "queue_timeout is a duration above zero"},
		{owners + ", script: x, retries: 256", "retries is a number from 0 to 255"},
		{owners + ", script: x, env: 7", "env is a map"},
		{owners + ", scirpt: x", "job knows no scirpt; did you mean script?"},
		{owners + ", script: x, zzzzzz: 1", "job knows no zzzzzz; it knows context, caller"},
	} {
		t.Run(tt.fields, func(t *testing.T) {
			text := "effect: a\njob: {" + tt.fields + "}\n"
			if tt.want == "" {
				accepted = append(accepted, text)
			}
			e, problems := compile(t, text)
			switch {
			case tt.want == "" && (e == nil || len(problems) > 0):
				t.Fatalf("%v", problems)
			case tt.want != "" && !strings.Contains(fmt.Sprint(problems), tt.want):
				t.Fatalf("%v, want %s", problems, tt.want)
			}
		})
	}
	if _, problems := compile(t, "effect: a\njob: {"+owners+", script: x}\ncheck: {job: {"+owners+", script: x}, ok: status == 0}\n"); !strings.Contains(fmt.Sprint(problems), "a job needs no check") {
		t.Fatal("a check by a job was taken")
	}
	effecttest.Schema(t, jobeffect.Kind().Spec, accepted...)
}

// shop is a Redis with a runner of its jobs.
type shop struct {
	t        *testing.T
	server   *realservers.Server
	db       *redisdb.DB
	provider *jobeffect.Provider

	mu    sync.Mutex // guards the fields below
	seen  map[string]bool
	calls map[string]int // by key
	ready chan struct{}  // closed at the second call of hangs
}

func newShop(t *testing.T) *shop {
	s, db := redisdbtest.New(t, realservers.RedisOptions{AppendOnly: true})
	testkit.Must(t, db.PutContext(t.Context(), hero.Context{ID: 7, Admins: []uint32{12}}))
	return &shop{t: t, server: s, db: db, provider: jobeffect.New(db), seen: map[string]bool{}, calls: map[string]int{}, ready: make(chan struct{})}
}

// work runs the jobs on msg_out until the test ends.
func (s *shop) work() {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	s.t.Cleanup(func() { cancel(); all.Wait() })
	all.Go(func() {
		for ctx.Err() == nil {
			key, err := s.db.Take(ctx, 7, hero.MsgOut, "taken", time.Second)
			if err != nil {
				continue
			}
			caller, id, err := hero.ParseMessageKey(key)
			testkit.Must(s.t, err)
			m, err := s.db.Message(ctx, 7, caller, id)
			testkit.Must(s.t, err)
			all.Go(func() { s.run(ctx, m) })
		}
	})
}

func (s *shop) run(ctx context.Context, m hero.Message) {
	j := m.Job[0]
	if j.Script == "hang" {
		s.mu.Lock()
		s.seen["hangs"] = true
		s.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return
		}
	}
	status, result := hero.JobFinished, map[string]string{"output": j.EnvVars["NAME"], "type": string(j.ScriptType)}
	if j.Script == "fail" {
		status, result = hero.JobError, map[string]string{"error": "exit 3"}
	}
	if _, _, err := s.db.MoveJob(ctx, 7, j.CallerID, j.ID, status, result); err != nil && ctx.Err() == nil {
		s.t.Error(err)
	}
}

// Call counts, and lets the hanging job go on at its second call.
func (s *shop) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	s.mu.Lock()
	if s.calls[c.Key]++; c.Key == "hangs" && s.calls[c.Key] == 2 {
		close(s.ready)
	}
	s.mu.Unlock()
	return s.provider.Call(ctx, c)
}

// jobs counts the jobs of one command.
func (s *shop) jobs(t *testing.T, command string) (n int) {
	c, err := s.db.Client(7)
	testkit.Must(t, err)
	jobs, err := s.db.Jobs(t.Context(), 7)
	testkit.Must(t, err)
	for _, j := range jobs {
		if c.HGet(t.Context(), j.Key(), "edda_command").Val() == command {
			n++
		}
	}
	return n
}

func config(change map[string]any) map[string]any {
	out := map[string]any{"context": 7, "caller": 12, "script": "print(1)", "env": map[string]any{"NAME": "Ann", "AGE": 7}}
	for k, v := range change {
		out[k] = v
	}
	return out
}

func TestTheSuite(t *testing.T) {
	s := newShop(t)
	s.work()
	effecttest.Run(t, effecttest.Fixture{
		Provider: s, Once: true,
		Accepted:    config(nil),
		Hangs:       config(map[string]any{"script": "hang"}),
		Unreachable: config(map[string]any{"context": 200}), // Redis has 16 databases
		Impossible:  config(map[string]any{"context": 0}),
		Seen: func(key string) int {
			if key == "hangs" {
				s.mu.Lock()
				defer s.mu.Unlock()
				if !s.seen[key] {
					return 0
				}
				return 1
			}
			return s.jobs(t, "job/acme/"+key)
		},
	})
}

func TestWhatAJobGivesBack(t *testing.T) {
	s := newShop(t)
	s.work()
	call := func(key string, change map[string]any) effects.Response {
		t.Helper()
		r, err := s.Call(t.Context(), effects.Call{Effect: "e", ID: key, Key: key, Tenant: "acme", Config: config(change)})
		testkit.Must(t, err)
		return r
	}
	r := call("one", map[string]any{"type": "Python", "timeout": "90s", "queue_timeout": "2h", "retries": 2})
	body := r.Body.(map[string]any)
	if r.Status != 0 || body["output"] != "Ann" || body["type"] != "python" || !strings.HasPrefix(r.Headers["job"], "job:12:") {
		t.Fatalf("%+v", r)
	}
	if r = call("two", map[string]any{"script": "fail"}); r.Status != 1 || r.Body.(map[string]any)["error"] != "exit 3" || r.Retry {
		t.Fatalf("%+v", r)
	}
	jobs, err := s.db.Jobs(t.Context(), 7)
	testkit.Must(t, err)
	for _, j := range jobs {
		if j.Script == "print(1)" && (j.Timeout != 90 || j.QueueTimeout != 7200 || j.Retries != 2 || j.EnvVars["AGE"] != "7") {
			t.Fatalf("%+v", j)
		}
	}
}

func TestAScriptFromAFile(t *testing.T) {
	s := newShop(t)
	s.work()
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "resize.py"), []byte("fail"), 0o600))
	call := func(file string) (effects.Response, error) {
		c := config(map[string]any{"file": file})
		delete(c, "script")
		return s.Call(t.Context(), effects.Call{ID: file, Key: file, Folder: dir, Config: c})
	}
	if r, err := call("resize.py"); err != nil || r.Status != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := call("none.py"); !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) {
		t.Fatalf("%v", err)
	}
}

func TestTheSupervisorIsInTheMessage(t *testing.T) {
	s := newShop(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, effects.Call{ID: "x", Key: "x", Config: config(map[string]any{"supervisor": "mycelium://abc"})})
		ended <- err
	}()
	key, err := s.db.Take(t.Context(), 7, hero.MsgOut, "taken", patience)
	testkit.Must(t, err)
	caller, id, err := hero.ParseMessageKey(key)
	testkit.Must(t, err)
	m, err := s.db.Message(t.Context(), 7, caller, id)
	testkit.Must(t, err)
	if len(m.Nodes) != 1 || m.Nodes[0].SupervisorURL != "mycelium://abc" || m.Nodes[0].ID != m.Job[0].ID || m.TimeoutResult != 300 {
		t.Fatalf("%+v", m)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, effects.ErrNotSent) {
		t.Fatalf("%v", err)
	}
}

func TestAJobThatIsDeletedHasNoResult(t *testing.T) {
	s := newShop(t)
	go func() {
		key, err := s.db.Take(t.Context(), 7, hero.MsgOut, "taken", patience)
		if err != nil {
			return
		}
		_, id, _ := hero.ParseMessageKey(key)
		m, _ := s.db.Message(t.Context(), 7, 12, id)
		_ = s.db.DeleteJob(t.Context(), 7, 12, m.Job[0].ID)
	}()
	r, err := s.Call(t.Context(), effects.Call{ID: "x", Key: "x", Config: config(nil)})
	if err != nil || !r.Unknown || r.Status != 1 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestRedisMayBeAwayWhileAJobRuns(t *testing.T) {
	s := newShop(t)
	ended := make(chan effects.Response, 1)
	go func() {
		r, err := s.Call(t.Context(), effects.Call{ID: "x", Key: "x", Config: config(nil)})
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	if _, err := s.db.Take(t.Context(), 7, hero.MsgOut, "taken", patience); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, s.server.Kill())
	for first := s.db.Ping(t.Context()); first == nil; first = s.db.Ping(t.Context()) {
	}
	testkit.Must(t, s.server.Restart())
	jobs, err := s.db.Jobs(t.Context(), 7)
	testkit.Must(t, err)
	if _, _, err := s.db.MoveJob(t.Context(), 7, 12, jobs[0].ID, hero.JobFinished, nil); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.Status != 0 {
		t.Fatalf("%+v", r)
	}
}

func TestWithoutRedisNothingIsSent(t *testing.T) {
	_, err := jobeffect.New(nil).Call(t.Context(), effects.Call{Config: config(nil)})
	if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) || !strings.Contains(err.Error(), "set redis.url") {
		t.Fatalf("%v", err)
	}
}
