// Command edda runs durable sagas, and is the tool to write, test and operate them. It holds
// flags, configuration and wiring. It is the only package that imports all others.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// exitDiffers: a dry run of a replay found instances with another result.
	exitDiffers = 3
)

func main() {
	ballast := paceCollector(os.Getenv)
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go stopOn(signals, cancel)
	t := &terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ()}
	code := t.run(ctx, os.Args[1:])
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

const (
	// gcPercent is Edda's GOGC: half as much garbage as is live.
	gcPercent = 50
	// gcBallast counts as live, and is never touched, so that it takes no memory: with
	// little live the collector would else run every few megabytes.
	gcBallast = 64 << 20
)

// paceCollector has the collector run when there is garbage of half of what is live and
// 32 MiB. It does nothing where GOGC or GOMEMLIMIT is set. The caller keeps the ballast
// alive.
func paceCollector(getenv func(string) string) (ballast []byte) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return nil
	}
	debug.SetGCPercent(gcPercent)
	return make([]byte, gcBallast)
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
}

// run executes one command line and returns the exit code.
func (t *terminal) run(ctx context.Context, args []string) int {
	root := t.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	var silent *silentError
	var differs *differsError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &differs):
		return exitDiffers
	case errors.As(err, &silent):
		return exitFailed
	case errors.As(err, &usage):
		t.complain(err)
		return exitUsage
	}
	t.complain(err)
	return exitFailed
}

func (t *terminal) complain(err error) {
	fmt.Fprintf(t.err, "edda: %v\n", err)
}

// usageError is an invalid command line or configuration: exit code 2.
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
