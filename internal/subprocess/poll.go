package subprocess

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fatal marks an error that ends Poll.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal wraps an error so that Poll returns it without another try.
func Fatal(err error) error { return fatal{err} }

// Poll calls try until it returns nil, ctx ends, or the error is Fatal.
func Poll(ctx context.Context, what string, try func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if f := (fatal{}); errors.As(err, &f) {
			return f.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}
