package redisdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/internal/backoff"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// said is an error that Redis answered.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

func TestErrorsOfRedisAreClassed(t *testing.T) {
	d := open(t, Options{Addr: "redis.example:6379"})
	tests := []struct {
		err   error
		class error
		says  string
	}{
		{said("ERR DB index is out of range"), edda.Temporary, "databases N"},
		{said("NOAUTH Authentication required."), edda.Temporary, "password in the Redis URL"},
		{said("WRONGPASS invalid username-password pair or user is disabled."), edda.Temporary, "right user and password"},
		{fmt.Errorf("failed to authenticate: %w", said("WRONGPASS invalid")), edda.Temporary, "right user and password"},
		{said("NOPERM this user has no permissions to run the 'get' command"), edda.Temporary, "docs/HERO.md"},
		{said("LOADING Redis is loading the dataset in memory"), edda.Temporary, "reads its data"},
		{said("READONLY You can't write against a read only replica."), edda.Temporary, "primary"},
		{said("OOM command not allowed when used memory > 'maxmemory'."), edda.Temporary, "maxmemory"},
		{said("MISCONF Redis is configured to save RDB snapshots"), edda.Temporary, "disk"},
		{said("MASTERDOWN Link with MASTER is down"), edda.Temporary, "primary"},
		{said("NOREPLICAS Not enough good replicas to write."), edda.Temporary, "replicas"},
		{said("BUSY Redis is busy running a script."), edda.Temporary, "script"},
		{said("ERR max number of clients reached"), edda.Temporary, "maxclients"},
		{said("ERR unknown command 'BLMOVE'"), edda.Temporary, "Redis 6.2"},
		{said("ERR something new"), edda.Temporary, "documentation"},
		{said("WRONGTYPE Operation against a key holding the wrong kind of value"), edda.Permanent, "another program"},
		{said("ERR WRONGTYPE Operation against a key script: f1, on @user_script:3."), edda.Permanent, "another program"},
		{io.EOF, edda.Temporary, "redis.example:6379"},
		{context.DeadlineExceeded, edda.Temporary, "slow"},
		{context.Canceled, edda.Temporary, "did not wait"},
		{errors.New("tls: failed to verify certificate: x509: unknown authority"), edda.Temporary, "CA"},
	}
	for _, tt := range tests {
		err := d.refused("write flow:5", 7, tt.err)
		var storage *StorageError
		if !errors.As(err, &storage) || !errors.Is(err, tt.class) || !errors.Is(err, tt.err) || !strings.Contains(storage.Advice, tt.says) {
			t.Errorf("%v: %v", tt.err, err)
			continue
		}
		for _, part := range []string{"write flow:5", "context 7", tt.err.Error(), tt.says} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
		if again := d.refused("other", 8, err); again != err {
			t.Errorf("wrapped twice: %v", again)
		}
	}
	if err := d.refused("x", 0, nil); err != nil {
		t.Error(err)
	}
}

// everything makes each kind of call, and returns the errors by call.
func everything(ctx context.Context, d *DB, in uint32) map[string]error {
	_, _, send := d.Send(ctx, in, "trouble", chat("x"))
	_, _, create := d.Create(ctx, in, "trouble job", hero.Job{ID: 77, CallerID: 12, ContextID: in}, queue)
	_, take := d.Take(ctx, in, queue, into, 0)
	_, _, move := d.MoveJob(ctx, in, 12, 5, hero.JobStarted, nil)
	return map[string]error{
		"ping": d.Ping(ctx), "put": d.PutRunner(ctx, in, hero.Runner{ID: 5}), "send": send, "create": create, "take": take, "move": move,
		"push": d.Push(ctx, in, queue, "job:12:5"), "log": d.AppendLog(ctx, in, "message:12:5", hero.Log{Text: "x"}),
	}
}

// troubled starts a Redis with a few objects, and opens it.
func troubled(t *testing.T, o realservers.RedisOptions) (*realservers.Server, *DB) {
	s := real(t, o)
	d := open(t, Options{Addr: s.Address()})
	ctx := t.Context()
	testkit.Must(t, d.PutJob(ctx, hero.Job{ID: 5, CallerID: 12, ContextID: 3}))
	testkit.Must(t, d.PutMessage(ctx, 3, hero.Message{ID: 5, CallerID: 12}))
	testkit.Must(t, d.Push(ctx, 3, queue, "job:12:5"))
	return s, d
}

