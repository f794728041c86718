package scheduler

import (
	"context"
	"fmt"
	"time"

	"edda/internal/backoff"
)

// page bounds the rows handed over at once: as many as the engine accepts. The engine makes
// several batches of them, and evaluates one while it commits the last.
const page = 4096

// lookPause is the least time from a look that found rows to the next. When timers come due all
// the time, each look costs a question to the streams' server, a batch and a commit. Timers that
// come due within the pause share them. The pause is longer than the engine's between two
// questions, so that a few timers need not wait for one.
const lookPause = 6 * time.Millisecond

// timers hands the rows of the due index to the engine.
type timers struct {
	*Scheduler
	nextLook time.Time // the earliest time of the next look
}

// passedPause lengthens the pause for each row that a look passed over because its saga is behind
// the streams. So looking takes a tenth of the time at most.
const passedPause = 5 * time.Microsecond

// runOnce hands over what is due, waits until the engine has fired it, and returns the time of the
// next row. It hands over nothing while it waits, so no row goes twice. Rows that come due
// meanwhile could not fire earlier, because the engine fires in due order.
func (t *timers) runOnce(ctx context.Context) (time.Time, error) {
	_ = backoff.Wait(ctx, min(time.Until(t.nextLook), slowTick))
	now := time.Now()
	rows, next, passed, err := t.db.DueBut(now, page, t.engine.Waits)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the due index: %w", err)
	}
	if passed > 0 {
		t.nextLook = now.Add(lookPause + time.Duration(passed)*passedPause)
	}
	if len(rows) > 0 {
		// gofail: var schedulerDue struct{}
		if err := t.engine.Wake(ctx, rows); err != nil {
			return time.Time{}, fmt.Errorf("wake what is due: %w", err)
		}
		// gofail: var schedulerFired struct{}
		if len(rows) < page && passed == 0 {
			t.nextLook = now.Add(lookPause)
		}
		return now, nil // there may be more
	}
	if next.IsZero() {
		return now.Add(slowTick), nil
	}
	return next, nil
}
