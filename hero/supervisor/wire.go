package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"edda/hero"
)

// ID is a string on the wire. Clients that send a number are understood.
type ID string

// UnmarshalJSON reads a string or a number.
func (id *ID) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(id))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("an id is a string, not %.40s", b)
	}
	*id = ID(n)
	return nil
}

// u32 reads the id as Redis has it.
func (id ID) u32(field string) (uint32, error) {
	n, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is no id: want a decimal number below 4294967296 in a string", field, string(id))
	}
	return uint32(n), nil
}

func toID(n uint32) ID { return ID(strconv.FormatUint(uint64(n), 10)) }

// Job is a job as supervisors have it: the script is the payload, ids are
// strings and times RFC 3339.
type Job struct {
	ID        ID                `json:"id"`
	CallerID  ID                `json:"caller_id"`
	ContextID ID                `json:"context_id"`
	Payload   string            `json:"payload"`
	Runner    string            `json:"runner"`   // the name of a registered runner
	Executor  string            `json:"executor"` // what runs the payload: python, v, …
	Timeout   uint32            `json:"timeout"`  // seconds
	EnvVars   map[string]string `json:"env_vars"`
	CreatedAt string            `json:"created_at"`
	UpdatedAt string            `json:"updated_at"`
	// Signatures are carried through, never verified.
	Signatures json.RawMessage `json:"signatures,omitempty"`
	// Attempt is Edda's own: a higher one may run a job again that failed.
	Attempt uint32 `json:"attempt,omitempty"`
	// Status is in answers only.
	Status string `json:"status,omitempty"`
}

// FromHero is the job as it goes to a supervisor.
func FromHero(j hero.Job) Job {
	executor := j.Executor
	if executor == "" {
		executor = string(j.ScriptType)
	}
	env := j.EnvVars
	if env == nil {
		env = map[string]string{} // the field is required
	}
	return Job{
		ID: toID(j.ID), CallerID: toID(j.CallerID), ContextID: toID(j.ContextID),
		Payload: j.Script, Runner: executor, Executor: executor, Timeout: j.Timeout, EnvVars: env,
		CreatedAt: rfc3339(j.CreatedAt), UpdatedAt: rfc3339(j.UpdatedAt),
		Signatures: j.Signatures, Attempt: j.Attempt, Status: string(j.Status),
	}
}

// Hero is the job as it lies in Redis.
func (j Job) Hero() (hero.Job, error) {
	var ids [3]uint32
	for i, f := range []struct {
		name string
		id   ID
	}{{"job.id", j.ID}, {"job.caller_id", j.CallerID}, {"job.context_id", j.ContextID}} {
		var err error
		if ids[i], err = f.id.u32(f.name); err != nil {
			return hero.Job{}, err
		}
	}
	executor := j.Executor
	if executor == "" {
		executor = j.Runner
	}
	switch {
	case ids[2] == 0:
		return hero.Job{}, fmt.Errorf("job.context_id: 0 is the actors' database, name the job's context")
	case executor == "":
		return hero.Job{}, fmt.Errorf("job.executor is missing: say what runs the payload, such as python")
	}
	created, err := unix("job.created_at", j.CreatedAt)
	if err != nil {
		return hero.Job{}, err
	}
	updated, err := unix("job.updated_at", j.UpdatedAt)
	if err != nil {
		return hero.Job{}, err
	}
	return hero.Job{
		ID: ids[0], CallerID: ids[1], ContextID: ids[2], Script: j.Payload,
		ScriptType: hero.ScriptType(executor), Executor: executor, Timeout: j.Timeout, EnvVars: j.EnvVars,
		CreatedAt: created, UpdatedAt: updated, Signatures: j.Signatures, Attempt: j.Attempt, Status: hero.JobDispatched,
	}, nil
}

func rfc3339(seconds uint32) string {
	return time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
}

// unix reads a time; one that is missing is 0, as for a job that was never kept.
func unix(field, s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is no time: want RFC 3339, such as 2025-08-29T10:29:32Z", field, s)
	}
	return uint32(min(max(t.Unix(), 0), 1<<32-1)), nil
}

// Answer is what job.run gives: the job failed or not, the call succeeded.
type Answer struct {
	Success *string `json:"success,omitempty"`
	Error   *string `json:"error,omitempty"`
}

// answerOf is the answer for a job that ended.
func answerOf(j hero.Job) Answer {
	if j.Status == hero.JobFinished {
		text := ResultText(j.Result)
		return Answer{Success: &text}
	}
	text := j.Result[hero.ResultError]
	if text == "" {
		text = "failed without saying why"
	}
	return Answer{Error: &text}
}

// Ended is the job's end that an answer speaks of. An answer with neither a
// success nor an error, or with both, is none.
func (a Answer) Ended() (hero.JobStatus, map[string]string, bool) {
	switch {
	case a.Success != nil && a.Error == nil:
		return hero.JobFinished, ReadResult(*a.Success), true
	case a.Error != nil && a.Success == nil:
		return hero.JobError, map[string]string{hero.ResultError: *a.Error}, true
	}
	return "", nil, false
}

// ResultText writes a result as one text: the output alone where there is
// nothing else, otherwise all of it as a JSON object.
func ResultText(result map[string]string) string {
	if output, ok := result[hero.ResultOutput]; ok && len(result) == 1 {
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
		return map[string]string{hero.ResultOutput: text}
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

// State is what job.status gives.
type State struct {
	JobID       ID     `json:"job_id"`
	Status      string `json:"status"`
	CreatedAt   string `json:"created_at"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
}

// Job is the state in our words; supervisors use several.
func (s State) Job() (hero.JobStatus, bool) {
	switch word := strings.ToLower(strings.ReplaceAll(s.Status, "_", "")); word {
	case "created", "queued", "dispatched", "pending", "ready":
		return hero.JobDispatched, true
	case "waitingforprerequisites":
		return hero.JobWaiting, true
	case "started", "running":
		return hero.JobStarted, true
	case "finished", "completed", "success", "succeeded":
		return hero.JobFinished, true
	case "error", "failed", "stopped", "cancelled":
		return hero.JobError, true
	}
	return "", false
}
