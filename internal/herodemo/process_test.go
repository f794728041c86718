package herodemo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestAProcessThatEndsAtOnceIsShownWithItsLog(t *testing.T) {
	r := &run{dir: t.TempDir()}
	p := r.child("runner", "/bin/sh", nil, "-c", "echo no disk left; exit 3")
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	err := p.until(t.Context(), func() error { return errors.New("not ready") })
	if err == nil || !strings.Contains(err.Error(), "the runner ended at once (exit status 3)") || !strings.Contains(err.Error(), "no disk left") {
		t.Errorf("%v", err)
	}
	if err := p.stop(); err == nil {
		t.Error("a process that ended badly is not told of")
	}
}

func TestAKilledProcessIsStartedAgainAndStopped(t *testing.T) {
	r := &run{dir: t.TempDir()}
	p := r.child("runner", "/bin/sh", []string{"WORD=hello"}, "-c", "trap 'exit 0' TERM; echo $WORD; while :; do sleep 0.05; done")
	for times := range 2 {
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		if err := p.until(t.Context(), func() error {
			if strings.Count(p.tail(), "hello") <= times {
				return errors.New("silent")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if times == 0 {
			if err := p.kill(); err != nil {
				t.Fatal(err)
			}
			if err := p.stop(); err != nil { // there is nothing to stop
				t.Fatal(err)
			}
		}
	}
	pid := p.cmd.Process.Pid
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it is still there: %v", err)
	}
}

// An interrupted run says so, and leaves nothing behind.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := Run(ctx, Options{Edda: "/bin/false", Out: &out, Embedded: true})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
