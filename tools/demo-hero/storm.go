package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"edda/internal/harness"
)

// secondAct kills the coordinator and the runner during a flow, restarts them, and compares
// the end of the flow with its plan.
func (r *run) secondAct(ctx context.Context) error {
	p := storm()
	r.say("Another flow. While 2102 and 2103 run, the coordinator and the runner are killed.")
	began := time.Now()
	if err := r.begins(p); err != nil {
		return err
	}
	if err := r.untilGates(ctx, p, 1); err != nil {
		return err
	}
	r.coordinator.Kill()
	r.runner.Kill()
	killed := time.Now()
	if err := errors.Join(r.coordinator.Start(), r.runner.Start()); err != nil {
		return err
	}
	if err := r.rolesReady(ctx); err != nil {
		return err
	}
	r.say("kill -9 at %.1f s; both are back at %.1f s (processes %d and %d)", killed.Sub(began).Seconds(), time.Since(began).Seconds(),
		r.coordinator.PID(), r.runner.PID())
	if err := r.goOn(ctx, p); err != nil {
		return err
	}
	took := time.Since(began)
	if err := r.verify(ctx, p, p.disturbed); err != nil {
		return err
	}
	r.say("Flow %d took %.1f s and ended as if nothing had happened.", p.id, took.Seconds())
	return nil
}

// goOn draws the flow on, and lets the scripts that wait end once they all run for
// the second time: those of the first time are gone by then, or the books will show it.
func (r *run) goOn(ctx context.Context, p plan) error {
	pictures, err := r.draw(ctx, p)
	if err != nil {
		return err
	}
	err = r.untilGates(ctx, p, 2)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.work(p), "open"), nil, 0o600)
	}
	if err != nil {
		_ = pictures.Process.Kill() // it would wait for an end that does not come
	}
	return errors.Join(err, pictures.Wait())
}

// untilGates waits until the waiting scripts have started n times.
func (r *run) untilGates(ctx context.Context, p plan, times int) error {
	return harness.Poll(ctx, "2102 and 2103 to run", func() error {
		l, err := readLedger(r.work(p))
		if err != nil {
			return err
		}
		for _, id := range gates() {
			if n := l.count(id, "start"); n < times {
				return errors.Join(fmt.Errorf("%d has begun %d times, want %d", id, n, times), r.overEarly(p))
			}
		}
		return nil
	})
}

// overEarly returns a fatal error if the flow has already ended.
func (r *run) overEarly(p plan) error {
	if s, err := r.call.flow(p.id); err == nil && s.ended() {
		return harness.Fatal(fmt.Errorf("flow %d is over: %s: %v", p.id, s.Status, s.Result))
	}
	return nil
}
