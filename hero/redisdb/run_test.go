package redisdb

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"edda"
	"edda/hero"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// queued makes a job and takes it into a runner's list.
func queued(t *testing.T, d *DB, j hero.Job, into string) RunnerJob {
	t.Helper()
	j.CallerID, j.ContextID, j.ScriptType = 12, 7, hero.ScriptPython
	testkit.Must(t, d.PutJob(t.Context(), j))
	testkit.Must(t, d.Push(t.Context(), 7, "queue:python", j.Key()))
	if key, err := d.Take(t.Context(), 7, "queue:python", into, 0); err != nil || key != j.Key() {
		t.Fatalf("%s, %v", key, err)
	}
	w, err := d.Work(t.Context(), 7, 12, j.ID)
	testkit.Must(t, err)
	return w
}

func lengths(t *testing.T, d *DB, lists ...string) string {
	t.Helper()
	var out []int64
	for _, list := range lists {
		n, err := d.Depth(t.Context(), 7, list)
		testkit.Must(t, err)
		out = append(out, n)
	}
	return fmt.Sprint(out)
}

const mine = "queue:python:running:20"

// begin starts a job of the tests.
func begin(t *testing.T, d *DB, id, runner uint32) (RunnerJob, bool) {
	t.Helper()
	w, begun, err := d.Begin(t.Context(), 7, hero.JobKey(12, id), hero.ScriptPython, false, runner, rand.Text())
	testkit.Must(t, err)
	return w, begun
}

func telling(w RunnerJob) hero.Message {
	return hero.Message{CallerID: w.CallerID, ContextID: 7, MessageType: hero.MessageResult, MessageFormat: hero.FormatText, ReplyTo: w.Key(), Job: []hero.Job{w.Job}}
}

func TestARunFromItsBeginningToItsEnd(t *testing.T) {
	d := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()})
	seen := queued(t, d, hero.Job{ID: 1, Script: "print(1)"}, mine)
	if seen.Run != (Run{}) || seen.Stop {
		t.Errorf("%+v", seen)
	}
	if w, begun, err := d.Begin(t.Context(), 7, seen.Key(), "bash", false, 20, "mark"); begun || err != nil || w.Status != hero.JobDispatched {
		t.Errorf("begun as another kind: %+v, %v", w, err)
	}
	w, begun, err := d.Begin(t.Context(), 7, seen.Key(), hero.ScriptPython, false, 20, "mark")
	if err != nil || !begun || w.Status != hero.JobStarted || w.Run.Number != 1 || w.Run.Runner != 20 || w.Script != "print(1)" {
		t.Fatalf("%+v, %v", w, err)
	}
	if again, begun, err := d.Begin(t.Context(), 7, seen.Key(), hero.ScriptPython, false, 20, "mark"); !begun || err != nil || again.Run != w.Run {
		t.Errorf("the same taking: %+v, %v", again, err)
	}
	if other, begun := begin(t, d, 1, 21); begun || other.Status != hero.JobStarted || other.Run != w.Run {
		t.Errorf("begun twice: %+v", other)
	}
	if now, err := d.Watch(t.Context(), 7, []RunnerJob{w, seen}); err != nil || now[0] != (Watched{Current: true}) || now[1].Current {
		t.Errorf("%+v, %v", now, err)
	}
	testkit.Must(t, d.EndRun(t.Context(), 7, w, hero.JobFinished, map[string]string{"a": "1"}, mine, telling(w)))
	j, err := d.Job(t.Context(), 7, 12, 1)
	if err != nil || j.Status != hero.JobFinished || j.Result["a"] != "1" || j.Script != "print(1)" {
		t.Errorf("%+v, %v", j, err)
	}
	if got := lengths(t, d, "queue:python", mine, hero.MsgOut); got != "[0 0 1]" {
		t.Errorf("queue, list, msg_out %s", got)
	}
	if err := d.EndRun(t.Context(), 7, w, hero.JobError, nil, mine, telling(w)); !errors.Is(err, ErrIllegal) {
		t.Errorf("ended twice: %v", err)
	}
	if err := d.DropRun(t.Context(), 7, w, false, mine); !errors.Is(err, ErrIllegal) {
		t.Errorf("dropped after its end: %v", err)
	}
	if j, err := d.Job(t.Context(), 7, 12, 1); err != nil || j.Status != hero.JobFinished {
		t.Errorf("%+v, %v", j, err)
	}
	if messages, err := d.Messages(t.Context(), 7); err != nil || len(messages) != 1 || messages[0].ReplyTo != j.Key() || messages[0].Status != hero.MessageDispatched {
		t.Errorf("%+v, %v", messages, err)
	}
}

