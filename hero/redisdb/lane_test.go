package redisdb

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// What goes in one flight has each its own answer: what is in the way of one is
// not in the way of the others.
func TestManyInOneFlightHaveEachItsAnswer(t *testing.T) {
	d, in, c := fresh(t)
	const jobs = 200
	must(t, c.Set(t.Context(), hero.JobKey(12, 7), "another program's", 0).Err())
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

func TestAFlightIsBounded(t *testing.T) {
	l := &flights[redis.Cmder]{}
	for range maxFlight + 1 {
		l.waiting = append(l.waiting, &ride[redis.Cmder]{})
	}
	l.waiting = append(l.waiting, &ride[redis.Cmder]{bytes: 2 * flightBytes}, &ride[redis.Cmder]{bytes: 1})
	var lengths []int
	for n := len(l.next()); n > 0; n = len(l.next()) {
		lengths = append(lengths, n)
	}
	if want := []int{maxFlight, 1, 1, 1}; !slices.Equal(lengths, want) {
		t.Errorf("%v, want %v", lengths, want)
	}
}

func TestMoreIsTakenInOrderAndNoneIsLost(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			plain, in, _ := fresh(t)
			d, w := tapped(t, plain)
			ctx := t.Context()
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				must(t, plain.Push(ctx, in, queue, key))
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
	must(t, d.Push(t.Context(), in, queue, "a"))
	if keys, err := d.TakeMore(t.Context(), in, queue, into, 5); err != nil || !slices.Equal(keys, []string{"a"}) {
		t.Error(keys, err)
	}
	must(t, d.Done(t.Context(), in, into, "a"))
	if n := c.LLen(t.Context(), into).Val(); n != 0 {
		t.Errorf("%d left", n)
	}
}

// A flight leaves beside others when it is worth one, and what waits for more to
// come leaves when the last of them is back.
func TestAFlightLeavesBesideOthersWhenItIsWorthIt(t *testing.T) {
	left, land := make(chan int, airborne), make(chan bool)
	f := &flights[int]{fly: func(_ context.Context, all []int) {
		left <- len(all)
		<-land
	}}
	var all sync.WaitGroup
	join := func(n int) {
		for i := range n {
			all.Go(func() { f.join(t.Context(), i, 0) })
		}
	}
	waiting := func(want, flying int) {
		t.Helper()
		is := func() (int, int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.waiting), f.flying
		}
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if n, out := is(); n == want && out == flying {
				return
			} else if time.Now().After(until) {
				t.Fatalf("%d wait and %d fly, want %d and %d", n, out, want, flying)
			}
		}
	}
	expect := func(what string, want int) {
		t.Helper()
		if n := <-left; n != want {
			t.Fatalf("%d in %s, want %d", n, what, want)
		}
	}
	join(1)
	expect("the first", 1)
	join(worthAFlight - 1)
	waiting(worthAFlight-1, 1)
	if len(left) != 0 {
		t.Fatal("one left that was not worth it")
	}
	join(1)
	expect("the second", worthAFlight)
	for n := 3; n <= airborne; n++ {
		join(worthAFlight)
		expect("another", worthAFlight)
	}
	join(worthAFlight)
	waiting(worthAFlight, airborne)
	if len(left) != 0 {
		t.Fatal("one too many left")
	}
	land <- true
	expect("the one after", worthAFlight)
	join(3)
	waiting(3, airborne)
	for flying := airborne - 1; flying > 0; flying-- {
		land <- true
		waiting(3, flying) // not worth one yet: another is out
	}
	land <- true
	expect("the last", 3)
	land <- true
	all.Wait()
}
