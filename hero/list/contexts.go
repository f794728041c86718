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

// noticeEvery is the interval between two reads of the change counter. Other programs
// write contexts and runners without any announcement.
const noticeEvery = 200 * time.Millisecond

// Contexts runs one loop for each context that is served.
type Contexts struct {
	DB     *redisdb.DB
	Served func(context.Context) ([]uint32, error)
	Every  time.Duration // between two calls of Served
	Pause  backoff.Exponential
	Run    func(ctx context.Context, l *Loop)
	// Changed, where set, is called when a context or runner was created or changed;
	// Served is called directly afterwards. Without Changed nothing is watched.
	Changed func()
	What    string // the name of the loops' retried steps in the log
	Log     *zap.Logger
}

// Serve starts a loop for each context that Served adds, and cancels the loop of each that
// it drops. A loop that returns is started again. Serve returns after ctx has ended and
// every loop has returned.
func (s *Contexts) Serve(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	running, ended := map[uint32]context.CancelFunc{}, make(chan uint32)
	looking := logthrottle.New(s.Log, "look for contexts")
	changes := ""
	for pause := s.Pause; ctx.Err() == nil; {
		served, err := s.Served(ctx)
		for in, cancel := range running {
			if err == nil && !slices.Contains(served, in) {
				cancel()
			}
		}
		for _, in := range served {
			if running[in] != nil {
				continue
			}
			l, failed := NewLoop(s.DB, in, s.Pause, s.Log, s.What)
			if failed != nil {
				err = failed
				continue
			}
			mine, cancel := context.WithCancel(ctx)
			running[in] = cancel
			loops.Go(func() {
				defer cancel()
				s.Run(mine, l)
				select {
				case ended <- in:
				case <-ctx.Done():
				}
			})
		}
		if ctx.Err() == nil {
			looking.Note(err)
		}
		wait := s.Every
		if err == nil {
			pause.Reset()
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