func TestADroppedRunIsCountedUnlessInterrupted(t *testing.T) {
	d := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()})
	w := queued(t, d, hero.Job{ID: 1, Script: "x"}, mine)
	testkit.Must(t, d.Push(t.Context(), 7, "queue:python", "job:12:99"))
	for i, interrupted := range []bool{false, true, false} {
		begun, ok := begin(t, d, w.ID, 20)
		if !ok {
			t.Fatalf("round %d: %+v", i, begun)
		}
		var err error
		testkit.Must(t, d.DropRun(t.Context(), 7, begun, interrupted, mine))
		if w, err = d.Work(t.Context(), 7, 12, 1); err != nil || w.Status != hero.JobDispatched || w.Run.Number != []uint32{1, 1, 2}[i] {
			t.Fatalf("round %d: %+v, %v", i, w, err)
		}
		// An interrupted job is the next; any other is queued last.
		first, err := d.Take(t.Context(), 7, "queue:python", mine, 0)
		if want := map[bool]string{true: "job:12:1", false: "job:12:99"}[interrupted]; err != nil || first != want {
			t.Fatalf("round %d: next is %s, %v", i, first, err)
		}
		if !interrupted {
			testkit.Must(t, d.Return(t.Context(), 7, mine, "queue:python", first))
			c, _ := d.Client(7)
			testkit.Must(t, c.LMove(t.Context(), "queue:python", "queue:python", "RIGHT", "LEFT").Err())
			if first, err = d.Take(t.Context(), 7, "queue:python", mine, 0); err != nil || first != "job:12:1" {
				t.Fatalf("round %d: then %s, %v", i, first, err)
			}
		}
	}
	if got := lengths(t, d, "queue:python", mine); got != "[1 1]" {
		t.Errorf("queue, list %s", got)
	}
}

func TestARunOfAnOlderAttemptIsNoMore(t *testing.T) {
	d := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()})
	queued(t, d, hero.Job{ID: 1, Script: "x", FlowID: 9, Attempt: 1}, mine)
	old, _ := begin(t, d, 1, 20)
	testkit.Must(t, d.StopJob(t.Context(), 7, 12, 1, 9, 1))
	if now, err := d.Watch(t.Context(), 7, []RunnerJob{old}); err != nil || now[0] != (Watched{Current: true, Stop: true}) {
		t.Errorf("%+v, %v", now, err)
	}
	seen, err := d.Work(t.Context(), 7, 12, 1)
	if err != nil || !seen.Stop {
		t.Fatalf("%+v, %v", seen, err)
	}
	if _, err := d.DispatchJob(t.Context(), 7, 12, 1, Dispatch{FlowID: 9, Attempt: 2}); err != nil {
		t.Fatal(err)
	}
	w, err := d.Work(t.Context(), 7, 12, 1)
	if err != nil || w.Stop || w.Run != (Run{}) {
		t.Fatalf("%+v, %v", w, err)
	}
	begun, ok := begin(t, d, 1, 21)
	if !ok || begun.Run.Number != 1 {
		t.Fatalf("%+v", begun)
	}
	if err := d.EndRun(t.Context(), 7, old, hero.JobFinished, nil, mine, telling(old)); !errors.Is(err, ErrIllegal) {
		t.Errorf("the older one ended it: %v", err)
	}
	if now, err := d.Watch(t.Context(), 7, []RunnerJob{old, begun}); err != nil || now[0].Current || !now[1].Current {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestOnlyOneOfManyBegins(t *testing.T) {
	d := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()})
	queued(t, d, hero.Job{ID: 1, Script: "x"}, mine)
	var all sync.WaitGroup
	var begun, ended atomic.Int32
	for id := range uint32(8) {
		all.Go(func() {
			w, ok, err := d.Begin(t.Context(), 7, "job:12:1", hero.ScriptPython, false, id+20, rand.Text())
			if err != nil {
				t.Error(err)
			}
			if !ok {
				return
			}
			begun.Add(1)
			for range 3 {
				all.Go(func() {
					if d.EndRun(t.Context(), 7, w, hero.JobFinished, nil, mine, telling(w)) == nil {
						ended.Add(1)
					}
				})
			}
		})
	}
	all.Wait()
	if begun.Load() != 1 || ended.Load() != 1 || lengths(t, d, mine, hero.MsgOut) != "[0 1]" {
		t.Errorf("%d begun, %d ended, %s", begun.Load(), ended.Load(), lengths(t, d, mine, hero.MsgOut))
	}
}

