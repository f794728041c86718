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

// The types of this file are what supervisors, and runners on a topic, speak.

// WireID is an id on the wire: a string. A number that a client sends is understood.
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

// Uint32 reads the id as a number. field names it in an error.
func (id WireID) Uint32(field string) (uint32, error) {
	n, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is no id: want a decimal number below 4294967296 in a string", field, string(id))
	}
	return uint32(n), nil
}

// ToWireID writes a number as an id.
func ToWireID(n uint32) WireID { return WireID(strconv.FormatUint(uint64(n), 10)) }

// WireJob is a job on the wire: the script is the payload, ids are strings and times
// RFC 3339.
type WireJob struct {
	ID        WireID            `json:"id"`
	CallerID  WireID            `json:"caller_id"`
	ContextID WireID            `json:"context_id"`
	Payload   string            `json:"payload"`
	Runner    string            `json:"runner"`   // the name of a registered runner
	Executor  string            `json:"executor"` // the script type of the payload: python, v, …
	Timeout   uint32            `json:"timeout"`  // of the execution, in seconds
	EnvVars   map[string]string `json:"env_vars"`
	CreatedAt string            `json:"created_at"`
	UpdatedAt string            `json:"updated_at"`
	// Signatures are carried through, never verified.
	Signatures json.RawMessage `json:"signatures,omitempty"`
	// QueueTimeout is Edda's own: it bounds the wait before the job begins, in seconds.
	QueueTimeout uint32 `json:"queue_timeout,omitempty"`
	// Priority is Edda's own: high overtakes other jobs of its queue.
	Priority Priority `json:"priority,omitempty"`
	// Attempt is Edda's own: a failed job may run again under a higher one.
	Attempt uint32 `json:"attempt,omitempty"`
	// Retries, Prerequisites and Dependends are Edda's own too. A supervisor that knows
	// them honours them.
	Retries       uint8    `json:"retries,omitempty"`
	Prerequisites []string `json:"prerequisites,omitempty"`
	Dependends    []uint32 `json:"dependends,omitempty"`
	// Status is in answers only. Unreadable is in lists: why the hash cannot be read.
	Status     string `json:"status,omitempty"`
	Unreadable string `json:"unreadable,omitempty"`
}

// JobParams are the parameters of jobs.create and job.run.
type JobParams struct {
	Secret string  `json:"secret,omitempty"`
	Job    WireJob `json:"job"`
}

// JobQuery names a job. The id alone is enough if only one context and one caller have a
// job of that id.
type JobQuery struct {
	Secret    string `json:"secret,omitempty"`
	JobID     WireID `json:"job_id,omitempty"`
	ID        WireID `json:"id,omitempty"` // another name of job_id
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

// JobAnswer is the answer of job.run. A job that failed is a successful call.
type JobAnswer struct {
	Success *string `json:"success,omitempty"`
	Error   *string `json:"error,omitempty"`
	// Runs is Edda's own: how often a job with retries ran before it failed. A
	// supervisor that leaves it out has not retried.
	Runs uint32 `json:"runs,omitempty"`
}

// AnswerOf returns the answer for a job that ended.
func AnswerOf(status JobStatus, result map[string]string) JobAnswer {
	if status == JobFinished {
		text := ResultText(result)
		return JobAnswer{Success: &text}
	}
	text := cmp.Or(result[ResultError], "failed without saying why")
	return JobAnswer{Error: &text}
}

// Ended returns the final status and the result that the answer holds. It returns false
// for an answer with neither a success nor an error, or with both.
func (a JobAnswer) Ended() (JobStatus, map[string]string, bool) {
	switch {
	case a.Success != nil && a.Error == nil:
		return JobFinished, ReadResult(*a.Success), true
	case a.Error != nil && a.Success == nil:
		return JobError, map[string]string{ResultError: *a.Error}, true
	}
	return "", nil, false
}

// Keys of a job's result that Edda gives a meaning.
const (
	ResultOutput = "output" // the script's output, if it gave no object
	ResultError  = "error"  // why the job failed
	ResultNote   = "note"   // what a flow's result leaves out
)

// ResultText writes a result as one text: the output, if that is all of it, else a JSON
// object.
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

// ReadResult reads what ResultText wrote, or any text. A JSON object gives its keys, with
// values that are no strings as JSON. Any other text is the output.
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

// JobState is the answer of job.status.
type JobState struct {
	JobID       WireID `json:"job_id"`
	Status      string `json:"status"`
	CreatedAt   string `json:"created_at"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
}

// Job returns the state as a JobStatus. Supervisors use several words for each.
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
