package redisdb

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

func chat(text string) hero.Message {
	return hero.Message{CallerID: 12, ContextID: 7, MessageType: hero.MessageChat, Message: text}
}

func TestACommandSendsOnce(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	var first uint32
	for n := range 3 {
		id, fresh, err := d.Send(ctx, in, "command", chat("hi"))
		testkit.Must(t, err)
		if n == 0 {
			first = id
		}
		if id != first || fresh != (n == 0) {
			t.Errorf("id %d, fresh %v", id, fresh)
		}
	}
	key := hero.MessageKey(12, first)
	if diff := cmp.Diff([]string{key}, c.LRange(ctx, hero.MsgOut, 0, -1).Val()); diff != "" {
		t.Error(diff)
	}
	m, err := d.Message(ctx, in, 12, first)
	testkit.Must(t, err)
	if m.Message != "hi" || m.Status != hero.MessageDispatched || m.CreatedAt == 0 || m.CreatedAt != m.UpdatedAt {
		t.Errorf("%+v", m)
	}
	if ttl := c.TTL(ctx, "edda:sent:command").Val(); ttl < defaultRemember-time.Hour || ttl > defaultRemember {
		t.Errorf("remembered for %v", ttl)
	}
}

func TestACommandIsKnownAfterItsMessageIsGone(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	id, _, err := d.Send(ctx, in, "command", chat("hi"))
	testkit.Must(t, err)
	testkit.Must(t, d.DeleteMessage(ctx, in, 12, id))
	if again, fresh, err := d.Send(ctx, in, "command", chat("hi")); err != nil || fresh || again != id {
		t.Error(again, fresh, err)
	}
	if c.LLen(ctx, hero.MsgOut).Val() != 1 || c.Exists(ctx, hero.MessageKey(12, id)).Val() != 0 {
		t.Error("sent again")
	}
}

func TestAMessageKnowsItsCommandWhenThatIsForgotten(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	id, _, err := d.Send(ctx, in, "command", chat("hi"))
	testkit.Must(t, err)
	testkit.Must(t, c.Del(ctx, sentKey("command")).Err())
	if again, fresh, err := d.Send(ctx, in, "command", chat("hi")); err != nil || fresh || again != id {
		t.Error(again, fresh, err)
	}
	if c.LLen(ctx, hero.MsgOut).Val() != 1 || c.Exists(ctx, sentKey("command")).Val() != 1 {
		t.Error("sent again, or not remembered")
	}
}

func TestAnIdThatIsTakenIsPassedOver(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	taken := hero.MessageKey(12, derived("message", "command", 12, 0))
	testkit.Must(t, c.HSet(ctx, taken, "name", "another program's").Err())
	id, fresh, err := d.Send(ctx, in, "command", chat("hi"))
	if err != nil || !fresh || id != derived("message", "command", 12, 1) {
		t.Fatal(id, fresh, err)
	}
	if again, fresh, err := d.Send(ctx, in, "command", chat("hi")); err != nil || fresh || again != id {
		t.Fatal(again, fresh, err)
	}
	testkit.Must(t, c.Del(ctx, sentKey("command")).Err())
	if again, fresh, err := d.Send(ctx, in, "command", chat("hi")); err != nil || fresh || again != id {
		t.Fatal(again, fresh, err)
	}
	if h := hashOf(t, c, taken); len(h) != 1 {
		t.Errorf("overwritten: %v", h)
	}
}

func TestAnIdOfTheSendersOwn(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	m := chat("hi")
	m.ID = 101
	for n := range 2 {
		if id, fresh, err := d.Send(ctx, in, "one", m); err != nil || id != 101 || fresh != (n == 0) {
			t.Fatal(id, fresh, err)
		}
	}
	_, _, err := d.Send(ctx, in, "two", m)
	is(t, err, ErrExists)
	is(t, err, edda.Permanent)
	if c.LLen(ctx, hero.MsgOut).Val() != 1 {
		t.Error("sent again")
	}
}

