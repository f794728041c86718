package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
)

const (
	// fetchMost bounds one fetch: half a batch, so that the next half is read
	// while this one waits.
	fetchMost = maxBatch / 2
	// fetchWait bounds one fetch in time. A fetch is never cut short, because
	// what it had already taken would come again behind what follows; so this
	// is also how long a drain may wait for the intake.
	fetchWait = 250 * time.Millisecond
	// intakeDepth is how many fetches may wait for the evaluator: enough for a
	// full batch. With the batch in hand and those that commit it bounds the
	// events in memory.
	intakeDepth = 2

	// A source that fails is tried again after these.
	fetchBackoff    = 100 * time.Millisecond
	fetchBackoffMax = 5 * time.Second
)

// intake reads the source, drops what was read before, and hands the rest to
// the evaluator.
type intake struct {
	*Engine
	read     map[string]uint64 // owned by run: the last sequence taken, by stream
	out      chan Fetched      // closed when there will be no more
	backoff  backoff.Exponential
	pressure backpressure
}

func newIntake(e *Engine, positions []edda.Checkpoint) *intake {
	in := &intake{
		Engine: e, read: map[string]uint64{}, out: make(chan Fetched, intakeDepth),
		backoff:  backoff.Exponential{First: fetchBackoff, Most: fetchBackoffMax},
		pressure: backpressure{Engine: e},
	}
	for _, p := range positions {
		in.read[p.Stream] = p.Seq
	}
	return in
}

func (in *intake) run(ctx context.Context) error {
	defer close(in.out)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-in.halt:
			return nil
		default:
			in.runOnce(ctx)
		}
	}
}

func (in *intake) runOnce(ctx context.Context) {
	in.pressure.look(ctx)
	got, err := in.source.Fetch(ctx, fetchMost, fetchWait)
	if got.Events = in.drop(got.Events); len(got.Events) > 0 {
		// gofail: var engineFetched struct{}
		in.hand(ctx, got)
	}
	if err != nil && ctx.Err() == nil {
		in.pause(ctx, err)
		return
	}
	in.backoff.Reset()
}

// hand waits until the evaluator has room.
func (in *intake) hand(ctx context.Context, got Fetched) {
	select {
	case in.out <- got:
	case <-ctx.Done():
	}
}

// pause logs the first failure of a row of them and waits.
func (in *intake) pause(ctx context.Context, err error) {
	if !in.backoff.Failing() {
		in.log.Warn("fetch from the streams failed, trying again", zap.Error(err))
	}
	t := time.NewTimer(in.backoff.Next())
	defer t.Stop()
	select {
	case <-t.C:
	case <-in.halt:
	case <-ctx.Done():
	}
}

// drop keeps what was not read before and moves the read position.
func (in *intake) drop(events []edda.Event) []edda.Event {
	fresh := events[:0]
	for _, ev := range events {
		if ev.Stream == "" { // it has no place in a stream that it could have been read at
			fresh = append(fresh, ev)
			continue
		}
		if ev.Seq <= in.read[ev.Stream] {
			in.metrics.fate("", edda.FateDuplicate)
			continue
		}
		in.read[ev.Stream] = ev.Seq
		fresh = append(fresh, ev)
	}
	return fresh
}
