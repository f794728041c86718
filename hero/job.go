package hero

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// JobStatus is the status of a job.
type JobStatus string

// The statuses of a job. JobError and JobFinished are final.
const (
	JobDispatched JobStatus = "dispatched"
	JobWaiting    JobStatus = "waiting_for_prerequisites"
	JobStarted    JobStatus = "started"
	JobError      JobStatus = "error"
	JobFinished   JobStatus = "finished"
)

// Ended reports whether the status is final.
func (s JobStatus) Ended() bool { return s == JobError || s == JobFinished }

// MayBecome reports whether the transition is legal in the documents' life cycle. A status
// may become itself. Only a retry leads from error back to dispatched (see MayRetry).
func (s JobStatus) MayBecome(next JobStatus) bool {
	switch s {
	case next:
		return true
	case JobDispatched:
		return true // a quick job may report nothing but its end
	case JobWaiting:
		return next == JobDispatched || next == JobStarted || next == JobError
	case JobStarted:
		return next.Ended()
	}
	return false
}

// MayRetry reports whether a job in this status may be dispatched once more.
func (s JobStatus) MayRetry() bool { return s == JobStarted || s == JobError }

// ScriptType names the language of a script.
type ScriptType string

// The documented script types. Runners may have interpreters for more.
const (
	ScriptOSIS   ScriptType = "osis"
	ScriptSAL    ScriptType = "sal"
	ScriptV      ScriptType = "v"
	ScriptPython ScriptType = "python"
)

// Queue returns the name of the list of local jobs of the type: queue:<type>.
func (t ScriptType) Queue() string { return "queue:" + string(t) }

// Job is one script to run. The documents call it RunnerJob.
type Job struct {
	ID            uint32            `json:"id"`
	CallerID      uint32            `json:"caller_id"`
	ContextID     uint32            `json:"context_id"`
	Script        string            `json:"script"`
	ScriptType    ScriptType        `json:"script_type"`
	Executor      string            `json:"executor,omitempty"` // the script type by default
	Timeout       uint32            `json:"timeout"`            // of the execution, in seconds; 0 means the runner's default
	Retries       uint8             `json:"retries"`            // further runs after a failed one
	EnvVars       map[string]string `json:"env_vars"`
	Result        map[string]string `json:"result"`
	Prerequisites []string          `json:"prerequisites"`
	Dependends    []uint32          `json:"dependends"`           // as the documents spell it
	Signatures    json.RawMessage   `json:"signatures,omitempty"` // carried through, never verified
	CreatedAt     uint32            `json:"created_at"`
	UpdatedAt     uint32            `json:"updated_at"`
	Status        JobStatus         `json:"status"`

	// The following fields are Edda's own, left out where empty. FlowID, Attempt and
	// MessageKey lead the result to its flow, or to the message that brought the job.
	FlowID     uint32 `json:"flow_id,omitempty"`
	Attempt    uint32 `json:"attempt,omitempty"`
	MessageKey string `json:"message_key,omitempty"`
	// QueueTimeout bounds the wait before the job begins, in seconds; 0 means
	// DefaultQueueTimeout.
	QueueTimeout uint32 `json:"queue_timeout,omitempty"`
	// Priority orders the jobs of a queue.
	Priority Priority `json:"priority,omitempty"`
	// OwnEnv keeps the job's own variables when a flow has added its variables to
	// EnvVars; nil before.
	OwnEnv map[string]string `json:"own_env_vars,omitempty"`
	// Met lists the prerequisites that hold, of a job outside of a flow.
	Met []string `json:"met,omitempty"`
	// Name is the id that a supervisor's client gave, if it is no number.
	Name string `json:"name,omitempty"`
	// Unknown names the fields that were sent and that Edda does not know.
	Unknown []string `json:"-"`
	// Unreadable is set in a list when the hash cannot be read: the reason. Other fields are empty.
	Unreadable string `json:"unreadable,omitempty"`
}

// Waits reports whether the job itself waits for other jobs or for prerequisites. A job of
// a flow does not: its flow orders the jobs.
func (j Job) Waits() bool {
	return j.FlowID == 0 && (len(j.Dependends) > 0 || len(j.Prerequisites) > 0)
}

// EndMessage returns the message that carries the result of a job that ended. in is the
// context that holds the job.
func EndMessage(j Job, in uint32) Message {
	m := Message{
		CallerID: j.CallerID, ContextID: in, To: j.CallerID, MessageType: MessageResult, MessageFormat: FormatText,
		Message: j.Result[ResultOutput], Job: []Job{j}, FlowID: j.FlowID, Attempt: j.Attempt, ReplyTo: cmp.Or(j.MessageKey, j.Key()),
	}
	if j.Status == JobError {
		m.Message = j.Result[ResultError]
	}
	return m
}

// DefaultQueueTimeout bounds the wait of a job without a queue timeout: a day, so that a
// long queue alone fails no job.
const DefaultQueueTimeout = 24 * time.Hour

// WaitsAtMost bounds the wait before the job begins.
func (j Job) WaitsAtMost() time.Duration { return QueueTimeoutOf(j.QueueTimeout) }

// QueueTimeoutOf converts a queue_timeout in seconds; 0 means the default.
func QueueTimeoutOf(seconds uint32) time.Duration {
	if seconds == 0 {
		return DefaultQueueTimeout
	}
	return time.Duration(seconds) * time.Second
}