func TestManySendersOfTheSameCommand(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	var made atomic.Int32
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			if _, fresh, err := d.Send(ctx, in, "command", chat("hi")); err != nil {
				t.Error(err)
			} else if fresh {
				made.Add(1)
			}
		})
	}
	if all.Wait(); made.Load() != 1 || c.LLen(ctx, hero.MsgOut).Val() != 1 {
		t.Errorf("%d made it, %d in the queue", made.Load(), c.LLen(ctx, hero.MsgOut).Val())
	}
}

func TestASendWhoseAnswerIsLostIsNotDoubled(t *testing.T) {
	broken(t, "edda:sent:command", func(t *testing.T, d *DB, in uint32) {
		ctx := t.Context()
		id, _, err := d.Send(ctx, in, "command", chat("hi"))
		testkit.Must(t, err)
		if keys := raw(t, d, in).LRange(ctx, hero.MsgOut, 0, -1).Val(); len(keys) != 1 || keys[0] != hero.MessageKey(12, id) {
			t.Errorf("%v", keys)
		}
	})
}

func TestNothingIsHalfSent(t *testing.T) {
	ctx := t.Context()
	for name, spoil := range map[string]struct{ key, value string }{
		"the queue is no list":       {hero.MsgOut, "text"},
		"the memory is no text":      {sentKey("command"), ""},
		"the message's hash is none": {hero.MessageKey(12, derived("message", "command", 12, 0)), "text"},
	} {
		t.Run(name, func(t *testing.T) {
			d, in, c := fresh(t)
			if spoil.value == "" {
				testkit.Must(t, c.RPush(ctx, spoil.key, "x").Err())
			} else {
				testkit.Must(t, c.Set(ctx, spoil.key, spoil.value, 0).Err())
			}
			_, _, err := d.Send(ctx, in, "command", chat("hi"))
			is(t, err, edda.Permanent)
			if keys := c.Keys(ctx, "*").Val(); len(keys) != 1 {
				t.Errorf("wrote %v", keys)
			}
			testkit.Must(t, c.Del(ctx, spoil.key).Err())
			if _, fresh, err := d.Send(ctx, in, "command", chat("hi")); err != nil || !fresh {
				t.Errorf("afterwards: %v %v", fresh, err)
			}
		})
	}
}

// A user who may write hashes but not lists leaves nothing behind.
func TestARefusedPushTakesTheHashBack(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	testkit.Must(t, c.Do(ctx, "acl", "setuser", "half", "reset", "on", ">pw", "~*", "+@all", "-lpush").Err())
	half := open(t, Options{URL: "redis://half:pw@" + d.where})
	_, _, err := half.Send(ctx, in, "command", chat("hi"))
	is(t, err, edda.Temporary)
	if !strings.Contains(err.Error(), "docs/HERO.md") {
		t.Error(err)
	}
	if keys := c.Keys(ctx, "*").Val(); len(keys) != 0 {
		t.Errorf("left %v", keys)
	}
	if _, fresh, err := d.Send(ctx, in, "command", chat("hi")); err != nil || !fresh {
		t.Error(fresh, err)
	}
}

