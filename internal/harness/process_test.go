package harness

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell is the process of a line of shell.
func shell(t *testing.T, line string) *Process {
	return New("the runner", filepath.Join(t.TempDir(), "log"), func() *exec.Cmd { return exec.Command("/bin/sh", "-c", line) })
}

func TestAProcessThatEndsAtOnceIsShownWithItsLog(t *testing.T) {
	p := shell(t, "echo no disk left; exit 3")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	err := p.Until(t.Context(), time.Minute, func() error { return errors.New("not ready") })
	if err == nil || !strings.Contains(err.Error(), "the runner ended at once (exit status 3)") || !strings.Contains(err.Error(), "no disk left") {
		t.Errorf("%v", err)
	}
	if err := p.Stop(); err == nil {
		t.Error("a process that ended badly is not told of")
	}
}

func TestAKilledProcessIsStartedAgainAndStopped(t *testing.T) {
	p := shell(t, "trap 'exit 0' TERM; echo hello; while :; do sleep 0.05; done")
	for times := range 2 {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Until(t.Context(), time.Minute, func() error {
			if strings.Count(p.Tail(), "hello") <= times {
				return errors.New("silent")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if times == 0 {
			p.Kill()
			if err := p.Stop(); err != nil { // there is nothing to stop
				t.Fatal(err)
			}
		}
	}
	pid := p.PID()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestAPollEndsWhereTryingAgainDoesNotHelp(t *testing.T) {
	broken := errors.New("broken")
	tries := 0
	err := Poll(t.Context(), "it", func() error {
		if tries++; tries == 1 {
			return errors.New("not yet")
		}
		return fmt.Errorf("try: %w", Fatal(broken))
	})
	if err != broken || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Poll(ctx, "it", func() error { return broken }); !errors.Is(err, broken) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestNothingPointsTheSubprocessesElsewhere(t *testing.T) {
	got := clean([]string{"PATH=/bin", "EDDA_REDIS=x", "NATS_URL=x", "REDIS_URL=x", "COORDINATOR_URL=x", "MYCELIUM_URL=x", "HOME=/"})
	if strings.Join(got, " ") != "PATH=/bin HOME=/" {
		t.Errorf("%v", got)
	}
}
