package engine

import (
	"fmt"
	"testing"
	"time"
)

func TestBatchLingersUpToTheExpectedSize(t *testing.T) {
	begun := time.Unix(0, 0)
	soon, late := begun.Add(maxLinger/2), begun.Add(maxLinger)
	for name, c := range map[string]struct {
		expected, batches, n int
		now                  time.Time
		want                 bool
	}{
		"fewer than expected":         {expected: 10, batches: 1, n: 9, now: soon, want: true},
		"as many as expected":         {expected: 10, batches: 1, n: 10, now: soon},
		"as many, probe":              {expected: 10, batches: probeEvery, n: 10, now: soon, want: true},
		"fewer, linger over":          {expected: 10, batches: 1, n: 9, now: late},
		"low load":                    {expected: minExpected - 1, batches: 1, n: 1, now: soon},
		"low load, probe":             {expected: minExpected - 1, batches: probeEvery, n: 1, now: soon},
		"as many, probe, linger over": {expected: 10, batches: probeEvery, n: 10, now: late},
	} {
		t.Run(name, func(t *testing.T) {
			k := newLinger()
			defer k.timer.Stop()
			k.expected, k.batches, k.begun = c.expected, c.batches, begun
			if got := k.waits(c.n, c.now); got != c.want {
				t.Errorf("lingers: %v", got)
			}
		})
	}
}

func TestExpectedSizeDecaysAndGrows(t *testing.T) {
	c := newLinger()
	defer c.timer.Stop()
	c.begin(256, time.Time{})
	if c.expected != 256 {
		t.Fatalf("expected after a batch of 256: %d", c.expected)
	}
	batches := 0
	for ; c.expected >= minExpected; batches++ {
		c.begin(1, time.Time{})
	}
	if most := 40; batches > most {
		t.Errorf("single inputs linger for %d batches, want at most %d", batches, most)
	}
	for range 10 {
		c.begin(1, time.Time{})
	}
	if c.expected != 1 {
		t.Errorf("expected with single inputs: %d", c.expected)
	}
}

// handOneByOne hands in n results, apart from each other. It returns in how many change sets they
// commit, and how long the last one waits.
func (w *world) handOneByOne(n int, apart time.Duration) (sets int, waited time.Duration) {
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

func TestLingerGroupsInputsUnderLoad(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handTogether(64)
		const n, apart = 40, maxLinger / 8
		sets, waited := w.handOneByOne(n, apart)
		if most := int(n*apart/maxLinger) + 2; sets > most {
			t.Errorf("%d results in %v in %d change sets, want at most %d", n, n*apart, sets, most)
		}
		if waited > maxLinger {
			t.Errorf("the last waited %v", waited)
		}
	})
}

// handTogether makes n results commit in as few change sets as possible.
func (w *world) handTogether(n int) {
	w.gate.set(true, nil)
	for i := range n {
		w.hand(result(fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i), "add"))
	}
	settle()
	w.gate.set(false, nil)
	settle()
}

func TestNoLingerAtLowLoad(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 40
		sets, waited := w.handOneByOne(n, maxLinger/8)
		if sets != n || waited > 0 {
			t.Errorf("%d results in %d change sets, and the last waited %v", n, sets, waited)
		}
	})
}