func TestBadCommands(t *testing.T) {
	d, in, _ := fresh(t)
	for _, command := range []string{"", strings.Repeat("x", maxCommand+1)} {
		_, _, err := d.Send(t.Context(), in, command, chat("hi"))
		is(t, err, edda.Permanent)
	}
	for _, command := range []string{"with space", "a:b:{c}\x00\n", strings.Repeat("x", maxCommand)} {
		if _, fresh, err := d.Send(t.Context(), in, command, chat("hi")); err != nil || !fresh {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func TestDerivedIdsDiffer(t *testing.T) {
	seen := map[uint32]string{}
	for _, kind := range []string{"message", "job"} {
		for caller := range uint32(10) {
			for n := range 50 {
				id, from := derived(kind, fmt.Sprint("c", n), caller, 0), fmt.Sprint(kind, caller, " ", n)
				if seen[id] != "" || id == 0 {
					t.Fatalf("%s and %s are both %d", from, seen[id], id)
				}
				seen[id] = from
			}
		}
	}
	if derived("message", "c", 1, 0) != 3223610234 {
		t.Errorf("ids of commands changed: %d", derived("message", "c", 1, 0))
	}
}

func job(in uint32) hero.Job {
	return hero.Job{CallerID: 12, ContextID: in, Script: "print(1)", ScriptType: hero.ScriptPython}
}

func TestACommandCreatesAJobOnce(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	id, fresh, err := d.Create(ctx, in, "command", job(in), "queue:python")
	if err != nil || !fresh || id == 0 {
		t.Fatal(id, fresh, err)
	}
	if again, fresh, err := d.Create(ctx, in, "command", job(in), "queue:python"); err != nil || fresh || again != id {
		t.Fatal(again, fresh, err)
	}
	if diff := cmp.Diff([]string{hero.JobKey(12, id)}, c.LRange(ctx, "queue:python", 0, -1).Val()); diff != "" {
		t.Error(diff)
	}
	if id, fresh, err := d.Create(ctx, in, "unqueued", job(in), ""); err != nil || !fresh || c.Exists(ctx, hero.JobKey(12, id)).Val() != 1 {
		t.Error(id, fresh, err)
	}
}

func TestAJobThatIsThereIsQueuedOnceForACommand(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	j := job(in)
	j.ID = 2001
	testkit.Must(t, d.PutJob(ctx, j))
	testkit.Must(t, c.HSet(ctx, j.Key(), "color", "red", "created_at", "1", "executor", "old", "message_key", "message:1:1").Err())
	j.Attempt = 1
	for n := range 2 {
		if id, fresh, err := d.Create(ctx, in, "attempt 1", j, "queue:python"); err != nil || id != 2001 || fresh != (n == 0) {
			t.Fatal(id, fresh, err)
		}
	}
	h := hashOf(t, c, j.Key())
	if h["attempt"] != "1" || h["executor"]+h["message_key"] != "" || h["color"] != "red" || h["created_at"] != "1" || c.LLen(ctx, "queue:python").Val() != 1 {
		t.Errorf("%v", h)
	}
	if _, _, err := d.MoveJob(ctx, in, 12, 2001, hero.JobStarted, nil); err != nil {
		t.Fatal(err)
	}
	if _, fresh, err := d.Create(ctx, in, "attempt 1", j, "queue:python"); err != nil || fresh {
		t.Error(fresh, err)
	}
	_, _, err := d.Create(ctx, in, "attempt 2", j, "queue:python")
	is(t, err, ErrIllegal)
	if _, err := d.RetryJob(ctx, in, 12, 2001); err != nil {
		t.Fatal(err)
	}
	if _, fresh, err := d.Create(ctx, in, "attempt 2", j, "queue:python"); err != nil || !fresh || c.LLen(ctx, "queue:python").Val() != 2 {
		t.Error(fresh, err)
	}
}

func TestABrokenJobIsNotQueued(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	testkit.Must(t, c.HSet(ctx, "job:12:2001", "id", "2001", "caller_id", "12", "timeout", "soon").Err())
	j := job(in)
	j.ID = 2001
	if _, _, err := d.Create(ctx, in, "command", j, "queue:python"); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Error(err)
	}
	if h := hashOf(t, c, "job:12:2001"); len(h) != 3 || c.LLen(ctx, "queue:python").Val() != 0 {
		t.Errorf("%v", h)
	}
}

func TestACreateWhoseAnswerIsLostIsNotDoubled(t *testing.T) {
	for _, there := range []bool{false, true} {
		t.Run(fmt.Sprint("there ", there), func(t *testing.T) {
			broken(t, "edda:sent:command", func(t *testing.T, d *DB, in uint32) {
				ctx := t.Context()
				j := job(in)
				j.ID = 2001
				if there {
					testkit.Must(t, d.PutJob(ctx, j))
				}
				id, _, err := d.Create(ctx, in, "command", j, "queue:python")
				if n := raw(t, d, in).LLen(ctx, "queue:python").Val(); err != nil || id != 2001 || n != 1 {
					t.Errorf("%d, %d in the queue: %v", id, n, err)
				}
			})
		})
	}
}
