package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Host runs scripts on this machine. Its methods may be called concurrently. The caller
// bounds the number of scripts that run at once.
type Host struct {
	options Options
	cgroups *cgroups // nil where this process may write no memory cgroup
}

// New makes a host. It fails where this machine cannot serve the options: an interpreter is
// not installed, the folder belongs to another user, or the kernel or this process's rights
// do not allow the sandbox.
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

// Types lists the script types that the host runs, sorted.
func (h *Host) Types() []string {
	return slices.Sorted(maps.Keys(h.options.Interpreters))
}

// Run runs a script to its end. An error means that the script was not started for a reason
// of the host: ErrNoInterpreter, no room for its folder or the audit log, or no process.
// Another host, or this one later, may run it. For a script that no host would run the
// result has the reason Refused.
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
	out, err := r.onThread(ctx)
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

// outcome makes the result of a run; v is the reason of a failure.
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

// object reads the JSON object on the last line of an output that is not blank. A string
// value is taken raw, any other value as compact JSON.
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

// auditFile has a line for the start and a line for the end of every run. A new file begins
// each month, and no code removes one.
const auditFile = "audit-2006-01.jsonl"

// record is one line of the audit.
type record struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // begin, end or refuse
	Run     string    `json:"run,omitempty"`
	Who     string    `json:"who"`
	Context string    `json:"context,omitempty"`
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Hash    string    `json:"hash"` // SHA-256 of the script
	Sandbox bool      `json:"sandbox,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Exit    *int      `json:"exit,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Millis  int64     `json:"ms,omitempty"`
}

func (h *Host) record(event, run string, s Script) record {
	return record{Time: time.Now().UTC(), Event: event, Run: run, Who: bounded(s.Who), Context: bounded(s.Context), ID: bounded(s.ID),
		Type: bounded(s.Type), Hash: s.hash(), Sandbox: h.options.Sandbox != nil}
}

// bounded bounds texts of callers.
func bounded(s string) string { return s[:min(len(s), maxName)] }

// audit appends a record with one write, so that several runners may share the file.
func (h *Host) audit(r record) error {
	line, err := json.Marshal(r)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(filepath.Join(h.options.Dir, r.Time.Format(auditFile)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
