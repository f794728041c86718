package dispatcher

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"edda"
	"edda/hero"
)

// Job is one script for a worker: the hash hero:job:<id>.
type Job struct {
	ID            string            `json:"id"`
	CallerID      string            `json:"caller_id"`
	WorkerID      string            `json:"worker_id"`
	ContextID     string            `json:"context_id"`
	Script        string            `json:"script"`
	Timeout       uint32            `json:"timeout"`            // seconds; 0 means the worker's default
	Retries       uint32            `json:"retries"`            // runs after the first
	Concurrent    bool              `json:"concurrent"`         // may run beside other jobs
	Priority      hero.Priority     `json:"priority,omitempty"` // within its queue
	LogPath       string            `json:"log_path,omitempty"` // within the worker's log folder
	EnvVars       map[string]string `json:"env_vars,omitempty"`
	Prerequisites []string          `json:"prerequisites,omitempty"` // jobs that must finish first, like Dependencies
	Dependents    []string          `json:"dependents,omitempty"`
	Dependencies  []string          `json:"dependencies,omitempty"`
	Output        string            `json:"output,omitempty"`
	Error         string            `json:"error,omitempty"`
	CreatedAt     time.Time         `json:"created_at"`
	UpdatedAt     time.Time         `json:"updated_at"`
	Status        hero.JobStatus    `json:"status"`
	// Attempts counts the runs that began. The documents do not have the field.
	Attempts uint32 `json:"attempts"`
}

// The errors that the documents define.
const (
	ErrorTimeout       = "timeout"
	ErrorStopped       = "stopped"            // before it started
	ErrorStoppedByUser = "stopped_by_request" // while it ran
)

// ErrorWorkerLost is the error of a job whose worker died in its last run.
const ErrorWorkerLost = "worker lost"

// Waits lists the jobs that must finish before this one, each once: its prerequisites and
// its dependencies.
func (j Job) Waits() []string {
	all := slices.Concat(j.Prerequisites, j.Dependencies)
	slices.Sort(all)
	return slices.Compact(all)
}

// fields lists the hash fields that a client writes when it creates the job. Empty fields
// are left out, except dependencies, which the documents always have.
func (j Job) fields() []any {
	at := stamp(j.CreatedAt)
	out := []any{
		"id", j.ID, "caller_id", j.CallerID, "worker_id", j.WorkerID, "context_id", j.ContextID, "script", j.Script,
		"timeout", number(j.Timeout), "retries", number(j.Retries), "concurrent", strconv.FormatBool(j.Concurrent),
		"created_at", at, "updated_at", at, "status", string(hero.JobDispatched), "dependencies", jsonText(orEmpty(j.Dependencies)),
	}
	if j.Priority != hero.PriorityNormal {
		out = append(out, "priority", string(j.Priority))
	}
	if j.LogPath != "" {
		out = append(out, "log_path", j.LogPath)
	}
	if len(j.EnvVars) > 0 {
		out = append(out, "env_vars", jsonText(j.EnvVars))
	}
	if len(j.Prerequisites) > 0 {
		out = append(out, "prerequisites", jsonText(j.Prerequisites))
	}
	if len(j.Dependents) > 0 {
		out = append(out, "dependents", jsonText(j.Dependents))
	}
	return out
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// orEmpty keeps an empty list from being written as null.
func orEmpty(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and maps of strings only
	}
	return string(text)
}

// stamp formats a time for the hash.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// readJob reads a job's hash, which another program may have written. A field that it
// cannot read is a *hero.FieldError.
func readJob(id string, h map[string]string) (Job, error) {
	r := hero.ReadHash(JobKey(id), h)
	if own := h["id"]; own != "" && own != id {
		r.Fail("id", own, "the key says "+id)
	}
	j := Job{
		ID: id, CallerID: h["caller_id"], WorkerID: h["worker_id"], ContextID: h["context_id"], Script: h["script"],
		LogPath: h["log_path"], Output: h["output"], Error: h["error"],
		Timeout: r.Number("timeout"), Retries: r.Number("retries"), Attempts: r.Number("attempts"), Concurrent: r.Truth("concurrent"),
		EnvVars: r.Pairs("env_vars"), Prerequisites: r.Texts("prerequisites"), Dependents: r.Texts("dependents"), Dependencies: r.Texts("dependencies"),
		CreatedAt: readTime(r, "created_at", h), UpdatedAt: readTime(r, "updated_at", h), Status: readStatus(r, h),
	}
	if p, err := hero.ParsePriority(h["priority"]); err == nil { // else the field is another program's
		j.Priority = p
	}
	if err := r.Err(); err != nil {
		return j, edda.Classify(edda.Permanent, "%w", err)
	}
	return j, nil
}

// readTime reads RFC 3339, ISO 8601 without a zone, or Unix seconds.
func readTime(r *hero.HashReader, field string, h map[string]string) time.Time {
	text := strings.TrimSpace(h[field])
	if text == "" {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	if s, err := strconv.ParseUint(text, 10, 33); err == nil {
		return time.Unix(int64(s), 0).UTC()
	}
	r.Fail(field, text, "want a time such as 2026-01-02T15:04:05Z")
	return time.Time{}
}

// readStatus reads a status in any spelling. A missing status means dispatched.
func readStatus(r *hero.HashReader, h map[string]string) hero.JobStatus {
	s, err := hero.ParseJobStatus(h["status"])
	switch {
	case strings.Trim(h["status"], `" `) == "" || s == hero.JobWaiting:
		return hero.JobDispatched
	case err != nil:
		r.Fail("status", h["status"], "want dispatched, started, error or finished")
	}
	return s
}
