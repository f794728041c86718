package redisdb

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// counts is a step that increments n of a hash, and pushes the key on a list. Before it decides
// it calls the test's function.
func counts(key, list string, meanwhile func(look int)) *step {
	var now *redis.StringCmd
	looks := 0
	return &step{
		keys: []string{key}, list: list,
		look: func(p redis.Pipeliner) { now = p.HGet(context.Background(), key, "n") },
		decide: func(w *writes) error {
			n, err := now.Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			if looks++; meanwhile != nil {
				meanwhile(looks)
			}
			w.set(key, "n", n+1)
			if list != "" {
				w.pushes(key)
			}
			return nil
		},
	}
}

func TestAStepLooksAgainWhenOthersChangedItsKey(t *testing.T) {
	d, in, c := fresh(t)
	l, err := d.database(in)
	testkit.Must(t, err)
	ctx, looks := t.Context(), 0
	testkit.Must(t, l.step(ctx, counts("k", "list", func(n int) {
		if looks = n; n < 3 {
			testkit.Must(t, c.HIncrBy(ctx, "k", "n", 10).Err())
		}
	})))
	if n, _ := c.HGet(ctx, "k", "n").Int(); n != 21 || looks != 3 || c.LLen(ctx, "list").Val() != 1 {
		t.Errorf("n %d after %d looks, %d pushed", n, looks, c.LLen(ctx, "list").Val())
	}
}

func TestAStepThatOthersNeverLetThroughIsGivenUpForNow(t *testing.T) {
	d, in, c := fresh(t)
	l, err := d.database(in)
	testkit.Must(t, err)
	looks := 0
	err = l.step(t.Context(), counts("k", "list", func(n int) {
		looks = n
		testkit.Must(t, c.HIncrBy(t.Context(), "k", "n", 1).Err())
	}))
	if !errors.Is(err, errBusy) || looks != aloneTries || c.Exists(t.Context(), "list").Val() != 0 {
		t.Errorf("%v after %d looks", err, looks)
	}
	is(t, d.refused("test", in, err), edda.Temporary)
}

// A step that fails does not fail the other steps of its batch.
func TestStepsOfOneBatchHaveEachItsOwnEnd(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	testkit.Must(t, c.Do(ctx, "acl", "setuser", "half", "reset", "on", ">pw", "~ok*", "~no:list", "~text", "~late", "+@all").Err())
	half := open(t, Options{URL: "redis://half:pw@" + d.where})
	l, err := half.database(in)
	testkit.Must(t, err)
	testkit.Must(t, c.Set(ctx, "no:list", "text", 0).Err())
	testkit.Must(t, c.Set(ctx, "text", "text", 0).Err())
	refused := errors.New("no")
	declines := counts("ok:declines", "ok:list", nil)
	declines.decide = func(*writes) error { return refused }
	steps := []*step{
		counts("ok:1", "ok:list", nil), counts("another's", "ok:list", nil), counts("ok:no list", "no:list", nil),
		counts("text", "ok:list", nil), declines, counts("ok:2", "ok:list", nil),
		// Another program replaces the list at that moment. The step is done, and returns that
		// error.
		counts("ok:late", "late", func(int) { testkit.Must(t, c.Set(ctx, "late", "text", 0).Err()) }),
	}
	l.transact(ctx, steps)
	for i, want := range []string{"", "NOPERM", wrongType, wrongType, "no", "", wrongType} {
		if got := steps[i].err; (got == nil) != (want == "") || got != nil && !containsWord(got, want) {
			t.Errorf("%v: %v, want %q", steps[i].keys, got, want)
		}
	}
	if keys := c.LRange(ctx, "ok:list", 0, -1).Val(); !slices.Equal(keys, []string{"ok:2", "ok:1"}) {
		t.Errorf("pushed %v", keys)
	}
	if n := c.Exists(ctx, "ok:1", "ok:2", "ok:no list", "ok:declines").Val(); n != 2 {
		t.Errorf("%d written", n)
	}
}

// The steps of a batch are not retried alone at a Redis that does not answer, because each
// would wait for the timeout.
func TestStepsOfOneBatchDoNotEachWaitForARedisThatIsGone(t *testing.T) {
	d, in, c := fresh(t)
	testkit.Must(t, c.Do(t.Context(), "acl", "setuser", "some", "reset", "on", ">pw", "~ok*", "+@all").Err())
	some, w := tapped(t, open(t, Options{URL: "redis://some:pw@" + d.where}))
	l, err := some.database(in)
	testkit.Must(t, err)
	steps := []*step{counts("another's", "", nil), counts("ok:1", "", nil), counts("ok:2", "", nil), counts("ok:3", "", nil)}
	w.breaks("exec", len(steps), true)
	l.transact(t.Context(), steps)
	if !containsWord(steps[0].err, "NOPERM") || w.count() != 1 {
		t.Errorf("%v; asked %d times", steps[0].err, w.count())
	}
	for _, s := range steps[1:] {
		var said redis.Error
		if s.err == nil || errors.As(s.err, &said) {
			t.Errorf("%v: %v", s.keys, s.err)
		}
	}
}