// Key returns the key of the job's hash in its context's database.
func (j Job) Key() string { return JobKey(j.CallerID, j.ID) }

// Ending returns the fields that the end of the job writes, as Pairs does.
func (j Job) Ending() []any {
	at := &fields{pairs: make([]any, 0, 8)}
	at.object("result", &j.Result)
	at.time("updated_at", &j.UpdatedAt)
	oneOf(at, "status", &j.Status, JobDispatched, ParseJobStatus)
	return at.pairs
}

func (j Job) hash() *fields { at := newFields(); j.fields(at); return at }

func (j *Job) fields(at *fields) {
	at.owner("id", &j.ID)
	at.owner("caller_id", &j.CallerID)
	at.number("context_id", &j.ContextID)
	at.text(at.called(scriptNames), &j.Script)
	oneOf(at, "script_type", &j.ScriptType, "", ParseScriptType)
	at.optional("executor", &j.Executor)
	at.number("timeout", &j.Timeout)
	at.byte("retries", &j.Retries)
	at.object("env_vars", &j.EnvVars)
	at.object("result", &j.Result)
	at.texts("prerequisites", &j.Prerequisites)
	at.numbers(at.called(dependendsNames), &j.Dependends)
	at.raw("signatures", &j.Signatures)
	at.time("created_at", &j.CreatedAt)
	at.time("updated_at", &j.UpdatedAt)
	oneOf(at, "status", &j.Status, JobDispatched, ParseJobStatus)
	at.optionalNumber("flow_id", &j.FlowID)
	at.optionalNumber("attempt", &j.Attempt)
	at.optional("message_key", &j.MessageKey)
	at.optionalNumber("queue_timeout", &j.QueueTimeout)
	field(at, "priority", &j.Priority, (*HashReader).priority, string(j.Priority), j.Priority == PriorityNormal)
	at.optionalObject("own_env_vars", &j.OwnEnv)
	at.optionalTexts("met", &j.Met)
	at.optional("name", &j.Name)
}

// ReadJob reads the hash at the key. A field that it cannot read is a *FieldError.
func ReadJob(key string, h map[string]string) (Job, error) {
	r := readKey("job", key, h, "caller_id", "id")
	j := r.job()
	return j, r.err
}

// job reads a job, from a hash of its own or embedded in a message.
func (r *HashReader) job() (j Job) {
	r.named(jobNames())
	j.fields(&fields{from: r})
	if _, said := r.h["script_type"]; !said && j.Executor != "" { // as the newer documents have it
		j.ScriptType = one(r, "executor", "", ParseScriptType)
	}
	if r.json != nil {
		j.Unknown = jobNames().unknown(r.json)
		if _, err := ParsePriority(r.h["priority"]); err != nil && unquote(r.h["priority"]) != "" {
			j.Unknown = append(j.Unknown, "priority")
		}
	}
	return j
}

// jobs reads the jobs that a message embeds.
func (r *HashReader) jobs(name string) []Job {
	out := []Job{}
	r.objects(name, "", func(r *HashReader) { out = append(out, r.job()) })
	return out
}

// UnmarshalJSON reads a job and notes unknown fields. Fields may have the names of the
// newer documents: payload, depends, dependencies, and an executor alone.
func (j *Job) UnmarshalJSON(raw []byte) error {
	type plain Job
	err := understand(raw, (*plain)(j), &j.Unknown, jobNames())
	if err == nil && j.ScriptType == "" && j.Executor != "" {
		j.ScriptType, err = ParseScriptType(j.Executor)
	}
	return err
}

// whole fills in the jobs' empty lists and maps, which readers in other languages expect.
func whole(jobs []Job) []Job {
	out := make([]Job, len(jobs))
	for i, j := range jobs {
		j.Prerequisites, j.Dependends = filled(j.Prerequisites), filled(j.Dependends)
		j.EnvVars, j.Result = mapped(j.EnvVars), mapped(j.Result)
		j.Signatures = known(j.Signatures)
		out[i] = j
	}
	return out
}

// ParseJobStatus reads a status in any spelling.
func ParseJobStatus(s string) (JobStatus, error) {
	return word("status of a job", s, JobDispatched, JobWaiting, JobStarted, JobError, JobFinished)
}

// UnmarshalText reads the status as ParseJobStatus does.
func (s *JobStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseJobStatus) }

// maxScriptType bounds the name of a script type, in bytes, because it is a part of a key.
const maxScriptType = 64

// ParseScriptType reads a script type: one of the documents', in any spelling, or a name
// of letters, digits, _ and -.
func ParseScriptType(s string) (ScriptType, error) {
	if t, err := word("script type", s, ScriptOSIS, ScriptSAL, ScriptV, ScriptPython); err == nil {
		return t, nil
	}
	name := unquote(s)
	if name == "" || len(name) > maxScriptType || strings.ContainsFunc(name, notInName) {
		return "", fmt.Errorf("%q is no script type: want osis, sal, v, python or a name of letters, digits, _ and -", shown(s))
	}
	return ScriptType(strings.ToLower(name)), nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}

// UnmarshalText reads the type as ParseScriptType does.
func (t *ScriptType) UnmarshalText(text []byte) error { return decode(t, text, ParseScriptType) }
