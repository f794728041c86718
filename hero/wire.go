package hero

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// This file is what supervisors, and runners that are sent jobs, say in the same
// words.

// WireID is an id on the wire: a string. Clients that send a number are understood.
type WireID string

// UnmarshalJSON reads a string or a number.
func (id *WireID) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(id))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("an id is a string, not %.40s", b)
	}
	*id = WireID(n)
	return nil
}

// Uint32 reads the id as Redis has it.
func (id WireID) Uint32(field string) (uint32, error) {
	n, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is no id: want a decimal number below 4294967296 in a string", field, string(id))
	}
	return uint32(n), nil
}

// ToWireID writes an id.
func ToWireID(n uint32) WireID { return WireID(strconv.FormatUint(uint64(n), 10)) }

// WireJob is a job as supervisors and runners on a topic have it: the script is the
// payload, ids are strings and times RFC 3339.
type WireJob struct {
	ID        WireID            `json:"id"`
	CallerID  WireID            `json:"caller_id"`
	ContextID WireID            `json:"context_id"`
	Payload   string            `json:"payload"`
	Runner    string            `json:"runner"`   // the name of a registered runner
	Executor  string            `json:"executor"` // what runs the payload: python, v, …
	Timeout   uint32            `json:"timeout"`  // of its execution, in seconds
	EnvVars   map[string]string `json:"env_vars"`
	CreatedAt string            `json:"created_at"`
	UpdatedAt string            `json:"updated_at"`
	// Signatures are carried through, never verified.
	Signatures json.RawMessage `json:"signatures,omitempty"`
	// QueueTimeout is Edda's own: how long the job may wait before it is begun, in seconds.
	QueueTimeout uint32 `json:"queue_timeout,omitempty"`
	// Priority is Edda's own: high goes before the others in its queue.
	Priority Priority `json:"priority,omitempty"`
	// Attempt is Edda's own: a higher one may run a job again that failed.
	Attempt uint32 `json:"attempt,omitempty"`
	// Retries, Prerequisites and Dependends are Edda's own too: a supervisor that
	// knows them honours them.
	Retries       uint8    `json:"retries,omitempty"`
	Prerequisites []string `json:"prerequisites,omitempty"`
	Dependends    []uint32 `json:"dependends,omitempty"`
	// Status is in answers only, and Unreadable in lists: why the hash cannot be read.
	Status     string `json:"status,omitempty"`
	Unreadable string `json:"unreadable,omitempty"`
}

// JobParams are what jobs.create and job.run take.
type JobParams struct {
	Secret string  `json:"secret,omitempty"`
	Job    WireJob `json:"job"`
}

// JobQuery names a job. Its id is enough where only one context and one caller have a job
// of that id.
type JobQuery struct {
	Secret    string `json:"secret,omitempty"`
	JobID     WireID `json:"job_id,omitempty"`
	ID        WireID `json:"id,omitempty"` // the same, for clients that call it so
	CallerID  WireID `json:"caller_id,omitempty"`
	ContextID WireID `json:"context_id,omitempty"`
}

// WireTime writes a time in RFC 3339; the zero time is empty.
func WireTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// JobAnswer is what job.run gives: the job failed or not, the call succeeded.
type JobAnswer struct {
	Success *string `json:"success,omitempty"`
	Error   *string `json:"error,omitempty"`
	// Runs is Edda's own, of a job that was sent with retries and failed: how often it
	// was run. A supervisor that does not say it has not tried again.
	Runs uint32 `json:"runs,omitempty"`
}

// AnswerOf is the answer for a job that ended: a job that failed is a successful call.
func AnswerOf(status JobStatus, result map[string]string) JobAnswer {
	if status == JobFinished {
		text := ResultText(result)
		return JobAnswer{Success: &text}
	}
	text := cmp.Or(result[ResultError], "failed without saying why")
	return JobAnswer{Error: &text}
}

// Ended is the job's end that an answer speaks of. An answer with neither a
// success nor an error, or with both, is none.
func (a JobAnswer) Ended() (JobStatus, map[string]string, bool) {
	switch {
	case a.Success != nil && a.Error == nil:
		return JobFinished, ReadResult(*a.Success), true
	case a.Error != nil && a.Success == nil:
		return JobError, map[string]string{ResultError: *a.Error}, true
	}
	return "", nil, false
}

// ResultText writes a result as one text: the output alone where there is
// nothing else, otherwise all of it as a JSON object.
func ResultText(result map[string]string) string {
	if output, ok := result[ResultOutput]; ok && len(result) == 1 {
		return output
	}
	if len(result) == 0 {
		return ""
	}
	b, _ := json.Marshal(result) // strings only: cannot fail
	return string(b)
}

// ReadResult reads what ResultText wrote, or any text: a JSON object gives its
// keys, values that are no strings as JSON; anything else is the output.
func ReadResult(text string) map[string]string {
	var object map[string]json.RawMessage
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || json.Unmarshal([]byte(text), &object) != nil {
		return map[string]string{ResultOutput: text}
	}
	out := make(map[string]string, len(object))
	for k, raw := range object {
		var s string
		if json.Unmarshal(raw, &s) != nil || bytes.Equal(raw, []byte("null")) {
			s = string(raw)
		}
		out[k] = s
	}
	return out
}

// JobState is what job.status gives.
type JobState struct {
	JobID       WireID `json:"job_id"`
	Status      string `json:"status"`
	CreatedAt   string `json:"created_at"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
}

// Job is the state in our words; supervisors use several.
func (s JobState) Job() (JobStatus, bool) {
	switch word := strings.ToLower(strings.ReplaceAll(s.Status, "_", "")); word {
	case "created", "queued", "dispatched", "pending", "ready":
		return JobDispatched, true
	case "waitingforprerequisites":
		return JobWaiting, true
	case "started", "running":
		return JobStarted, true
	case "finished", "completed", "success", "succeeded":
		return JobFinished, true
	case "error", "failed", "stopped", "cancelled":
		return JobError, true
	}
	return "", false
}
