package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/store/format"
)

// gated is an open store whose committer waits inside a callback until released.
func gated(t *testing.T, o Options) (db *opened, release func()) {
	t.Helper()
	db = open(t, t.TempDir(), o)
	entered, gate := make(chan struct{}), make(chan struct{})
	err := db.Submit(context.Background(), Change{}, func(error) { close(entered); <-gate })
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release) // before open's, which waits for the committer
	return db, release
}

// receive fails the test instead of hanging it.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

func audit(detail string) Change { return Change{Audits: []Audit{{Detail: detail}}} }

// TestOneTransactionTakesAllQueuedChanges also proves that answers come in order.
func TestOneTransactionTakesAllQueuedChanges(t *testing.T) {
	groups := make(chan int, 10)
	db, release := gated(t, Options{Observe: func(changes, bytes int, _ time.Duration) {
		if bytes == 0 && changes > 1 {
			t.Error("no bytes")
		}
		groups <- changes
	}})
	answers := make(chan int, maxGroup+10)
	for i := range maxGroup + 10 {
		if err := db.Submit(context.Background(), audit(fmt.Sprint(i)), func(error) { answers <- i }); err != nil {
			t.Fatal(err)
		}
	}
	release()
	for i := range maxGroup + 10 {
		same(t, "answer", receive(t, answers), i)
	}
	same(t, "groups", []int{receive(t, groups), receive(t, groups), receive(t, groups)}, []int{1, maxGroup, 10})
	for i, a := range must(db.Audits(maxGroup + 10)) {
		same(t, "order", a.Detail, fmt.Sprint(maxGroup+9-i))
	}
}

func TestGroupsAreBoundedByBytes(t *testing.T) {
	groups := make(chan int, 10)
	db, release := gated(t, Options{Observe: func(changes, _ int, _ time.Duration) { groups <- changes }})
	answers := make(chan error, 3)
	for range 3 {
		large := audit(strings.Repeat("x", maxGroupBytes*3/8))
		if err := db.Submit(context.Background(), large, func(err error) { answers <- err }); err != nil {
			t.Fatal(err)
		}
	}
	release()
	for range 3 {
		if err := receive(t, answers); err != nil {
			t.Error(err)
		}
	}
	same(t, "groups", []int{receive(t, groups), receive(t, groups), receive(t, groups)}, []int{1, 2, 1})
}

