// Package backoff paces retry loops: delays that double, and a sleep that ends with its
// context. The caller decides whether to retry.
package backoff

import (
	"context"
	"time"
)

// Exponential computes the delay after each consecutive failure. It starts at First,
// doubles each time and never exceeds Most. It is not safe for concurrent use.
type Exponential struct {
	First, Most time.Duration // First is positive, and at most Most
	failures    int
}

// Next counts a failure and returns the delay after it.
func (e *Exponential) Next() time.Duration {
	e.failures++
	return e.At(e.failures)
}

// At returns the delay after the nth consecutive failure, counted from 1.
func (e Exponential) At(n int) time.Duration {
	doublings := max(n-1, 0)
	if e.First > e.Most>>doublings {
		return e.Most
	}
	return e.First << doublings
}

// Failing reports whether Next was called since Reset.
func (e *Exponential) Failing() bool { return e.failures > 0 }

// Reset clears the failures. The next delay is First.
func (e *Exponential) Reset() { e.failures = 0 }

// Wait sleeps for d. It returns ctx's error if ctx ends first.
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
