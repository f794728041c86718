package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"edda/hero"
	"edda/hero/script"
)

// Executor runs one script. It returns soon after ctx ends, and leaves nothing
// running. It is called by many goroutines at once.
type Executor interface {
	// Execute runs the job's script in j.Timeout seconds at most, where that is
	// not 0, and passes on each line that the script writes.
	Execute(ctx context.Context, j Job, line func(string)) Outcome
}

// Outcome is how a run ended.
type Outcome struct {
	OK     bool
	Output string
	// Error says why it is not OK: "timeout", or in words.
	Error string
	// Final tells that another run would end the same way: retries are not used.
	Final bool
}

// The causes for which a run is ended from outside.
var (
	errStopped  = script.ErrStopped
	errStopping = errors.New("the worker stops")
	errLost     = errors.New("the job was given to another worker")
	errTimeout  = errors.New(ErrorTimeout)
)

// lateBy is how long after its timeout a run is ended by us, where the executor
// has not ended it by itself; it may give a script time to clear up.
const lateBy = 15 * time.Second

// result is a run that ended and waits to be recorded.
type result struct {
	id      string
	attempt string
	how     string // finished, error or release
	retry   bool
	text    string // why, where it is an error
	output  string
	took    time.Duration
}

// execute runs one job to its end.
func (w *Worker) execute(ctx context.Context, j Job, attempt string) result {
	began := time.Now()
	log, err := w.keeper.open(j.LogPath)
	if err != nil {
		return result{id: j.ID, attempt: attempt, how: string(hero.JobError), text: "invalid: " + err.Error()}
	}
	defer log.Close()
	if j.Timeout == 0 {
		j.Timeout = uint32(w.o.Timeout / time.Second)
	}
	if j.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(j.Timeout)*time.Second+lateBy, errTimeout)
		defer cancel()
	}
	out := w.guarded(ctx, j, log.Line)
	r := judge(context.Cause(ctx), out)
	r.id, r.attempt, r.took = j.ID, attempt, time.Since(began)
	return r
}

// judge names how a run ended. What finished although it was to be stopped has
// finished.
func judge(cause error, out Outcome) result {
	r := result{how: string(hero.JobError), text: out.Error, output: out.Output, retry: !out.Final}
	switch {
	case out.OK:
		return result{how: string(hero.JobFinished), output: out.Output}
	case errors.Is(cause, errStopped):
		r.text, r.retry = ErrorStoppedByUser, false
	case errors.Is(cause, errTimeout):
		r.text = ErrorTimeout
	case cause != nil: // the worker stops or lost the job: it has no end yet
		return result{how: "release"}
	}
	if r.text == "" {
		r.text = "failed, and did not say why"
	}
	return r
}

// guarded keeps an executor's panic from ending the worker.
func (w *Worker) guarded(ctx context.Context, j Job, line func(string)) (out Outcome) {
	defer func() {
		if p := recover(); p != nil {
			w.o.Log.Error("the executor panicked", zap.String("job", j.ID), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			out = Outcome{Error: fmt.Sprintf("the executor panicked: %v", p), Final: true}
		}
	}()
	return w.exec.Execute(ctx, j, line)
}
