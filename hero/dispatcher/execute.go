package dispatcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda/hero"
	"edda/hero/script"
)

// Executor runs scripts. Execute may be called concurrently. It returns soon after ctx
// ends, and leaves no process running.
type Executor interface {
	// Execute runs the job's script, for at most j.Timeout seconds unless that is 0. It
	// passes each line that the script writes to line.
	Execute(ctx context.Context, j Job, line func(string)) JobResult
}

// JobResult is the end of a run.
type JobResult struct {
	OK     bool
	Output string
	// Error is the reason where it is not OK: "timeout", or a text.
	Error string
	// Final: another run would end the same way, so the job is not retried.
	Final bool
}

// The causes with which the context of a run ends.
var (
	errStopped  = script.ErrStopped
	errStopping = errors.New("the worker stops")
	errLost     = errors.New("the job was given to another worker")
	errTimeout  = errors.New(ErrorTimeout)
)

// lateBy is the time that an executor has to end a run after its timeout. Then the worker
// ends it.
const lateBy = 15 * time.Second

// result is the end of a run, not recorded yet.
type result struct {
	id      string
	attempt string
	how     string // finished, error or release
	retry   bool
	text    string // the reason of an error
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

// judge decides the result of a run. A script that finished although it was asked to stop
// has finished.
func judge(cause error, out JobResult) result {
	r := result{how: string(hero.JobError), text: out.Error, output: out.Output, retry: !out.Final}
	switch {
	case out.OK:
		return result{how: string(hero.JobFinished), output: out.Output}
	case errors.Is(cause, errStopped):
		r.text, r.retry = ErrorStoppedByUser, false
	case errors.Is(cause, errTimeout):
		r.text = ErrorTimeout
	case cause != nil: // the worker stops, or lost the job
		return result{how: "release"}
	}
	if r.text == "" {
		r.text = "failed, and did not say why"
	}
	return r
}

// guarded turns a panic of the executor into an outcome.
func (w *Worker) guarded(ctx context.Context, j Job, line func(string)) (out JobResult) {
	defer func() {
		if p := recover(); p != nil {
			w.o.Log.Error("the executor panicked", zap.String("job", j.ID), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			out = JobResult{Error: fmt.Sprintf("the executor panicked: %v", p), Final: true}
		}
	}()
	return w.exec.Execute(ctx, j, line)
}

// Interpreter is the script type of a worker's one interpreter in its script.Host: jobs of
// this protocol have no type.
const Interpreter = "job"

// Scripts executes jobs with a script.Host.
type Scripts struct{ Host *script.Host }

// Execute runs the job's script in a process group of its own.
func (s Scripts) Execute(ctx context.Context, j Job, line func(string)) JobResult {
	out, err := s.Host.Run(ctx, script.Script{
		ID: name(j.ID), Type: Interpreter, Source: j.Script, Env: j.EnvVars, Context: name(j.ContextID),
		Timeout: time.Duration(j.Timeout) * time.Second, Who: j.CallerID, Logs: func(_, text string) { line(text) },
	})
	switch {
	case err != nil: // it was not started; another run may be
		return JobResult{Error: err.Error()}
	case out.OK:
		return JobResult{OK: true, Output: strings.TrimSuffix(out.Output, "\n")}
	case out.Reason == script.Timeout:
		return JobResult{Error: ErrorTimeout, Output: out.Output}
	}
	return JobResult{Error: out.Why(), Output: out.Output, Final: out.Reason == script.Refused}
}

// plainName matches the ids that are file names.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// name turns the id of another program into a file name.
func name(id string) string {
	if id == "" || plainName.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