// If one part of the end fails, no part is written.
func TestAnEndIsWholeOrNotAtAll(t *testing.T) {
	d := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()})
	queued(t, d, hero.Job{ID: 1, Script: "x"}, mine)
	w, _ := begin(t, d, 1, 20)
	c, err := d.Client(7)
	testkit.Must(t, err)
	testkit.Must(t, c.Set(t.Context(), hero.MsgOut, "another program's", 0).Err())
	if err := d.EndRun(t.Context(), 7, w, hero.JobFinished, nil, mine, telling(w)); !errors.Is(err, edda.Permanent) {
		t.Errorf("%v", err)
	}
	if j, err := d.Job(t.Context(), 7, 12, 1); err != nil || j.Status != hero.JobStarted || lengths(t, d, mine) != "[1]" {
		t.Errorf("%+v, %v", j, err)
	}
	if messages, err := d.Messages(t.Context(), 7); err != nil || len(messages) != 0 {
		t.Errorf("%+v, %v", messages, err)
	}
	testkit.Must(t, c.Del(t.Context(), hero.MsgOut).Err())
	// Another message has the id of the result message, which gets the next id.
	command := "run/" + w.Key() + "/" + w.Run.String()
	testkit.Must(t, d.PutMessage(t.Context(), 7, hero.Message{ID: derived("message", command, 12, 0), CallerID: 12, Message: "another"}))
	if err := d.EndRun(t.Context(), 7, w, hero.JobFinished, nil, mine, telling(w)); err != nil {
		t.Error(err)
	}
	if messages, err := d.Messages(t.Context(), 7); err != nil || len(messages) != 2 {
		t.Errorf("%+v, %v", messages, err)
	}
}

func TestReturnPutsAKeyBackOnce(t *testing.T) {
	d := open(t, Options{Addr: real(t, realservers.RedisOptions{}).Address()})
	w := queued(t, d, hero.Job{ID: 1, Script: "x"}, mine)
	for range 2 {
		testkit.Must(t, d.Return(t.Context(), 7, mine, "queue:python", w.Key()))
	}
	if got := lengths(t, d, "queue:python", mine); got != "[1 0]" {
		t.Errorf("queue, list %s", got)
	}
}

func TestParseRun(t *testing.T) {
	for _, s := range []string{"", "1/2/3", "1/2/3/x/y", "a/2/3/x", "1/2/4294967296/x"} {
		if r := parseRun(s); r != (Run{}) {
			t.Errorf("%q is read as %+v", s, r)
		}
	}
	r := Run{Runner: 20, Attempt: 2, Number: 3, token: "x"}
	if parseRun(r.String()) != r {
		t.Errorf("%q is read as %+v", r, parseRun(r.String()))
	}
}
