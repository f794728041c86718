package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// told is a systemd that keeps the first line of each state it is sent.
func told() (*systemd, *[]string) {
	var states []string
	return &systemd{log: zap.NewNop(), send: func(state string) error {
		first, _, _ := strings.Cut(state, "\n")
		states = append(states, first)
		return errors.New("nobody listens") // it must not matter
	}}, &states
}

func TestTheWatchdogIsFedOnlyWhileTheLoopsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, states := told()
		free := make(chan struct{})
		l := newLiveness(checkedLoop{name: "the committer", ask: func(context.Context) error { <-free; return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- l.Run(ctx) }()
		go func() { s.feedEvery(ctx, 15*time.Second); ended <- nil }()
		fed := func(after time.Duration) (n int) {
			time.Sleep(after) // virtual
			synctest.Wait()
			n, *states = len(*states), nil
			return n
		}
		if n := fed(31 * time.Second); n != 2 {
			t.Errorf("without a process it was fed %d times in 31 s", n)
		}
		s.alive.Store(l)
		if n := fed(30 * time.Second); n != 2 {
			t.Errorf("before the loop is stuck it was fed %d times in 30 s", n)
		}
		fed(stuckAfter)
		if n := fed(time.Hour); n != 0 {
			t.Errorf("while the loop is stuck it was fed %d times", n)
		}
		close(free)
		if n := fed(30 * time.Second); n != 2 {
			t.Errorf("after the loop went on it was fed %d times in 30 s", n)
		}
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
}

func TestAReloadClaimsReadinessOnlyWhileTheProcessRuns(t *testing.T) {
	t.Parallel()
	s, states := told()
	reload := func() { s.reload(func() bool { return true }) }
	reload() // during the start
	s.running()
	reload()
	s.restarting()
	reload()
	s.running()
	s.reload(func() bool { s.stopping(); return false })
	reload()
	want := []string{"READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "STOPPING=1"}
	if !slices.Equal(*states, want) {
		t.Errorf("systemd is told %v, want %v", *states, want)
	}
}
