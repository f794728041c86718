package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"edda/internal/backoff"
)

const (
	// pollEvery bounds the age of the known end offsets, and the time until the watermark
	// notices that a message it waits for has expired.
	pollEvery = time.Second
	// pollTimeout bounds one request for the end offsets.
	pollTimeout = 5 * time.Second
	// pollPause is the least time between two requests. After the clock was stepped back, a
	// row that was woken is not due yet, and each answer leads to the next request. A timer
	// may be this late.
	pollPause = 5 * time.Millisecond
	// pollRetry is the pause after a failed request.
	pollRetry = 100 * time.Millisecond
)

// endOffsets are the ends of the streams. They cover everything stored before at.
type endOffsets struct {
	at   time.Time
	ends []End
}

// endPoller asks the source for the end offsets, on request and every pollEvery.
type endPoller struct {
	*Engine
	asked   chan struct{}
	failing bool // owned by run
}

func newEndPoller(e *Engine) *endPoller {
	return &endPoller{Engine: e, asked: make(chan struct{}, 1)}
}

// ask requests end offsets that are taken after this call. It does not block.
func (s *endPoller) ask() { signal(s.asked) }

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
	request, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	at := time.Now()
	ends, err := s.source.Ends(request)
	if err != nil {
		if ctx.Err() == nil && !s.failing { // log the first failure only
			s.log.Warn("reading the end offsets of the streams failed, trying again", zap.Error(err))
		}
		s.failing = true
		_ = backoff.Wait(ctx, pollRetry)
		s.ask()
		return
	}
	s.failing = false
	s.status.setEnds(ends)
	_ = s.post(ctx, func(v *loop) { v.endsKnown(endOffsets{at, ends}) }) // fails only when the engine stops
}
