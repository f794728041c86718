package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// Types lists the script types that the host runs, in order.
func (h *Host) Types() []string {
	return slices.Sorted(maps.Keys(h.options.Interpreters))
}

// Run runs a script to its end. An error means that the script was not started for a reason
// of the host: ErrNoInterpreter, no room for its folder or the audit record, or no process.
// Another host, or this one later, may run it. A script that no host would run is an
// Outcome with the reason Refused.
func (h *Host) Run(ctx context.Context, s Script) (RunResult, error) {
	if why := s.refused(h.options.Limits); why != "" {
		return h.refuse(s, why)
	}
	interpreter, ok := h.options.Interpreters[s.Type]
	if !ok {
		return RunResult{}, fmt.Errorf("%w for %s scripts here: this host runs %v", ErrNoInterpreter, s.Type, h.Types())
	}
	if context.Cause(ctx) != nil {
		return h.outcome(s, -1, "", verdict{reason: stopReason(ctx)}), nil
	}
	began := time.Now()
	r, err := h.begin(s, interpreter)
	if err != nil {
		return RunResult{}, err
	}
	out, err := r.whole(ctx)
	out.Took = time.Since(began)
	if err := r.close(out, err); err != nil {
		h.options.Log.Error("script run not cleared away", zap.String("id", s.ID), zap.Error(err))
	}
	return out, err
}

// refuse records a script that is not started.
func (h *Host) refuse(s Script, why string) (RunResult, error) {
	rec := h.record("refuse", "", s)
	rec.Reason = why
	return h.outcome(s, -1, "", verdict{Refused, why}), h.audit(rec)
}

// outcome makes the Outcome; v is the reason of a failure.
func (h *Host) outcome(s Script, code int, output string, v verdict) RunResult {
	m := newMask(s, h.options.Secrets)
	o := RunResult{OK: v.reason == "", Reason: v.reason, Detail: v.detail, Code: code, Output: output, Hash: s.hash()}
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

// object is the JSON object on the last line of an output: its values as strings,
// strings raw and others as compact JSON. Blank lines after it do not count.
func object(output string) (map[string]string, bool) {
	output = strings.TrimRight(output, " \t\r\n")
	line := strings.TrimSpace(output[strings.LastIndexByte(output, '\n')+1:])
	if !strings.HasPrefix(line, "{") {
		return nil, false
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &raw); err != nil {
		return nil, false
	}
	out := make(map[string]string, len(raw))
	for key, value := range raw {
		out[key] = asString(value)
	}
	return out, true
}

func asString(value json.RawMessage) string {
	var s string
	if value[0] == '"' && json.Unmarshal(value, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return string(value)
	}
	return b.String()
}