func TestAReadOnlyRedis(t *testing.T) {
	t.Parallel()
	_, d := troubled(t, realservers.RedisOptions{})
	ctx, admin := t.Context(), raw(t, d, 0)
	testkit.Must(t, admin.Do(ctx, "replicaof", "127.0.0.1", "1").Err())
	for name, err := range everything(ctx, d, 3) {
		if !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), "address of the primary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Job(ctx, 3, 12, 5); err != nil {
		t.Error("cannot read:", err)
	}
	testkit.Must(t, admin.Do(ctx, "replicaof", "no", "one").Err())
	for name, err := range everything(ctx, d, 3) {
		if err != nil {
			t.Errorf("%s, writable again: %v", name, err)
		}
	}
}

func TestARedisWithoutMemory(t *testing.T) {
	t.Parallel()
	_, d := troubled(t, realservers.RedisOptions{})
	ctx, admin := t.Context(), raw(t, d, 0)
	testkit.Must(t, admin.ConfigSet(ctx, "maxmemory", "1").Err())
	keys := raw(t, d, 3).DBSize(ctx).Val()
	for name, err := range everything(ctx, d, 3) {
		if name == "take" && errors.Is(err, nil) {
			continue // moving a key to an existing list takes no memory
		}
		if !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), "maxmemory") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now := raw(t, d, 3).DBSize(ctx).Val(); now > keys {
		t.Errorf("%d keys became %d", keys, now)
	}
	if j, err := d.Job(ctx, 3, 12, 5); err != nil || j.Status != hero.JobDispatched {
		t.Error(j, err)
	}
	testkit.Must(t, admin.ConfigSet(ctx, "maxmemory", "0").Err())
	testkit.Must(t, d.Ping(ctx))
	if _, fresh, err := d.Send(ctx, 3, "trouble", chat("x")); err != nil || !fresh {
		t.Error("the refused message was half sent:", fresh, err)
	}
}

func TestARedisThatIsDownAndComesBack(t *testing.T) {
	t.Parallel()
	s, d := troubled(t, realservers.RedisOptions{AppendOnly: true})
	ctx := t.Context()
	testkit.Must(t, s.Kill())
	begun := time.Now()
	for name, err := range everything(ctx, d, 3) {
		if !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), s.Address()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("said so after %v", took)
	}
	testkit.Must(t, s.Restart())
	for name, err := range everything(ctx, d, 3) {
		if err != nil {
			t.Errorf("%s, back again: %v", name, err)
		}
	}
}

// A call survives a restart that is shorter than its retries.
func TestACallOutlastsAShortRestart(t *testing.T) {
	t.Parallel()
	s, d := troubled(t, realservers.RedisOptions{AppendOnly: true})
	for n := range 10 {
		testkit.Must(t, s.Kill())
		back := make(chan error, 1)
		go func() { back <- s.Restart() }()
		_, fresh, err := d.Send(t.Context(), 3, fmt.Sprint("trouble", n), chat("x"))
		away := len(back) == 0
		testkit.Must(t, <-back)
		if err == nil && fresh {
			return
		}
		if err == nil || !away {
			t.Fatal(fresh, err)
		}
		t.Log("the restart was not short:", err)
	}
	t.Error("no restart was short")
}

func TestARedisThatHangs(t *testing.T) {
	t.Parallel()
	s, d := troubled(t, realservers.RedisOptions{})
	testkit.Must(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := d.Ping(ctx)
	if testkit.Must(t, s.Resume()); !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), "slow or hangs") {
		t.Error(err)
	}
	testkit.Must(t, d.Ping(t.Context()))
}

func TestPingSpeaksOfAMessageThatHasNoDatabase(t *testing.T) {
	t.Parallel()
	d := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()})
	now := time.Now()
	d.now = func() time.Time { return now }
	ctx := t.Context()
	if _, err := d.Flow(ctx, 20, 1); err == nil {
		t.Fatal("read of context 20")
	}
	testkit.Must(t, d.Ping(ctx)) // reads no key that the user may not read
	_, _, err := d.Send(ctx, 20, "command", chat("x"))
	is(t, err, edda.Temporary)
	if err := d.Ping(ctx); err == nil || !strings.Contains(err.Error(), "databases N") {
		t.Error(err)
	}
	now = now.Add(shortFor + time.Second)
	testkit.Must(t, d.Ping(ctx))
}

func TestPingOfAForeignServer(t *testing.T) {
	t.Parallel()
	s := real(t, realservers.RedisOptions{Password: "right"})
	for url, says := range map[string]string{
		"redis://:wrong@" + s.Address(): "right user and password",
		"redis://" + s.Address():        "user and the password",
		"rediss://" + s.Address():       s.Address(),
		"redis://127.0.0.1:1":           "127.0.0.1:1",
	} {
		d := open(t, Options{URL: url})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := d.Ping(ctx); !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "wrong@") {
			t.Errorf("%s: %v", url, err)
		}
	}
	testkit.Must(t, open(t, Options{URL: "redis://:right@" + s.Address()}).Ping(t.Context()))
	testkit.Must(t, open(t, Options{URL: "redis://default:right@" + s.Address()}).Ping(t.Context()))
}