func TestManySubmittersLoseNothing(t *testing.T) {
	const submitters, each = 8, 40
	db := open(t, t.TempDir(), Options{})
	var wg sync.WaitGroup
	for s := range submitters {
		wg.Go(func() {
			line := db.Pipeline()
			results := make(chan error, each)
			for i := range each {
				one := step(key(fmt.Sprint(s)), uint64(i+1))
				if err := line.Submit(context.Background(), Change{Transitions: []edda.Transition{one}}, func(err error) { results <- err }); err != nil {
					t.Error(err)
				}
			}
			for range each {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for s := range submitters {
		history := must(db.History(key(fmt.Sprint(s)), each+1))
		same(t, "transitions", len(history), each)
		for i, r := range history {
			same(t, "revision", r.Revision, uint64(each-i))
		}
	}
	db.check(t)
}

// TestFullQueueBlocks fills the queue by count, then by bytes.
func TestFullQueueBlocks(t *testing.T) {
	t.Run("count", func(t *testing.T) { testFullQueue(t, Change{}, maxQueued) })
	large := audit(strings.Repeat("x", maxQueuedBytes/4))
	t.Run("bytes", func(t *testing.T) { testFullQueue(t, large, 3) })
}

func testFullQueue(t *testing.T, c Change, fits int) {
	db, release := gated(t, Options{})
	answered := make(chan error, fits+2)
	submit := func(ctx context.Context) error {
		return db.Submit(ctx, c, func(err error) { answered <- err })
	}
	for range fits {
		if err := submit(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	impatient, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := submit(impatient); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("one too many: %v", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- submit(context.Background()) }()
	release()
	if err := receive(t, waiting); err != nil {
		t.Error(err)
	}
	for range fits + 1 {
		if err := receive(t, answered); err != nil {
			t.Error(err)
		}
	}
}

func TestStopCommitsSubmittedChanges(t *testing.T) {
	dir := t.TempDir()
	db := must(Open(dir, Options{}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 5)
	for i := range 5 {
		if err := db.Submit(ctx, audit(fmt.Sprint(i)), func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
	}
	cancel()         // before it runs at all
	<-db.queue.ready // nothing but the end wakes it
	if err := db.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
	}
	if err := db.Commit(context.Background(), Change{}); !errors.Is(err, edda.Permanent) {
		t.Errorf("after the end: %v", err)
	}
	if err := db.Run(ctx); err == nil {
		t.Error("ran twice")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "kept", len(must(open(t, dir, Options{}).Audits(10))), 5)
}

func TestRefusedChanges(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	large := step(key("1"), 1)
	large.Event.Payload = json.RawMessage(`"` + strings.Repeat("x", MaxChange) + `"`)
	broken := step(key("1"), 1)
	broken.Instance.State = json.RawMessage(`{`)
	tests := map[string]struct {
		change Change
		class  error
		want   string
	}{
		"two large ones":     {Change{Transitions: []edda.Transition{large, step(key("2"), 1)}}, edda.Permanent, "with 2 transitions: at most 524288 bytes go together"},
		"a key too long":     {Change{Transitions: []edda.Transition{step(key(strings.Repeat("k", format.MaxKey)), 1)}}, edda.Poison, "more than 32704"},
		"no JSON":            {Change{Transitions: []edda.Transition{broken}}, edda.Poison, "encode the transition of acme/order/1 by e1: "},
		"a letter sans id":   {Change{Dead: []edda.DeadLetter{{Reason: edda.DeadNoKey}}}, edda.Poison, "a dead letter (no-key) without an id"},
		"a stream too long":  {Change{Checkpoints: []edda.Checkpoint{{Stream: strings.Repeat("s", format.MaxKey)}}}, edda.Poison, "checkpoint key is"},
		"a command too long": {Change{Claims: []edda.Claim{{CommandID: strings.Repeat("c", format.MaxKey)}}}, edda.Poison, "the command id is"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := db.Commit(context.Background(), test.change)
			if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	db.commit(t, Change{Transitions: []edda.Transition{large}}) // an event is never split
	same(t, "the large one", len(must(db.Instances(Query{}))), 1)
	db.commit(t, Change{Whole: true, Transitions: []edda.Transition{large, step(key("2"), 1)}})
	same(t, "the whole of a large one", len(must(db.Instances(Query{}))), 2)
}

// TestSizeApproximatesTheWrittenBytes keeps the estimate honest: a change is refused by it.
func TestSizeApproximatesTheWrittenBytes(t *testing.T) {
	changes := append(formatChanges(), Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
	for i, c := range changes {
		e := must(encodeChange(c, c.Size()))
		if got := c.Size(); got < e.size*2/3 || got > 3*e.size {
			t.Errorf("change %d: estimated %d bytes, written %d", i, got, e.size)
		}
	}
}

// TestSignals: a commit wakes the waiters for its own reason only. They wake after the committer's
// caller, so the bubble waits for that.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, t.TempDir(), Options{})
		defer db.stop()
		woken := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		expect := func(c Change, committed, armed bool) {
			t.Helper()
			db.commit(t, c)
			synctest.Wait()
			added := false
			select {
			case <-db.Added():
				added = true
			default:
			}
			same(t, "added", added, committed)
			same(t, "armed", woken(db.Armed()), armed)
		}
		arm := Change{Arm: []Due{{Time: noon, Key: key("1")}}}
		expect(Change{}, false, false)
		expect(Change{Transitions: []edda.Transition{working("1", 1, "c1")}}, true, false)
		expect(arm, false, true)
		expect(Change{Disarm: arm.Arm}, false, false)
	})
}

// TestInABubble runs the store where time is virtual.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, t.TempDir(), Options{Now: time.Now})
		db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
		before := time.Now()
		time.Sleep(30 * time.Minute)
		db.commit(t, Change{Transitions: []edda.Transition{working("1", 2, "c2")}})
		_, oldest := db.OutboxSize()
		same(t, "oldest", oldest, before.Truncate(time.Millisecond).UTC())
		db.stop()
	})
}

// TestALingeringChangeJoinsAnother: or is committed alone after its time. Neither a commit in
// progress nor its end triggers that.
func TestALingeringChangeJoinsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []int
		db := open(t, t.TempDir(), Options{Observe: func(changes, _ int, _ time.Duration) { groups = append(groups, changes) }})
		patient := func(within time.Duration) <-chan error {
			done := make(chan error, 1)
			go func() { done <- db.CommitWithin(t.Context(), audit("patient"), within) }()
			synctest.Wait()
			return done
		}
		groups = nil // opening made some
		first, second := patient(time.Second), patient(time.Minute)
		time.Sleep(time.Second / 2)
		same(t, "commits meanwhile", len(groups), 0)
		must(0, db.Commit(t.Context(), audit("another")))
		same(t, "both", []error{<-first, <-second}, []error{nil, nil})
		same(t, "commits", groups, []int{3})
		began := time.Now()
		must(0, <-patient(time.Second))
		same(t, "alone after", time.Since(began), time.Second)
		time.Sleep(time.Hour)
		same(t, "commits at last", groups, []int{3, 1})
	})
}

// TestALingeringChangeWaitsDuringACommit: a change that was submitted during a commit is not
// committed at its end.
func TestALingeringChangeWaitsDuringACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []int
		db, release := gated(t, Options{Observe: func(changes, _ int, _ time.Duration) { groups = append(groups, changes) }})
		patient := make(chan error, 1)
		go func() { patient <- db.CommitWithin(t.Context(), audit("patient"), time.Hour) }()
		synctest.Wait()
		groups = nil
		release()
		synctest.Wait()
		same(t, "commits when the gate is open", len(groups), 0)
		must(0, db.Commit(t.Context(), audit("another")))
		must(0, <-patient)
		same(t, "both in one", groups, []int{2})
	})
}

