package list

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/hero/redisdb"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// noticeEvery is how often the mark of changes is read: other programs do not announce
// a context or runner that they write.
const noticeEvery = 200 * time.Millisecond

// Contexts runs one loop for each context that is served.
type Contexts struct {
	DB     *redisdb.DB
	Served func(context.Context) ([]uint32, error)
	Every  time.Duration // between two calls of Served
	Pause  backoff.Exponential
	Run    func(ctx context.Context, in uint32)
	// Changed, where set, is called when a context or runner was created or changed;
	// Served is then called at once. Without it nothing is watched.
	Changed func()
	Log     *zap.Logger
}

// Serve starts loops for contexts that come, and ends those of contexts that go, until
// ctx ends and every loop has ended. A loop that ends by itself is started again.
func (s *Contexts) Serve(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	running, ended := map[uint32]context.CancelFunc{}, make(chan uint32)
	looking := logthrottle.New(s.Log, "look for contexts")
	changes := ""
	for pause := s.Pause; ctx.Err() == nil; {
		served, err := s.Served(ctx)
		if ctx.Err() == nil {
			looking.Note(err)
		}
		for _, in := range served {
			if running[in] != nil {
				continue
			}
			mine, cancel := context.WithCancel(ctx)
			running[in] = cancel
			loops.Go(func() {
				defer cancel()
				s.Run(mine, in)
				select {
				case ended <- in:
				case <-ctx.Done():
				}
			})
		}
		wait := s.Every
		if err == nil {
			pause.Reset()
			for in, cancel := range running {
				if !slices.Contains(served, in) {
					cancel()
				}
			}
		} else {
			wait = pause.Next()
		}
		s.wait(ctx, wait, &changes, func(in uint32) { delete(running, in) }, ended)
	}
}

// wait returns when a loop ends, the list of contexts changes, or the wait expires.
func (s *Contexts) wait(ctx context.Context, wait time.Duration, changes *string, forget func(uint32), ended <-chan uint32) {
	for until := time.Now().Add(wait); time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return
		case in := <-ended:
			forget(in)
			return
		case <-time.After(min(noticeEvery, time.Until(until))):
		}
		if s.Changed == nil {
			continue
		}
		if now, err := s.DB.Changes(ctx); err == nil && now != *changes {
			*changes = now
			s.Changed()
			return
		}
	}
}
