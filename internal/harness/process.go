// Package harness drives binaries of Edda for the demos, the benchmark and the system
// tests. It starts processes, waits until they are ready, sends events, hears the facts
// that end sagas, reads metrics, and stops, kills and restarts the processes.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// stopFor is how long a process may take to drain.
	stopFor = 15 * time.Second
	// tailBytes bounds the part of a log that an error quotes.
	tailBytes = 2000
)

// Binary returns the absolute path of a program, because a process may have another
// working directory.
func Binary(path string) (string, error) {
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("the binary under test: %w; make build builds bin/edda", err)
	}
	return filepath.Abs(found)
}

// Environ returns the environment of this process without the variables that would
// connect a subprocess to other servers, or configure it.
func Environ(more ...string) []string { return append(clean(os.Environ()), more...) }

func clean(environ []string) []string {
	return slices.DeleteFunc(environ, func(line string) bool {
		return slices.ContainsFunc([]string{"EDDA_", "NATS_", "REDIS_", "OTEL_", "COORDINATOR_URL=", "MYCELIUM_URL="}, func(prefix string) bool {
			return strings.HasPrefix(line, prefix)
		})
	})
}

// Process is one subprocess. Its methods must not be called concurrently, but for Ended.
type Process struct {
	Cmd *exec.Cmd // of the last Start

	name   string
	log    string // file
	make   func() *exec.Cmd
	ended  chan struct{} // closed when the process of the last Start has ended
	err    error         // how it ended; read it after ended
	killed bool          // by Kill
}

// New prepares a process. Errors use its name, as in "the runner". Every Start calls make
// for a new command. The log file gets the output, unless make sets Stdout.
func New(name, log string, make func() *exec.Cmd) *Process {
	return &Process{name: name, log: log, make: make}
}

// Start starts or restarts the process. The kernel kills it when this process ends, even
// by SIGKILL.
func (p *Process) Start() (err error) {
	cmd := p.make()
	var log *os.File
	if cmd.Stdout == nil {
		if log, err = os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("open the log of %s: %w", p.name, err)
		}
		cmd.Stdout, cmd.Stderr = log, log
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer log.Close() // a nil file is no harm
		// The kernel sends the parent-death signal when the starting thread ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.Cmd, p.ended, p.killed = cmd, ended, false
	return nil
}

// PID returns the id of the started process.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Ended returns a channel that is closed when the started process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Until polls ready until it returns nil. It fails after the duration within, or when
// the process ends.
func (p *Process) Until(ctx context.Context, within time.Duration, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return Poll(ctx, p.name+" to be ready", func() error {
		select {
		case <-p.ended:
			return Fatal(fmt.Errorf("%s ended at once (%v):\n%s", p.name, p.err, p.Tail()))
		default:
			return ready()
		}
	})
}

// Tail returns the last bytes of the log; empty if the log cannot be read.
func (p *Process) Tail() string {
	text, _ := os.ReadFile(p.log) // Tail only adds to another error
	return string(text[max(0, len(text)-tailBytes):])
}

// Kill kills the process with SIGKILL, unless it has ended, and waits for its end.
func (p *Process) Kill() {
	if p.Cmd != nil {
		p.killed = true
		_ = p.Cmd.Process.Kill() // it may have ended
		<-p.ended
	}
}

// Stop sends SIGTERM and waits for the end. After 15 seconds it kills the process
// and returns an error. It does nothing after Kill and before Start.
func (p *Process) Stop() error {
	if p.Cmd == nil || p.killed {
		return nil
	}
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(stopFor):
		p.Kill()
		return fmt.Errorf("%s did not end within %s of being asked to", p.name, stopFor)
	}
	if p.err != nil {
		return fmt.Errorf("%s did not end well: %w\n%s", p.name, p.err, p.Tail())
	}
	return nil
}
