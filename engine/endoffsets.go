package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"edda/internal/backoff"
)

const (
	// pollEvery is the slow tick: how old the known ends may become. It is
	// also how soon the horizon notices that a message it waits for is gone.
	pollEvery = time.Second
	// pollTimeout bounds one look at the streams.
	pollTimeout = 5 * time.Second
	// pollPause is the least time between two looks. Where the clock was
	// stepped back, what is handed in as due is not due yet, and each look asks
	// for the next one; and a timer may well be this late.
	pollPause = 5 * time.Millisecond
	// pollRetry is the pause after a failed look.
	pollRetry = 100 * time.Millisecond
)

// endOffsets is what the ends of the streams were; everything stored before at is
// at or before them.
type endOffsets struct {
	at   time.Time
	ends []End
}

// endPoller looks at the ends of the streams, when asked and on a slow tick.
type endPoller struct {
	*Engine
	asked   chan struct{}
	failing bool // owned by run
}

func newEndPoller(e *Engine) *endPoller {
	return &endPoller{Engine: e, asked: make(chan struct{}, 1)}
}

// ask wants a survey that begins after this call. It does not block.
func (s *endPoller) ask() {
	select {
	case s.asked <- struct{}{}:
	default: // the one asked for has not begun
	}
}

func (s *endPoller) run(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	s.ask()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.asked:
		case <-tick.C:
		}
		s.runOnce(ctx)
		_ = backoff.Wait(ctx, pollPause)
	}
}

func (s *endPoller) runOnce(ctx context.Context) {
	look, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	at := time.Now()
	ends, err := s.source.Ends(look)
	if err != nil {
		s.pause(ctx, err)
		return
	}
	s.failing = false
	s.status.surveyed(ends)
	_ = s.post(ctx, func(v *loop) { v.endsKnown(endOffsets{at, ends}) }) // fails only when the engine stops
}

// pause logs the first failure of a row of them, and asks again after a while.
func (s *endPoller) pause(ctx context.Context, err error) {
	if ctx.Err() == nil && !s.failing {
		s.log.Warn("look at the ends of the streams failed, trying again", zap.Error(err))
	}
	s.failing = true
	_ = backoff.Wait(ctx, pollRetry)
	s.ask()
}
