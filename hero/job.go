package hero

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// JobStatus is where a job stands.
type JobStatus string

// The statuses of a job. The last two are ends.
const (
	JobDispatched JobStatus = "dispatched"
	JobWaiting    JobStatus = "waiting_for_prerequisites"
	JobStarted    JobStatus = "started"
	JobError      JobStatus = "error"
	JobFinished   JobStatus = "finished"
)

// Ended tells whether the status is an end.
func (s JobStatus) Ended() bool { return s == JobError || s == JobFinished }

// MayBecome tells whether the step is one of the life cycle that HERO's
// diagram draws. A status may become itself; from error there is a way back to
// dispatched only for who tries a job again (see Retry).
func (s JobStatus) MayBecome(next JobStatus) bool {
	switch s {
	case next:
		return true
	case JobDispatched:
		return true // a runner that was quick is heard of only at its end
	case JobWaiting:
		return next == JobDispatched || next == JobStarted || next == JobError
	case JobStarted:
		return next.Ended()
	}
	return false
}

// MayRetry tells whether a job in this status may be dispatched once more.
func (s JobStatus) MayRetry() bool { return s == JobStarted || s == JobError }

// ScriptType is the language of a script.
type ScriptType string

// The documented script types; runners may be given interpreters for more.
const (
	ScriptOSIS   ScriptType = "osis"
	ScriptSAL    ScriptType = "sal"
	ScriptV      ScriptType = "v"
	ScriptPython ScriptType = "python"
)

// QueueSuffix names the type's list of local jobs: queue:<suffix>.
func (t ScriptType) QueueSuffix() string { return string(t) }

// Queue is the list of local jobs of the type.
func (t ScriptType) Queue() string { return "queue:" + t.QueueSuffix() }

// Job is one script to run: a RunnerJob.
type Job struct {
	ID            uint32            `json:"id"`
	CallerID      uint32            `json:"caller_id"`
	ContextID     uint32            `json:"context_id"`
	Script        string            `json:"script"`
	ScriptType    ScriptType        `json:"script_type"`
	Executor      string            `json:"executor,omitempty"` // the script type unless said
	Timeout       uint32            `json:"timeout"`            // of its execution, in seconds; 0 means the runner's default
	Retries       uint8             `json:"retries"`            // calls after the first
	EnvVars       map[string]string `json:"env_vars"`
	Result        map[string]string `json:"result"`
	Prerequisites []string          `json:"prerequisites"`
	Dependends    []uint32          `json:"dependends"`           // as the documents spell it
	Signatures    json.RawMessage   `json:"signatures,omitempty"` // carried through, never verified
	CreatedAt     uint32            `json:"created_at"`
	UpdatedAt     uint32            `json:"updated_at"`
	Status        JobStatus         `json:"status"`
	// What follows are fields of Edda's own, left out where empty: how the result
	// finds its flow, and the message that brought the job.
	FlowID     uint32 `json:"flow_id,omitempty"`
	Attempt    uint32 `json:"attempt,omitempty"`
	MessageKey string `json:"message_key,omitempty"`
	// QueueTimeout is how long the job may wait before it is begun, in seconds; 0
	// means DefaultQueueTimeout.
	QueueTimeout uint32 `json:"queue_timeout,omitempty"`
	// Priority is which of the jobs in its queue goes first.
	Priority Priority `json:"priority,omitempty"`
	// OwnEnv is the job's own variables once a flow has added its own to EnvVars;
	// nil before.
	OwnEnv map[string]string `json:"own_env_vars,omitempty"`
	// Met are the prerequisites that hold, of a job outside of a flow.
	Met []string `json:"met,omitempty"`
	// Name is the id that a supervisor's client gave, where that is no number.
	Name string `json:"name,omitempty"`
	// Unknown are fields that came with the job and that nobody here understands.
	Unknown []string `json:"-"`
	// Unreadable says, in a list, why the hash cannot be read; all else is left out then.
	Unreadable string `json:"unreadable,omitempty"`
}

// Waits tells whether the job has to wait for other jobs or for prerequisites by
// itself: a job of a flow waits in its flow.
func (j Job) Waits() bool {
	return j.FlowID == 0 && (len(j.Dependends) > 0 || len(j.Prerequisites) > 0)
}

// Told is the message that tells whom it concerns what became of a job that ended, in
// the context where it lies.
func Told(j Job, in uint32) Message {
	m := Message{
		CallerID: j.CallerID, ContextID: in, To: j.CallerID, MessageType: MessageResult, MessageFormat: FormatText,
		Message: j.Result[ResultOutput], Job: []Job{j}, FlowID: j.FlowID, Attempt: j.Attempt, ReplyTo: cmp.Or(j.MessageKey, j.Key()),
	}
	if j.Status == JobError {
		m.Message = j.Result[ResultError]
	}
	return m
}

