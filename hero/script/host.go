package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Host runs scripts on this machine. Its methods may be called concurrently; how
// many scripts run at once is the caller's to bound.
type Host struct {
	options Options
	cgroups *cgroups // nil where there are none that we may write
}

// New makes a host. Options that this machine cannot serve are errors here: an
// interpreter that is not installed, a folder that is not ours, a sandbox that
// the kernel or our rights do not allow.
func New(o Options) (*Host, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("scripts: %w", err)
	}
	if err := prepare(o.Dir); err != nil {
		return nil, fmt.Errorf("scripts: %w", err)
	}
	h := &Host{options: o}
	var err error
	if h.cgroups, err = findCgroups(); err != nil {
		o.Log.Info("scripts' memory is counted by process, and not by cgroups", zap.Error(err))
	} else {
		o.Log.Info("scripts' memory is counted by cgroups", zap.String("below", h.cgroups.dir))
	}
	if o.Sandbox != nil {
		if err := h.trySandbox(); err != nil {
			return nil, fmt.Errorf("scripts: %w", err)
		}
	}
	return h, nil
}

// Runs tells whether scripts of the type can be run here.
func (h *Host) Runs(scriptType string) bool {
	_, ok := h.options.Interpreters[scriptType]
	return ok
}

// Types are those that can be run here, in order.
func (h *Host) Types() []string {
	var out []string
	for kind := range h.options.Interpreters {
		out = append(out, kind)
	}
	slices.Sort(out)
	return out
}

// Run runs a script to its end and tells what became of it. An error means that
// it was not begun for no fault of its own (ErrNoInterpreter; no room for its
// folder or the audit record; no process to be had): another host, or this one
// later, may run it. A script that no host would run is an Outcome with the
// reason Refused.
func (h *Host) Run(ctx context.Context, s Script) (Outcome, error) {
	if why := s.refused(h.options.Limits); why != "" {
		return h.refuse(s, why)
	}
	interpreter, ok := h.options.Interpreters[s.Type]
	if !ok {
		return Outcome{}, fmt.Errorf("%w for %s scripts here: this host runs %v", ErrNoInterpreter, s.Type, h.Types())
	}
	if context.Cause(ctx) != nil {
		return h.outcome(s, -1, "", verdict{reason: stopReason(ctx)}), nil
	}
	began := time.Now()
	r, err := h.begin(s, interpreter)
	if err != nil {
		return Outcome{}, err
	}
	out, err := r.whole(ctx)
	out.Took = time.Since(began)
	if err := r.close(out, err); err != nil {
		h.options.Log.Error("script run not cleared away", zap.String("id", s.ID), zap.Error(err))
	}
	return out, err
}

// refuse records a script that is not begun.
func (h *Host) refuse(s Script, why string) (Outcome, error) {
	rec := h.record("refuse", "", s)
	rec.Reason = why
	return h.outcome(s, -1, "", verdict{Refused, why}), h.audit(rec)
}

// outcome puts together what is known at the end; v says why it was not well.
func (h *Host) outcome(s Script, code int, output string, v verdict) Outcome {
	m := newMask(s, h.options.Secrets)
	o := Outcome{OK: v.reason == "", Reason: v.reason, Detail: v.detail, Code: code, Output: output, Hash: s.hash()}
	values, ok := object(output)
	if !ok {
		values = map[string]string{}
		if output != "" || o.OK {
			values["output"] = output
		}
	}
	o.Result = make(map[string]string, len(values)+1)
	for key, value := range values {
		o.Result[m.text(key)] = m.text(value)
	}
	if !o.OK {
		o.Result["error"] = o.Why()
	}
	return o
}

func stopReason(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), ErrStopped) {
		return Stopped
	}
	return Interrupted
}
