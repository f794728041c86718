package list

import (
	"context"
	"time"

	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// Every calls do at once and then once per interval, until ctx ends. After an error it
// waits as pause says instead. The throttle logs the errors.
func Every(ctx context.Context, interval time.Duration, pause backoff.Exponential, log *logthrottle.Throttle, do func(context.Context) error) {
	for ctx.Err() == nil {
		next := time.Now().Add(interval)
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		log.Note(err)
		if err == nil {
			pause.Reset()
		} else {
			next = time.Now().Add(pause.Next())
		}
		_ = backoff.Wait(ctx, time.Until(next))
	}
}
