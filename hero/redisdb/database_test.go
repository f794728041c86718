package redisdb

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

// Each command of a batch has its own answer: one that fails does not fail the others.
func TestManyInOneBatchHaveEachItsAnswer(t *testing.T) {
	d, in, c := fresh(t)
	const jobs = 200
	testkit.Must(t, c.Set(t.Context(), hero.JobKey(12, 7), "another program's", 0).Err())
	var all sync.WaitGroup
	for id := uint32(1); id <= jobs; id++ {
		all.Go(func() {
			j := hero.Job{ID: id, CallerID: 12, ContextID: in, Script: fmt.Sprint(id), ScriptType: hero.ScriptPython}
			_, fresh, err := d.Create(t.Context(), in, j.Key(), j, queue)
			if id == 7 {
				is(t, err, edda.Permanent)
				return
			}
			got, readErr := d.Work(t.Context(), in, 12, id)
			if err != nil || !fresh || readErr != nil || got.Script != fmt.Sprint(id) {
				t.Error(id, fresh, err, readErr, got.Script)
			}
		})
	}
	all.Wait()
	if n := c.LLen(t.Context(), queue).Val(); n != jobs-1 {
		t.Errorf("%d are queued", n)
	}
}

func TestMoreIsTakenInOrderAndNoneIsLost(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			plain, in, _ := fresh(t)
			d, w := tapped(t, plain)
			ctx := t.Context()
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				testkit.Must(t, plain.Push(ctx, in, queue, key))
			}
			if keys, err := d.TakeMore(ctx, in, queue, into, 2); err != nil || !slices.Equal(keys, []string{"a", "b"}) {
				t.Fatal(keys, err)
			}
			w.breaks("lmove", 1, before)
			_, err := d.TakeMore(ctx, in, queue, into, 2)
			is(t, err, edda.Temporary)
			if keys, err := d.TakeMore(ctx, in, queue, into, 2); err != nil || len(keys) != 0 {
				t.Fatal("it does not know what was lost and took", keys, err)
			}
			for _, want := range []string{"c", "d", "e"} {
				if key, err := d.Take(ctx, in, queue, into, time.Second); err != nil || key != want {
					t.Fatal(key, err)
				}
			}
		})
	}
}

func TestMoreThanThereIsIsNotTaken(t *testing.T) {
	d, in, c := fresh(t)
	testkit.Must(t, d.Push(t.Context(), in, queue, "a"))
	if keys, err := d.TakeMore(t.Context(), in, queue, into, 5); err != nil || !slices.Equal(keys, []string{"a"}) {
		t.Error(keys, err)
	}
	testkit.Must(t, d.Done(t.Context(), in, into, "a"))
	if n := c.LLen(t.Context(), into).Val(); n != 0 {
		t.Errorf("%d left", n)
	}
}