// DefaultQueueTimeout is how long a job may wait before it is begun, where it does
// not say: a day, so that a long queue alone fails no job.
const DefaultQueueTimeout = 24 * time.Hour

// WaitsAtMost is how long the job may wait before it is begun.
func (j Job) WaitsAtMost() time.Duration { return QueueTimeoutOf(j.QueueTimeout) }

// QueueTimeoutOf is a queue_timeout in seconds as a duration, with its default.
func QueueTimeoutOf(seconds uint32) time.Duration {
	if seconds == 0 {
		return DefaultQueueTimeout
	}
	return time.Duration(seconds) * time.Second
}

// Key is the job's hash in its context's database.
func (j Job) Key() string { return JobKey(j.CallerID, j.ID) }

// Ending is what of them the end of a job writes.
func (j Job) Ending() []any {
	h := &hash{pairs: make([]any, 0, 8)}
	h.object("result", j.Result)
	h.number("updated_at", j.UpdatedAt)
	h.text("status", string(j.Status))
	return h.pairs
}

func (j Job) hash() *hash {
	h := newHash()
	h.number("id", j.ID)
	h.number("caller_id", j.CallerID)
	h.number("context_id", j.ContextID)
	h.text("script", j.Script)
	h.text("script_type", string(j.ScriptType))
	h.optional("executor", j.Executor)
	h.number("timeout", j.Timeout)
	h.number("retries", uint32(j.Retries))
	h.object("env_vars", j.EnvVars)
	h.object("result", j.Result)
	list(h, "prerequisites", j.Prerequisites)
	list(h, "dependends", j.Dependends)
	h.optional("signatures", string(known(j.Signatures)))
	h.number("created_at", j.CreatedAt)
	h.number("updated_at", j.UpdatedAt)
	h.text("status", string(cmp.Or(j.Status, JobDispatched)))
	h.optionalNumber("flow_id", j.FlowID)
	h.optionalNumber("attempt", j.Attempt)
	h.optional("message_key", j.MessageKey)
	h.optionalNumber("queue_timeout", j.QueueTimeout)
	h.optional("priority", string(j.Priority))
	h.optionalPairs("own_env_vars", j.OwnEnv)
	optionalList(h, "met", j.Met)
	h.optional("name", j.Name)
	return h
}

// ReadJob reads the hash at that key; what it cannot read is a *FieldError.
func ReadJob(key string, h map[string]string) (Job, error) {
	r, ids := readKey("job", key, h, 2)
	r.id("caller_id", ids[0])
	r.id("id", ids[1])
	j := r.job()
	return j, r.err
}

// job reads a job, from a hash of its own or embedded in a message.
func (r *HashReader) job() Job {
	r.named(jobFields(), dependendsNames, scriptNames)
	j := Job{
		ID:            r.owner("id"),
		CallerID:      r.owner("caller_id"),
		ContextID:     r.Number("context_id"),
		Script:        r.text(r.called(scriptNames)),
		ScriptType:    one(r, "script_type", "", ParseScriptType),
		Executor:      r.text("executor"),
		Timeout:       r.Number("timeout"),
		Retries:       uint8(r.bits("retries", 8)),
		EnvVars:       r.Pairs("env_vars"),
		Result:        r.Pairs("result"),
		Prerequisites: r.Texts("prerequisites"),
		Dependends:    r.numbers(r.called(dependendsNames)),
		Signatures:    r.raw("signatures"),
		CreatedAt:     r.time("created_at"),
		UpdatedAt:     r.time("updated_at"),
		Status:        one(r, "status", JobDispatched, ParseJobStatus),
		FlowID:        r.Number("flow_id"),
		Attempt:       r.Number("attempt"),
		MessageKey:    r.text("message_key"),
		QueueTimeout:  r.Number("queue_timeout"),
		OwnEnv:        r.optionalPairs("own_env_vars"),
		Met:           r.optionalTexts("met"),
		Name:          r.text("name"),
	}
	if _, said := r.h["script_type"]; !said && j.Executor != "" { // as the newer documents have it
		j.ScriptType = one(r, "executor", "", ParseScriptType)
	}
	var understood bool
	j.Priority, understood = r.priority()
	if r.json != nil {
		j.Unknown = notUnderstood(r.json, jobFields(), slices.Concat(dependendsNames, scriptNames)...)
		if !understood {
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

// whole writes the jobs' lists and maps even where they are empty, as readers
// in other languages expect.
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

// ParseJobStatus reads the word, however it is written.
func ParseJobStatus(s string) (JobStatus, error) {
	return word("status of a job", s, JobDispatched, JobWaiting, JobStarted, JobError, JobFinished)
}

// UnmarshalText reads the word as ParseJobStatus does.
func (s *JobStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseJobStatus) }

// maxScriptType bounds the name of a script type, which is a part of a key.
const maxScriptType = 64

// ParseScriptType reads the type of a script: one of the documents', however it
// is written, or the name of another that somebody has an interpreter for.
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
