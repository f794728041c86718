package list

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero/redisdb/redisdbtest"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

const in, from, into = 1, "queue:python", "queue:python:running:1"

// bed is a consumer with its own Redis. The test ends the work on each key.
type bed struct {
	*Consumer
	*testing.T
	redis *redis.Client
	begun chan string
	end   chan struct{} // ends the work on one key; when closed, on all
	open  atomic.Int32  // keys in work
}

func newBed(t *testing.T, slots int) *bed {
	_, db := redisdbtest.New(t, realservers.RedisOptions{})
	client, err := db.Client(in)
	testkit.Must(t, err)
	begun, end := make(chan string, 100), make(chan struct{})
	b := &bed{T: t, redis: client, begun: begun, end: end}
	b.Consumer = &Consumer{
		DB: db, Context: in, From: from, Into: into, Wait: time.Second, Workers: NewWorkers(slots), Log: zap.NewNop(),
		Work:  func(key string) { b.open.Add(1); begun <- key; <-end; b.open.Add(-1) },
		Retry: &Retrier{Pause: backoff.Exponential{First: time.Millisecond, Most: time.Second}, Log: logthrottle.New(zap.NewNop(), "test")},
	}
	return b
}

// run runs the consumer. stop stops it, ends all work and waits for both.
func (b *bed) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Consumer.Run(ctx, context.WithoutCancel(ctx))
	}()
	return func() {
		cancel()
		select {
		case <-ended:
			if n := b.open.Load(); n != 0 {
				b.Errorf("the consumer ended before the work on %d keys", n)
			}
		case <-time.After(700 * time.Millisecond): // longer than a take; it waits for its work
		}
		close(b.end)
		<-ended
	}
}

func (b *bed) push(list string, keys ...string) {
	b.Helper()
	for _, key := range keys {
		testkit.Must(b.T, b.redis.LPush(b.Context(), list, key).Err())
	}
}

func (b *bed) Context() context.Context { return b.T.Context() }

// eventually waits until the list holds the keys, the newest first.
func (b *bed) eventually(list string, want ...string) {
	b.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got := b.redis.LRange(b.Context(), list, 0, -1).Val(); slices.Equal(got, want) {
			return
		} else if time.Now().After(until) {
			b.Fatalf("%s holds %q, want %q", list, got, want)
		}
	}
}

func (b *bed) next(want string) {
	b.Helper()
	select {
	case got := <-b.begun:
		if got != want {
			b.Fatalf("%q is begun, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		b.Fatalf("%q is not begun", want)
	}
}

func TestLeftoversBeginBeforeNewKeys(t *testing.T) {
	b := newBed(t, 1)
	b.push(into, "left 1", "left 2")
	b.push(from, "new 1", "new 2")
	defer b.run()()
	for _, key := range []string{"left 1", "left 2", "new 1"} {
		b.next(key)
		if len(b.begun) > 0 {
			t.Fatal("one worker has two keys")
		}
		b.end <- struct{}{}
	}
	b.next("new 2")
	b.eventually(into, "new 2", "new 1", "left 2", "left 1")
}

// Another consumer gets the slot that was free when the take began.
func TestAKeyThatFindsNoSlotReturnsToTheFront(t *testing.T) {
	b := newBed(t, 1)
	defer b.run()()
	waits := func() bool { return b.redis.InfoMap(b.Context(), "clients").Item("Clients", "blocked_clients") == "1" }
	testkit.Until(t, 10*time.Second, "a take waits for a key", waits)
	b.Workers.TryAcquire()
	b.redis.Pipelined(b.Context(), func(p redis.Pipeliner) error { // at once: the older is moved
		p.LPush(b.Context(), from, "older", "newer")
		return nil
	})
	b.eventually(from, "newer", "older")
	b.eventually(into)
	b.Workers.Release()
	b.next("older")
}

// A loop that returns is started again. The loop of a dropped context ends.
func TestLoopsFollowTheirContexts(t *testing.T) {
	b := newBed(t, 1)
	runs, gone, quit := make(chan uint32, 10), make(chan uint32), make(chan bool)
	var mu sync.Mutex // guards served
	served := []uint32{1, 2}
	ctx, cancel := context.WithCancel(t.Context())
	s := Contexts{
		DB: b.DB, Every: 10 * time.Millisecond, Pause: b.Retry.Pause, Log: zap.NewNop(),
		Served: func(context.Context) ([]uint32, error) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(served), nil
		},
		Run: func(ctx context.Context, l *Loop) {
			runs <- l.Context
			select {
			case <-ctx.Done():
				gone <- l.Context
			case <-quit:
			}
		},
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx) })
	if got := <-runs + <-runs; got != 3 {
		t.Fatalf("the sum of the contexts is %d", got)
	}
	quit <- true // one of them
	again := <-runs
	mu.Lock()
	served = []uint32{again}
	mu.Unlock()
	if got := <-gone; got == again {
		t.Errorf("the loop of %d, which is served, ended", got)
	}
	cancel()
	<-gone
	serving.Wait()
}
