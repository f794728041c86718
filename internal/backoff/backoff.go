// Package backoff paces loops that try again: pauses that double, and a sleep that
// ends with its context. It decides nothing: whether to try again is its caller's to say.
package backoff

import (
	"context"
	"time"
)

// Exponential says how long to wait after each failure in a row: First, twice as long
// each time, and at most Most. Its methods may not be called concurrently.
type Exponential struct {
	First, Most time.Duration // First is positive, and at most Most
	failures    int
}

// Next counts a failure and returns the pause after it.
func (e *Exponential) Next() time.Duration {
	e.failures++
	return e.At(e.failures)
}

// At returns the pause after the nth failure in a row, counted from 1.
func (e Exponential) At(n int) time.Duration {
	doublings := max(n-1, 0)
	if e.First > e.Most>>doublings {
		return e.Most
	}
	return e.First << doublings
}

// Failing reports whether Next was called since Reset.
func (e *Exponential) Failing() bool { return e.failures > 0 }

// Reset begins a new row of failures: the next pause is First.
func (e *Exponential) Reset() { e.failures = 0 }

// Wait sleeps for d, and returns ctx's error where ctx ends before.
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