// TestAnEndOfLingerCommits the changes that wait, and later ones at once.
func TestAnEndOfLingerCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, t.TempDir(), Options{})
		began := time.Now()
		patient := make(chan error, 1)
		go func() { patient <- db.CommitWithin(t.Context(), audit("patient"), time.Hour) }()
		synctest.Wait()
		db.EndLinger()
		must(0, <-patient)
		must(0, db.CommitWithin(t.Context(), audit("later"), time.Hour))
		same(t, "waited", time.Since(began), time.Duration(0))
	})
}

// TestStopCommitsLingeringChanges: and so does a full queue.
func TestStopCommitsLingeringChanges(t *testing.T) {
	q := newQueue()
	push := func(within time.Duration) {
		if room, err := q.tryPush(&job{change: &encoded{}, within: within}); room != nil || err != nil {
			t.Fatal(room, err)
		}
	}
	for range maxQueued {
		push(time.Hour)
	}
	same(t, "taken", len(q.take(maxGroup, maxGroupBytes)), 0)
	if room, _ := q.tryPush(&job{change: &encoded{}, within: time.Hour}); room == nil {
		t.Fatal("there was room")
	}
	same(t, "taken of a full queue", len(q.take(maxGroup, maxGroupBytes)), maxGroup)
	push(time.Hour)
	same(t, "patient", q.patient, 1)
	q.endLinger()
	push(time.Hour)
	same(t, "left", len(q.all()), maxQueued-maxGroup+2)
	same(t, "patient", q.patient, 0)
	same(t, "closed", q.close(), true)
}
