package coalesce

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestABatchIsBounded(t *testing.T) {
	l := &Coalescer[string]{}
	for range MaxBatch + 1 {
		l.waiting = append(l.waiting, &request[string]{})
	}
	l.waiting = append(l.waiting, &request[string]{bytes: 2 * batchBytes}, &request[string]{bytes: 1})
	var lengths []int
	for n := len(l.next()); n > 0; n = len(l.next()) {
		lengths = append(lengths, n)
	}
	if want := []int{MaxBatch, 1, 1, 1}; !slices.Equal(lengths, want) {
		t.Errorf("%v, want %v", lengths, want)
	}
}

func TestNoTwoOfOneBatchHaveAKeyInCommon(t *testing.T) {
	f := &Coalescer[[]string]{Keys: func(keys []string) []string { return keys }}
	for _, keys := range [][]string{{"a"}, {"b", "c"}, {"a"}, {"d"}, {"c", "e"}, {"e"}} {
		f.waiting = append(f.waiting, &request[[]string]{what: keys})
	}
	var got [][]string
	for batch := f.next(); len(batch) > 0; batch = f.next() {
		var keys []string
		for _, r := range batch {
			keys = append(keys, r.what...)
		}
		got = append(got, keys)
	}
	want := [][]string{{"a", "b", "c", "d", "e"}, {"a", "c", "e"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A batch leaves beside others when it is worth one, and what waits for more to
// come leaves when the last of them is back.
func TestABatchLeavesBesideOthersWhenItIsWorthIt(t *testing.T) {
	left, land := make(chan int, inFlight), make(chan bool)
	f := &Coalescer[int]{Send: func(_ context.Context, all []int) {
		left <- len(all)
		<-land
	}}
	var all sync.WaitGroup
	join := func(n int) {
		for i := range n {
			all.Go(func() { f.Do(t.Context(), i, 0) })
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
	join(worthABatch - 1)
	waiting(worthABatch-1, 1)
	if len(left) != 0 {
		t.Fatal("one left that was not worth it")
	}
	join(1)
	expect("the second", worthABatch)
	for n := 3; n <= inFlight; n++ {
		join(worthABatch)
		expect("another", worthABatch)
	}
	join(worthABatch)
	waiting(worthABatch, inFlight)
	if len(left) != 0 {
		t.Fatal("one too many left")
	}
	land <- true
	expect("the one after", worthABatch)
	join(3)
	waiting(3, inFlight)
	for flying := inFlight - 1; flying > 0; flying-- {
		land <- true
		waiting(3, flying) // not worth one yet: another is out
	}
	land <- true
	expect("the last", 3)
	land <- true
	all.Wait()
}
