package engine

import (
	"fmt"
	"testing"
	"time"
)

func TestABatchWaitsForAsManyAsUsuallyComeTogether(t *testing.T) {
	begun := time.Unix(0, 0)
	soon, late := begun.Add(maxLinger/2), begun.Add(maxLinger)
	for name, c := range map[string]struct {
		expected, batches, n int
		now               time.Time
		want              bool
	}{
		"fewer than usual":                 {expected: 10, batches: 1, n: 9, now: soon, want: true},
		"as many as usual":                 {expected: 10, batches: 1, n: 10, now: soon},
		"as many, where it may grow":       {expected: 10, batches: probeEvery, n: 10, now: soon, want: true},
		"fewer, but it has waited":         {expected: 10, batches: 1, n: 9, now: late},
		"few were under way":               {expected: minExpected - 1, batches: 1, n: 1, now: soon},
		"few, where it might grow":         {expected: minExpected - 1, batches: probeEvery, n: 1, now: soon},
		"as many, and it has waited, grow": {expected: 10, batches: probeEvery, n: 10, now: late},
	} {
		t.Run(name, func(t *testing.T) {
			k := newLinger()
			defer k.timer.Stop()
			k.expected, k.batches, k.begun = c.expected, c.batches, begun
			if got := k.waits(c.n, c.now); got != c.want {
				t.Errorf("waits: %v", got)
			}
		})
	}
}

func TestWhatIsUsualFadesAndGrows(t *testing.T) {
	c := newLinger()
	defer c.timer.Stop()
	c.begin(256, time.Time{})
	if c.expected != 256 {
		t.Fatalf("usual after a batch of 256: %d", c.expected)
	}
	batches := 0
	for ; c.expected >= minExpected; batches++ {
		c.begin(1, time.Time{})
	}
	if most := 40; batches > most {
		t.Errorf("lone inputs wait for %d batches, want at most %d", batches, most)
	}
	for range 10 {
		c.begin(1, time.Time{})
	}
	if c.expected != 1 {
		t.Errorf("usual of lone inputs: %d", c.expected)
	}
}

// one after the other hands in n results, each a while behind the last; it tells in how
// many change sets they were committed, and how long the last waited.
func (w *world) oneAfterTheOther(n int, apart time.Duration) (sets int, waited time.Duration) {
	before := w.gate.count()
	var last chan error
	for i := range n {
		time.Sleep(apart)
		last = w.hand(result(fmt.Sprintf("r%d", i), fmt.Sprintf("k%d", i), "add"))
	}
	at := time.Now()
	if err := <-last; err != nil {
		w.t.Error(err)
	}
	return w.gate.count() - before, time.Since(at)
}

func TestWhereManyAreUnderWayTheyAreCommittedTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		w.together(64)
		const n, apart = 40, maxLinger / 8
		sets, waited := w.oneAfterTheOther(n, apart)
		if most := int(n*apart/maxLinger) + 2; sets > most {
			t.Errorf("%d results in %v in %d change sets, want at most %d", n, n*apart, sets, most)
		}
		if waited > maxLinger {
			t.Errorf("the last waited %v", waited)
		}
	})
}

// together has n results committed with as few change sets as it takes.
func (w *world) together(n int) {
	w.gate.set(true, nil)
	for i := range n {
		w.hand(result(fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i), "add"))
	}
	settle()
	w.gate.set(false, nil)
	settle()
}

func TestWhereFewAreUnderWayNoneWaitsForOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 40
		sets, waited := w.oneAfterTheOther(n, maxLinger/8)
		if sets != n || waited > 0 {
			t.Errorf("%d results in %d change sets, and the last waited %v", n, sets, waited)
		}
	})
}