// Redis is killed again and again while messages are sent and taken: every
// message is sent once, and none is lost.
func TestNothingIsLostWhileRedisIsKilled(t *testing.T) {
	t.Parallel()
	const senders, each, kills = 4, 60, 4
	s := real(t, realservers.RedisOptions{AppendOnly: true})
	d := open(t, Options{Addr: s.Address()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var sending, taking sync.WaitGroup
	killing, sent := make(chan struct{}), make(chan struct{})
	for n := range senders {
		sending.Go(func() {
			for i := range each {
				persist(ctx, t, func() error {
					_, _, err := d.Send(ctx, 1, fmt.Sprintf("%d/%d", n, i), hero.Message{CallerID: uint32(n + 1), Message: fmt.Sprint(i)})
					return err
				})
			}
		})
	}
	var mu sync.Mutex
	got := map[string]int{}
	for range 3 {
		taking.Go(func() {
			for ctx.Err() == nil {
				key, err := d.Take(ctx, 1, hero.MsgOut, hero.MsgOutCoordinator, 50*time.Millisecond)
				if errors.Is(err, ErrEmpty) {
					select {
					case <-sent:
						return
					default:
						continue
					}
				}
				if err != nil {
					_ = backoff.Wait(ctx, 20*time.Millisecond)
					continue
				}
				mu.Lock()
				got[key]++
				mu.Unlock()
				persist(ctx, t, func() error { return d.Done(ctx, 1, hero.MsgOutCoordinator, key) })
			}
		})
	}
	go func() {
		defer close(killing)
		for range kills {
			_ = backoff.Wait(ctx, 100*time.Millisecond)
			if err := errors.Join(s.Kill(), s.Restart()); err != nil {
				t.Error(err)
			}
		}
	}()
	sending.Wait()
	<-killing
	close(sent)
	taking.Wait()
	if left, err := d.Left(ctx, 1, hero.MsgOutCoordinator); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	all, err := d.Messages(ctx, 1)
	testkit.Must(t, err)
	if len(all) != senders*each || len(got) != senders*each {
		t.Errorf("%d messages, %d came", len(all), len(got))
	}
	for key, n := range got {
		if n != 1 {
			t.Errorf("%s came %d times", key, n)
		}
	}
}

// persist retries a call after a Temporary error, as loops do.
func persist(ctx context.Context, t *testing.T, do func() error) {
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			return
		}
		if !errors.Is(err, edda.Temporary) {
			t.Error(err)
			return
		}
		_ = backoff.Wait(ctx, 20*time.Millisecond)
	}
}

// Another program's value under the key of a dependency crashed the process.
func TestAWaitingJobWhoseDependencyIsNoHashGoesOnWaiting(t *testing.T) {
	d, in, c := fresh(t)
	j := hero.Job{ID: 2, CallerID: 1, ContextID: in, Script: "x", ScriptType: hero.ScriptPython, Status: hero.JobDispatched, Dependends: []uint32{1}}
	testkit.Must(t, d.PutJob(t.Context(), j))
	testkit.Must(t, c.Set(t.Context(), hero.JobKey(1, 1), "another program's", 0).Err())
	testkit.Must(t, d.Hold(t.Context(), in, j, j.Key(), j.ScriptType.Queue(), ""))
	next, waiting, err := d.Release(t.Context(), in, 0)
	testkit.Must(t, err)
	if g, why, err := d.Gate(t.Context(), in, j); err != nil || g != GateClosed || why != "job 1 is not there" || next != 0 || !waiting {
		t.Errorf("gate %d, %q, %v; next %d, waiting %t", g, why, err, next, waiting)
	}
	testkit.Must(t, c.Del(t.Context(), hero.JobKey(1, 1)).Err())
	testkit.Must(t, d.PutJob(t.Context(), hero.Job{ID: 1, CallerID: 1, ContextID: in, Script: "x", ScriptType: hero.ScriptPython, Status: hero.JobFinished}))
	_, _, err = d.Release(t.Context(), in, 0)
	testkit.Must(t, err)
	if keys, err := c.LRange(t.Context(), j.ScriptType.Queue(), 0, -1).Result(); err != nil || len(keys) != 1 || keys[0] != j.Key() {
		t.Errorf("queue %v, %v", keys, err)
	}
}
