package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/internal/backoff"
)

const (
	// watchEvery is how often a flow that is watched is asked for.
	watchEvery = 200 * time.Millisecond
	// watchPause bounds the pause between looks while nobody answers.
	watchPause = 2 * time.Second
	// watchPatience is how long a coordinator may be away from one who watches:
	// longer than any restart takes.
	watchPatience = 5 * time.Minute
)

// flowWatch draws a flow, once or until it has ended: over the last drawing in a
// terminal, below it elsewhere.
type flowWatch struct {
	term     *terminal
	client   *jsonrpc.Client
	id       flowID
	patience time.Duration // with a coordinator that answered before
	canvas   canvas
	status   hero.FlowStatus // seen last
	away     time.Time       // since when nobody answers
}

// once draws the flow as it is.
func (w *flowWatch) once(ctx context.Context) error {
	return w.look(ctx, true)
}

// follow draws the flow at every change until it has ended, over restarts of the
// coordinator. The end of ctx ends it without an error.
func (w *flowWatch) follow(ctx context.Context) error {
	trouble := backoff.Exponential{First: 2 * watchEvery, Most: watchPause}
	for {
		pause := watchEvery
		err := w.look(ctx, false)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !w.bears(err):
			return err
		case err != nil:
			pause = trouble.Next()
		case w.status.Ended():
			return nil
		default:
			trouble.Reset()
		}
		if backoff.Wait(ctx, pause) != nil {
			return nil
		}
	}
}

// look asks for the flow and draws it. The status first: a flow that has ended is
// drawn with all that it did.
func (w *flowWatch) look(ctx context.Context, final bool) error {
	var g flow.Graph
	var f hero.Flow
	if err := w.client.Call(ctx, "flow.load", w.id, &f); err != nil {
		return err
	}
	if err := w.client.Call(ctx, "flow.dag", w.id, &g); err != nil {
		return err
	}
	w.status = f.Status
	w.back()
	w.canvas.draw(drawFlow(g, f, w.term.color(w.term.out)), final || f.Status.Ended())
	return nil
}

// bears tells whether to look again after an error, and says so the first time. A
// coordinator that never answered, or too long ago, is not waited for.
func (w *flowWatch) bears(err error) bool {
	if w.status == "" || !passing(err) {
		return false
	}
	if w.away.IsZero() {
		w.away = time.Now()
		w.notice("the coordinator does not answer (%v): looking again for %s, Ctrl-C ends it", inShort(err), w.patience)
	}
	return time.Since(w.away) < w.patience
}

// back says that the coordinator answers, where it did not.
func (w *flowWatch) back() {
	if !w.away.IsZero() {
		w.away = time.Time{}
		w.notice("the coordinator answers again")
	}
}

// notice tells something beside the drawing, which goes on below it.
func (w *flowWatch) notice(format string, args ...any) {
	w.term.complain(fmt.Errorf(format, args...))
	w.canvas.last = ""
}

// inShort is a call's error in one line.
func inShort(err error) string {
	if no := (*jsonrpc.Error)(nil); errors.As(err, &no) {
		why, _, _ := refused{no}.read()
		err = errors.New(refused{no}.head(why))
	}
	return printable(strings.ReplaceAll(err.Error(), "\n", " "))
}

// passing tells whether an error of a call may be gone when it is made again: the
// coordinator is away, stops, or its Redis is.
func passing(err error) bool {
	no, strange := (*jsonrpc.Error)(nil), (*jsonrpc.HTTPError)(nil)
	switch {
	case errors.As(err, &no):
		return no.Code == jsonrpc.InternalError || no.Code == jsonrpc.StorageError || no.Code == jsonrpc.Busy
	case errors.As(err, &strange):
		return strange.Status >= 500 || strange.Status == 429
	}
	return true
}
