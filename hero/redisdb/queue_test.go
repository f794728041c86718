package redisdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"edda/internal/testkit"

	"github.com/google/go-cmp/cmp"

	"edda"
)

const (
	queue = "queue:python"
	into  = "queue:python:running:20"
)

func TestAQueueIsFirstInFirstOut(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	for n := range 3 {
		testkit.Must(t, d.Push(ctx, in, queue, fmt.Sprint("job:1:", n)))
	}
	if n, err := d.Depth(ctx, in, queue); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	for n := range 3 {
		if key, err := d.Take(ctx, in, queue, into, 0); err != nil || key != fmt.Sprint("job:1:", n) {
			t.Fatal(key, err)
		}
	}
	_, err := d.Take(ctx, in, queue, into, 0)
	is(t, err, ErrEmpty)
	left, err := d.Left(ctx, in, into)
	testkit.Must(t, err)
	if diff := cmp.Diff([]string{"job:1:0", "job:1:1", "job:1:2"}, left); diff != "" {
		t.Error("oldest first:", diff)
	}
	testkit.Must(t, d.Done(ctx, in, into, "job:1:1"))
	if left, err := d.Left(ctx, in, into); err != nil || !slices.Equal(left, []string{"job:1:0", "job:1:2"}) {
		t.Error(left, err)
	}
}

func TestTakeWaits(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	begun := time.Now()
	_, err := d.Take(ctx, in, queue, into, slice+100*time.Millisecond)
	is(t, err, ErrEmpty)
	if took := time.Since(begun); took < slice+100*time.Millisecond {
		t.Errorf("gave up after %v", took)
	}
	pushed := make(chan error, 1)
	timer := time.AfterFunc(50*time.Millisecond, func() { pushed <- d.Push(context.WithoutCancel(ctx), in, queue, "job:1:1") })
	defer timer.Stop()
	key, err := d.Take(ctx, in, queue, into, time.Minute)
	if testkit.Must(t, <-pushed); err != nil || key != "job:1:1" {
		t.Fatal(key, err)
	}
}

func TestTakeEndsWithItsContext(t *testing.T) {
	d, in, _ := fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := d.Take(ctx, in, queue, into, time.Hour)
	is(t, err, context.DeadlineExceeded)
	if took := time.Since(begun); took > 5*slice {
		t.Errorf("took %v", took)
	}
}

// A caller that stops while Redis moves a key gets the key, and it is not left in the list.
func TestAKeyIsNotLostWhenItsTakerStops(t *testing.T) {
	d, in, c := fresh(t)
	var got []string
	for n := range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		var both sync.WaitGroup
		both.Go(cancel)
		both.Go(func() { _ = d.Push(t.Context(), in, queue, fmt.Sprint("job:1:", n)) })
		if key, err := d.Take(ctx, in, queue, into, time.Minute); err == nil {
			got = append(got, key)
		}
		both.Wait()
	}
	left, queued := c.LLen(t.Context(), into).Val(), c.LLen(t.Context(), queue).Val()
	if int(left) != len(got) || int(left+queued) != 30 {
		t.Errorf("returned %d, taken %d, in the queue %d", len(got), left, queued)
	}
}

func TestAKeyWhoseAnswerIsLostComesAgain(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			plain, in, c := fresh(t)
			d, w := tapped(t, plain)
			ctx := t.Context()
			for _, key := range []string{"a", "a", "b"} { // a is twice in the queue
				testkit.Must(t, plain.Push(ctx, in, queue, key))
			}
			if key, err := d.Take(ctx, in, queue, into, 0); err != nil || key != "a" {
				t.Fatal(key, err)
			}
			w.breaks("lmove", 1, before)
			_, err := d.Take(ctx, in, queue, into, time.Second)
			is(t, err, edda.Temporary)
			for _, want := range []string{"a", "b"} {
				if key, err := d.Take(ctx, in, queue, into, time.Second); err != nil || key != want {
					t.Fatal(key, err)
				}
			}
			_, err = d.Take(ctx, in, queue, into, 0)
			is(t, err, ErrEmpty)
			for _, key := range []string{"a", "b", "a"} {
				testkit.Must(t, d.Done(ctx, in, into, key))
			}
			if n := c.LLen(ctx, into).Val(); n != 0 {
				t.Errorf("%d left", n)
			}
		})
	}
}

