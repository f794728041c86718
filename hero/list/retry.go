package list

import (
	"context"

	"go.uber.org/zap"

	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// Retry does what must be done until it is done. It may be used concurrently.
type Retry struct {
	Pause backoff.Exponential
	Log   *logthrottle.Throttle
	// Final reports whether an error ends the trying; nil means that none does.
	Final func(error) bool
}

// Do calls do until it succeeds. It returns the error that is final, or why ctx ended.
func (r *Retry) Do(ctx context.Context, what string, do func(context.Context) error) error {
	for pause := r.Pause; ; {
		err := do(ctx)
		switch {
		case err == nil:
			if pause.Failing() {
				r.Log.Worked()
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case r.Final != nil && r.Final(err):
			return err
		}
		r.Log.Failed(err, zap.String("what", what))
		if err := r.wait(ctx, &pause); err != nil {
			return err
		}
	}
}

// wait sleeps after one more failure.
func (r *Retry) wait(ctx context.Context, pause *backoff.Exponential) error {
	return backoff.Wait(ctx, pause.Next())
}
