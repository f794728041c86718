package backoff

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDoubleUpToTheMost(t *testing.T) {
	e := Exponential{First: 50 * time.Millisecond, Most: 300 * time.Millisecond}
	if e.Failing() {
		t.Error("it fails before the first failure")
	}
	for round := range 2 {
		for n, want := range []time.Duration{50, 100, 200, 300, 300} {
			if got := e.Next(); got != want*time.Millisecond {
				t.Errorf("round %d: pause %d is %v, want %v", round, n+1, got, want*time.Millisecond)
			}
		}
		if !e.Failing() {
			t.Error("it does not fail after a failure")
		}
		e.Reset()
		if e.Failing() {
			t.Error("it fails after a reset")
		}
	}
}

func TestAPauseDoesNotOverflow(t *testing.T) {
	e := Exponential{First: 1, Most: math.MaxInt64}
	for n := range 200 {
		want := time.Duration(math.MaxInt64)
		if n <= 63 {
			want = 1 << max(n-1, 0)
		}
		if got := e.At(n); got != want {
			t.Errorf("the pause after failure %d is %d, want %d", n, got, want)
		}
	}
	if got := (Exponential{First: 24 * time.Hour, Most: 24 * time.Hour}).At(math.MaxInt); got != 24*time.Hour {
		t.Errorf("a pause that cannot grow is %v", got)
	}
}

func TestWaitSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Wait(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it slept for %v", took)
		}
		if err := Wait(t.Context(), -time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("no time at all is %v after %v", err, time.Since(began))
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := Wait(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it slept for %v", took)
		}
		for _, d := range []time.Duration{0, time.Hour} {
			if err := Wait(ctx, d); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("a wait of %v that begins after the end returns %v after %v", d, err, time.Since(began))
			}
		}
	})
}
