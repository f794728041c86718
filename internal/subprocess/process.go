// Package subprocess runs the processes of the demos and the benchmark. It appends
// their output to a log, waits until they are ready, stops, kills and restarts them.
package subprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	// stopFor is how long a process may take to drain.
	stopFor = 15 * time.Second
	// pollEvery is how often Poll tries.
	pollEvery = 100 * time.Millisecond
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

// Process is one subprocess. Its methods must not be called concurrently.
type Process struct {
	name string
	log  string // file
	make func() *exec.Cmd
	cmd  *exec.Cmd
	done chan error // receives the exit status once
}

// New prepares a process. Errors use its name, as in "the runner"; the file log gets
// its output. Every Start calls make for a new command.
func New(name, log string, make func() *exec.Cmd) *Process {
	return &Process{name: name, log: log, make: make}
}

// Start starts or restarts the process. A goroutine keeps the thread that started it
// until the process ends, because the kernel sends the parent-death signal when that
// thread ends.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	cmd, started, done := p.make(), make(chan error, 1), make(chan error, 1)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
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

// dieWithParent has the kernel kill the process when its parent ends, even by SIGKILL.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// PID returns the id of the running process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Until polls ready until it returns nil. It fails after the duration within, or when
// the process ends.
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

// Tail returns the last bytes of the log; empty if the log cannot be read.
func (p *Process) Tail() string {
	text, _ := os.ReadFile(p.log) // Tail only adds to another error
	return string(text[max(0, len(text)-tailBytes):])
}

// Kill kills the process with SIGKILL and waits for its end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	p.cmd = nil
	return nil
}

// Stop sends SIGTERM and waits for the end. After 15 seconds it kills the process
// and returns an error. It does nothing when no process runs.
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
