// Package child is a process that a demo starts: its output goes to a log, it is
// waited for until it is ready, and it is stopped or killed, and started again.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// stopFor bounds how long a process may take to drain.
	stopFor = 15 * time.Second
	// pollEvery is how often Poll tries.
	pollEvery = 100 * time.Millisecond
	// tailBytes is how much of a log an error tells.
	tailBytes = 2000
)

// Process is a child. Its methods are called one after another.
type Process struct {
	name string
	log  string // file
	make func() *exec.Cmd
	cmd  *exec.Cmd
	done chan error // its end, once
}

// New prepares a process; errors call it by its name, as in "the runner". Its
// output is appended to the file log.
func New(name, log string, make func() *exec.Cmd) *Process {
	return &Process{name: name, log: log, make: make}
}

// Start starts the process, for the first time or again. Its thread stays until it
// has ended: the kernel ends a child that is to go with its parent with the thread
// that started it.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	cmd, started, done := p.make(), make(chan error, 1), make(chan error, 1)
	cmd.Stdout, cmd.Stderr = log, log
	goesAlong(cmd)
	go func() {
		defer log.Close()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// goesAlong has the kernel end the process when the one that started it ends, however that is.
func goesAlong(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// PID is the running process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Until waits, for so long, until the process does what it was started for.
func (p *Process) Until(ctx context.Context, within time.Duration, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return Poll(ctx, p.name+" to be ready", func() error {
		select {
		case err := <-p.done:
			p.done <- err
			return Fatal(fmt.Errorf("%s ended at once (%v):\n%s", p.name, err, p.Tail()))
		default:
			return ready()
		}
	})
}

// Tail is the end of the process's log.
func (p *Process) Tail() string {
	text, _ := os.ReadFile(p.log) // a log that cannot be read tells nothing
	return string(text[max(0, len(text)-tailBytes):])
}

// Kill ends the process as a power cut does.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	p.cmd = nil
	return nil
}

// Stop asks the process to end, where it runs, and waits for it.
func (p *Process) Stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("%s did not end well: %w\n%s", p.name, err, p.Tail())
		}
		return nil
	case <-time.After(stopFor):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %s of being asked to", p.name, stopFor)
	}
}