func containsWord(err error, word string) bool {
	return slices.Contains(strings.Fields(err.Error()), word)
}

// A step that writes nothing leaves no watched key on the connection of the next step.
func TestNothingStaysWatched(t *testing.T) {
	d, in, c := fresh(t)
	l := onlyOne(t, d, in)
	ctx := t.Context()
	idle := counts("a", "", nil)
	idle.decide = func(*writes) error { return nil }
	testkit.Must(t, l.step(ctx, idle))
	testkit.Must(t, c.HSet(ctx, "a", "n", 1).Err())
	looks := 0
	testkit.Must(t, l.step(ctx, counts("b", "", func(n int) { looks = n })))
	if looks != 1 {
		t.Errorf("looked %d times", looks)
	}
}

// A step whose answer was lost recognises its own writes, in each round trip.
func TestABeginningAndAnEndWhoseAnswersAreLostAreNotDoubled(t *testing.T) {
	for _, of := range []string{"watch", "exec"} {
		for name, before := range map[string]bool{"before": true, "after": false} {
			t.Run(of+" "+name, func(t *testing.T) {
				plain, in, c := fresh(t)
				d, w := tapped(t, plain)
				ctx := t.Context()
				j := job(in)
				j.ID = 1
				testkit.Must(t, plain.PutJob(ctx, j))
				testkit.Must(t, c.LPush(ctx, into, j.Key()).Err())
				second(plain.Left(ctx, in, into))
				w.breaks(of, 1, before)
				work, begun, err := d.Begin(ctx, in, j.Key(), j.ScriptType, false, 20, "mark")
				if err != nil || !begun || work.Run.Number != 1 || w.count() != 1 {
					t.Fatalf("%+v, %v, broke %d times", work, err, w.count())
				}
				w.breaks(of, 1, before)
				testkit.Must(t, d.EndRun(ctx, in, work, "finished", nil, into, telling(work)))
				if w.count() != 1 || c.LLen(ctx, "msg_out").Val() != 1 || c.LLen(ctx, into).Val() != 0 {
					t.Errorf("broke %d times, %d messages, %d left", w.count(), c.LLen(ctx, "msg_out").Val(), c.LLen(ctx, into).Val())
				}
			})
		}
	}
}

// The leader of a batch gives up, and the other steps succeed.
func TestABatchDoesNotEndWithItsLeader(t *testing.T) {
	d, in, c := fresh(t)
	l, err := d.database(in)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	steps := []*step{counts("a", "", nil), counts("b", "", nil)}
	cancel() // while it waited in the coalescer
	l.transact(ctx, steps)
	if n := c.Exists(t.Context(), "a", "b").Val(); n != 2 || steps[1].err != nil {
		t.Errorf("%d written, %v", n, steps[1].err)
	}
}

// A step drops the connection to a Redis that became a replica, as a single command does: its
// name may lead to the new primary, which only a new connection looks up.
func TestAReadOnlyRedisIsLeft(t *testing.T) {
	t.Parallel()
	_, d := troubled(t, realservers.RedisOptions{})
	ctx, admin := t.Context(), raw(t, d, 0)
	l := onlyOne(t, d, 3)
	testkit.Must(t, l.step(ctx, counts("k", "list", nil)))
	before := l.ClientID(ctx).Val()
	testkit.Must(t, admin.Do(ctx, "replicaof", "127.0.0.1", "1").Err())
	is(t, d.refused("test", 3, l.step(ctx, counts("k", "list", nil))), edda.Temporary)
	if now := l.ClientID(ctx).Val(); now == 0 || now == before {
		t.Errorf("connection %d is used on", now)
	}
	testkit.Must(t, admin.Do(ctx, "replicaof", "no", "one").Err())
	testkit.Must(t, l.step(ctx, counts("k", "list", nil)))
	if n, _ := l.HGet(ctx, "k", "n").Int(); n != 2 {
		t.Errorf("n is %d", n)
	}
}

// onlyOne is a database with one connection.
func onlyOne(t *testing.T, d *DB, in uint32) *database {
	t.Helper()
	o := d.options
	o.DB, o.PoolSize = int(in), 1
	l := newDatabase(redis.NewClient(&o))
	t.Cleanup(func() { l.Close() })
	return l
}
