package redisdb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"

	"edda"
	"edda/hero"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// The straight line of a flow's job, on a real Redis and on the embedded one of
// development.
func TestTheStraightLine(t *testing.T) {
	t.Run("redis", func(t *testing.T) { straight(t, real(t, realservers.RedisOptions{}).Address()) })
	t.Run("miniredis", func(t *testing.T) { straight(t, miniredis.RunT(t).Addr()) })
}

func straight(t *testing.T, addr string) {
	d, ctx := open(t, Options{Addr: addr}), t.Context()
	testkit.Must(t, d.Ping(ctx))
	testkit.Must(t, d.PutActor(ctx, hero.Actor{ID: 12, PubKey: "ab", Address: []string{"::1"}}))
	testkit.Must(t, d.PutContext(ctx, hero.Context{ID: 7, Admins: []uint32{12}}))
	if got, err := d.Contexts(ctx); err != nil || !cmp.Equal(got, []uint32{7}) {
		t.Fatalf("contexts %v, %v", got, err)
	}
	id, fresh, err := d.Send(ctx, 7, "command", hero.Message{CallerID: 12, ContextID: 7, MessageType: hero.MessageJob})
	if err != nil || !fresh {
		t.Fatal(id, fresh, err)
	}
	message, err := d.Take(ctx, 7, hero.MsgOut, hero.MsgOutCoordinator, time.Second)
	if err != nil || message != hero.MessageKey(12, id) {
		t.Fatal(message, err)
	}
	if _, fresh, err := d.Create(ctx, 7, message, hero.Job{ID: 2001, CallerID: 12, ContextID: 7, ScriptType: "python"}, "queue:python"); err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	if moved, err := d.MoveMessage(ctx, 7, message, hero.MessageAcknowledged, MessageChange{}); err != nil || !moved {
		t.Fatal(moved, err)
	}
	testkit.Must(t, d.Done(ctx, 7, hero.MsgOutCoordinator, message))
	job, err := d.Take(ctx, 7, "queue:python", "queue:python:running:20", time.Second)
	if err != nil || job != "job:12:2001" {
		t.Fatal(job, err)
	}
	for _, to := range []hero.JobStatus{hero.JobStarted, hero.JobFinished} {
		if _, moved, err := d.MoveJob(ctx, 7, 12, 2001, to, map[string]string{"output": "1"}); err != nil || !moved {
			t.Fatal(to, moved, err)
		}
	}
	testkit.Must(t, d.Done(ctx, 7, "queue:python:running:20", job))
	if _, err := d.Take(ctx, 7, "queue:python", "queue:python:running:20", 10*time.Millisecond); !errors.Is(err, ErrEmpty) {
		t.Fatal(err)
	}
	if left, err := d.Left(ctx, 7, hero.MsgOutCoordinator); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

func TestContextsAreDatabasesThatHoldTheirHash(t *testing.T) {
	d, ctx := open(t, Options{Addr: real(t, realservers.RedisOptions{Databases: 40}).Address()}), t.Context()
	for _, id := range []uint32{33, 2, 39} {
		testkit.Must(t, d.PutContext(ctx, hero.Context{ID: id}))
	}
	testkit.Must(t, raw(t, d, 5).HSet(ctx, "context:6", "id", 6).Err())      // in another's database
	testkit.Must(t, raw(t, d, 8).Set(ctx, "context:8", "a lock", 0).Err())   // no hash
	testkit.Must(t, raw(t, d, 9).HSet(ctx, "context:9:lock", "id", 9).Err()) // another program's
	testkit.Must(t, raw(t, d, 0).HSet(ctx, "context:0", "id", 0).Err())      // the actors' database
	for name, d := range map[string]*DB{"all rights": d, "without INFO": open(t, Options{URL: "redis://nosy:pw@" + d.where})} {
		if name != "all rights" {
			testkit.Must(t, raw(t, open(t, Options{Addr: d.where}), 0).Do(ctx, "acl", "setuser", "nosy", "on", ">pw", "~*", "+@all", "-info").Err())
		}
		got, err := d.Contexts(ctx)
		testkit.Must(t, err)
		if diff := cmp.Diff([]uint32{2, 33, 39}, got); diff != "" {
			t.Error(name, diff)
		}
	}
	testkit.Must(t, d.DeleteContext(ctx, 33))
	if got, err := d.Contexts(ctx); err != nil || len(got) != 2 {
		t.Error(got, err)
	}
}

func TestNoContextNoDatabase(t *testing.T) {
	d, ctx := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()}), t.Context()
	for name, call := range map[string]func(in uint32) error{
		"read":   func(in uint32) error { _, err := d.Flow(ctx, in, 1); return err },
		"write":  func(in uint32) error { return d.PutContext(ctx, hero.Context{ID: in}) },
		"list":   func(in uint32) error { _, err := d.Jobs(ctx, in); return err },
		"delete": func(in uint32) error { return d.DeleteRunner(ctx, in, 1) },
		"send": func(in uint32) error {
			_, _, err := d.Send(ctx, in, "c", hero.Message{CallerID: 1})
			return err
		},
		"create": func(in uint32) error {
			_, _, err := d.Create(ctx, in, "c", hero.Job{ID: 1, CallerID: 1}, "")
			return err
		},
		"move": func(in uint32) error { _, _, err := d.MoveJob(ctx, in, 1, 1, hero.JobStarted, nil); return err },
	} {
		for in, want := range map[uint32]struct {
			class error
			says  string
		}{
			0:          {edda.Permanent, "contexts begin at 1"},
			16:         {edda.Temporary, "databases N"},
			1 << 31:    {edda.Permanent, "no database of that number"},
			4294967295: {edda.Permanent, "no database of that number"},
		} {
			var storage *StorageError
			if err := call(in); !errors.As(err, &storage) || !errors.Is(err, want.class) || !strings.Contains(err.Error(), want.says) {
				t.Errorf("%s in %d: %v", name, in, err)
			}
		}
	}
}

func TestAClosedDBSaysSo(t *testing.T) {
	d, in, _ := fresh(t)
	testkit.Must(t, d.Close())
	for _, in := range []uint32{in, in + 1} {
		if _, err := d.Flow(t.Context(), in, 1); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	s := real(t, realservers.RedisOptions{})
	d := open(t, Options{Addr: s.Address()})
	testkit.Must(t, d.Ping(t.Context()))
	testkit.Must(t, s.Pause())
	defer func() { testkit.Must(t, s.Resume()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := d.Flow(ctx, 1, 1)
	is(t, err, edda.Temporary)
	if took := time.Since(begun); took > 2*time.Second || !strings.Contains(err.Error(), "slow") {
		t.Errorf("after %v: %v", took, err)
	}
}
