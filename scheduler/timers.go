package scheduler

import (
	"context"
	"fmt"
	"time"

	"edda/internal/backoff"
)

// page is how many rows are handed over at once: as many as the engine takes. It makes
// several batches of them, of which one is evaluated while the last one is committed.
const page = 4096

// lookPause is the least time from a look that found something to the next. Where timers
// come due all the time, each handful has a question to the streams' server, a batch and
// a commit: what comes due within a pause shares them. It is longer than the engine rests
// between two questions, so that a handful need not wait for one.
const lookPause = 6 * time.Millisecond

// timers hands over the rows of the due index.
type timers struct {
	*Scheduler
	rest time.Time // no look before
}

// passedPause is how much longer a look rests for each row that it passed over because its
// saga is behind the streams: so looking takes a tenth of the time at most.
const passedPause = 5 * time.Microsecond

// runOnce hands over what is due, waits until it has fired, and says when the
// next row is due. While it waits nothing is handed over, so no row is twice;
// rows that come due meanwhile could not fire earlier anyway, because the
// engine fires in due order.
func (t *timers) runOnce(ctx context.Context) (time.Time, error) {
	_ = backoff.Wait(ctx, min(time.Until(t.rest), slowTick))
	now := time.Now()
	rows, next, passed, err := t.db.DueBut(now, page, t.engine.Waits)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the due index: %w", err)
	}
	if passed > 0 {
		t.rest = now.Add(lookPause + time.Duration(passed)*passedPause)
	}
	if len(rows) > 0 {
		// gofail: var schedulerDue struct{}
		if err := t.engine.Wake(ctx, rows); err != nil {
			return time.Time{}, fmt.Errorf("wake what is due: %w", err)
		}
		// gofail: var schedulerFired struct{}
		if len(rows) < page && passed == 0 {
			t.rest = now.Add(lookPause)
		}
		return now, nil // there may be more
	}
	if next.IsZero() {
		return now.Add(slowTick), nil
	}
	return next, nil
}