func TestLeftoversOfAnEarlierRunAreNotTakenTwice(t *testing.T) {
	plain, in, _ := fresh(t)
	ctx := t.Context()
	for _, key := range []string{"a", "b"} {
		testkit.Must(t, plain.Push(ctx, in, queue, key))
	}
	if _, err := plain.Take(ctx, in, queue, into, 0); err != nil {
		t.Fatal(err)
	}
	d, w := tapped(t, plain) // the next run
	if left, err := d.Left(ctx, in, into); err != nil || !slices.Equal(left, []string{"a"}) {
		t.Fatal(left, err)
	}
	w.breaks("lmove", 1, false)
	_, err := d.Take(ctx, in, queue, into, 0)
	is(t, err, edda.Temporary)
	if key, err := d.Take(ctx, in, queue, into, 0); err != nil || key != "b" {
		t.Fatal(key, err)
	}
	_, err = d.Take(ctx, in, queue, into, 0)
	is(t, err, ErrEmpty)
}

func TestManyTakersGetEachKeyOnce(t *testing.T) {
	plain, in, _ := fresh(t)
	d, w := tapped(t, plain)
	ctx := t.Context()
	const keys = 200
	for n := range keys {
		testkit.Must(t, plain.Push(ctx, in, queue, fmt.Sprint(n)))
	}
	w.breaks("lmove", 10, false)
	var mu sync.Mutex
	got := map[string]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				key, err := d.Take(ctx, in, queue, into, 100*time.Millisecond)
				switch {
				case errors.Is(err, ErrEmpty):
					return
				case errors.Is(err, edda.Temporary):
					continue
				case err != nil:
					t.Error(err)
					return
				}
				mu.Lock()
				got[key]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for n := range keys {
		if got[fmt.Sprint(n)] != 1 {
			t.Errorf("%d came %d times", n, got[fmt.Sprint(n)])
		}
	}
	if w.count() != 10 {
		t.Errorf("broke %d times", w.count())
	}
}

func TestTheQueueOfTheActorsDatabase(t *testing.T) {
	d, _, _ := fresh(t)
	testkit.Must(t, d.Push(t.Context(), 0, "edda:test", "x"))
	if key, err := d.Take(t.Context(), 0, "edda:test", "edda:test:taken", 0); err != nil || key != "x" {
		t.Error(key, err)
	}
	testkit.Must(t, d.Done(t.Context(), 0, "edda:test:taken", "x"))
}

// A key whose work ends during the comparison of the list seemed to be a stray.
func TestNoKeyLeavesWhileTheListIsCompared(t *testing.T) {
	in := &intake{taken: map[string]int{}}
	if _, err := in.take(func() (string, error) { return "a", nil }); err != nil {
		t.Fatal(err)
	}
	_, _ = in.take(func() (string, error) { return "", errors.New("the connection broke") })
	removed := make(chan struct{})
	left := make(chan error, 1)
	stray, err := in.stray(func() ([]string, error) {
		go func() { left <- in.leaves("a", func() (bool, error) { close(removed); return true, nil }) }()
		select {
		case <-removed:
			t.Error("removed between listing and comparing")
		case <-time.After(30 * time.Millisecond):
		}
		return []string{"a"}, nil
	})
	if err != nil || stray != "" {
		t.Errorf("%q is a stray, %v", stray, err)
	}
	testkit.Must(t, <-left)
	if len(in.taken) != 0 {
		t.Errorf("taken %v", in.taken)
	}
}

func TestAKeyThatDidNotLeaveIsStillTaken(t *testing.T) {
	in := &intake{taken: map[string]int{"a": 2}}
	broken := errors.New("the connection broke")
	is(t, in.leaves("a", func() (bool, error) { return true, broken }), broken)
	testkit.Must(t, in.leaves("a", func() (bool, error) { return false, nil }))
	if in.taken["a"] != 2 {
		t.Errorf("taken %v", in.taken)
	}
	testkit.Must(t, in.leaves("a", func() (bool, error) { return true, nil }))
	if in.taken["a"] != 1 {
		t.Errorf("taken %v", in.taken)
	}
}
