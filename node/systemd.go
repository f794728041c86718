package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"edda/internal/backoff"
)

// systemd reports the state of this program to systemd, and does nothing where systemd does not
// supervise it. It outlives a process that stops in order and starts anew. It is safe for
// concurrent use.
type systemd struct {
	log  *zap.Logger
	send func(state string) error
	// alive has the loops of the running process; nil while there is none.
	alive atomic.Pointer[liveness]

	mu    sync.Mutex // guards the fields below
	ready bool       // READY=1 was sent, and no stop has begun since
	parts []*systemd // of a node with several shards
}

func newSystemd(log *zap.Logger) *systemd {
	return &systemd{log: log, send: func(state string) error {
		_, err := daemon.SdNotify(false, state)
		return err
	}}
}

// running reports that all parts have started.
func (s *systemd) running() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = true
	s.tell(daemon.SdNotifyReady + "\nSTATUS=running")
}

// reload calls do, which reports whether the reload was taken in. systemd waits for its end
// with Type=notify-reload, and shows its outcome. A reload before the start or after the
// begin of a stop is not told, because READY=1 would claim that the process runs.
func (s *systemd) reload(do func() bool) {
	s.whileReady("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec() + "STATUS=reloading")
	status := "running"
	if !do() {
		status = "running; the last reload was not taken in, the log says why"
	}
	s.whileReady(daemon.SdNotifyReady + "\nSTATUS=" + status)
}

// restarting reports that the process stops in order and starts anew.
func (s *systemd) restarting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
	s.tell("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec() + "STATUS=stopped in order, and starting anew")
}

// stopping reports that the stop begins.
func (s *systemd) stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
	s.tell(daemon.SdNotifyStopping + "\nSTATUS=stopping in stages")
}

func (s *systemd) whileReady(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		s.tell(state)
	}
}

// tell sends a state. A state that systemd does not get must not stop the process.
func (s *systemd) tell(state string) {
	if err := s.send(state); err != nil {
		s.log.Warn("systemd is not told", zap.Error(err))
	}
}

// feed feeds the watchdog of systemd until ctx ends: twice in its interval, and only while
// the loops answer. It returns at once if there is no watchdog.
func (s *systemd) feed(ctx context.Context) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("the watchdog of systemd is not fed", zap.Error(err))
	}
	if within > 0 {
		s.feedEvery(ctx, within/2)
	}
}

func (s *systemd) feedEvery(ctx context.Context, interval time.Duration) {
	hungry := ""
	for backoff.Wait(ctx, interval) == nil {
		stuck := s.stuck()
		if stuck == "" {
			s.tell(daemon.SdNotifyWatchdog)
		} else if hungry == "" {
			s.log.Error("the watchdog of systemd is not fed: systemd will end the process", zap.String("problem", stuck))
		}
		hungry = stuck
	}
}

// stuck says which loop does not answer; empty if all do.
func (s *systemd) stuck() string {
	if l := s.alive.Load(); l != nil {
		return l.stuck()
	}
	s.mu.Lock()
	parts := s.parts
	s.mu.Unlock()
	for i, part := range parts {
		if stuck := part.stuck(); stuck != "" {
			return fmt.Sprintf("shard %d: %s", i, stuck)
		}
	}
	return ""
}

// newSystemdParts are what the shards of a node tell systemd: together they are ready when each is.
func newSystemdParts(whole *systemd, n int) []*systemd {
	var mu sync.Mutex
	ready := map[int]bool{}
	parts := make([]*systemd, n)
	for i := range parts {
		parts[i] = &systemd{log: whole.log, send: func(state string) error {
			mu.Lock()
			defer mu.Unlock()
			before := len(ready)
			if strings.HasPrefix(state, daemon.SdNotifyReady) {
				ready[i] = true
			}
			if len(ready) == n && before < n {
				whole.running()
			}
			return nil
		}}
	}
	whole.mu.Lock()
	whole.parts = parts
	whole.mu.Unlock()
	return parts
}
