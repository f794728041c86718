// Package cli is the command line of Edda: its commands, their flags, completion and output.
// A command that runs a process hands its settings to package node. A command on a running
// process calls its API. A command on a store opens the file if no process holds it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"edda/node"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// exitDiffers: a dry run of a replay found instances with another result.
	exitDiffers = 3
)

// Main runs the command line of this process and returns its exit code. SIGINT and SIGTERM
// stop the command in stages; a second one exits at once.
func Main(version string) int {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go stopOn(signals, cancel)
	t := &terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ(), version: version}
	return t.run(ctx, os.Args[1:])
}

// stopOn starts the staged stop on the first signal and exits on the second.
func stopOn(signals <-chan os.Signal, cancel context.CancelFunc) {
	<-signals
	cancel()
	<-signals
	fmt.Fprintln(os.Stderr, "edda: stopped at once; what was in flight is settled at the next start")
	os.Exit(exitFailed)
}

// terminal holds the streams and the environment of a command.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	env      []string
	version  string // of this program
}

// run executes one command line and returns the exit code.
func (t *terminal) run(ctx context.Context, args []string) int {
	root := t.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	var config *node.ConfigError
	var silent *silentError
	var differs *differsError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &differs):
		return exitDiffers
	case errors.As(err, &silent):
		return exitFailed
	case errors.As(err, &usage), errors.As(err, &config):
		t.complain(err)
		return exitUsage
	}
	t.complain(err)
	return exitFailed
}

func (t *terminal) complain(err error) {
	fmt.Fprintf(t.err, "edda: %v\n", err)
}

// usageError is an invalid command line: exit code 2, as for a [node.ConfigError].
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// differsError ends a dry run that found and printed instances with another result: exit
// code 3.
type differsError struct{}

func (*differsError) Error() string { return "instances differ" }

// silentError is a failure that is already printed: exit code 1.
type silentError struct{}

func (*silentError) Error() string { return "failed" }
