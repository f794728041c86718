package runner

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"edda/hero"
	"edda/hero/script"
)

// text is an id on the wire: a string, and of lenient clients a number.
type text string

// UnmarshalJSON reads a string or a number.
func (s *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(s))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("an id is a string, not %.40s", b)
	}
	*s = text(n)
	return nil
}

// wireJob is a job as supervisors send it.
type wireJob struct {
	ID        text              `json:"id"`
	CallerID  text              `json:"caller_id"`
	ContextID text              `json:"context_id"`
	Payload   string            `json:"payload"`
	Runner    string            `json:"runner"`
	Executor  string            `json:"executor"`
	Timeout   uint32            `json:"timeout"` // seconds
	EnvVars   map[string]string `json:"env_vars"`
	Attempt   uint32            `json:"attempt,omitempty"` // Edda's own
}

// filled says what runs the payload where only one of the two fields does.
func (j wireJob) filled() wireJob {
	if j.Executor == "" {
		j.Executor = j.Runner
	}
	j.Executor = strings.ToLower(j.Executor)
	return j
}

func (j wireJob) id() remoteID { return remoteID{j.ContextID, j.CallerID, j.ID} }

func (j wireJob) key() string { return "job:" + string(j.CallerID) + ":" + string(j.ID) }

// same tells whether two are the same work.
func (j wireJob) same(k wireJob) bool {
	return j.Payload == k.Payload && j.Executor == k.Executor && j.Timeout == k.Timeout && maps.Equal(j.EnvVars, k.EnvVars)
}

func (j wireJob) script(runner uint32) script.Script {
	return script.Script{ID: j.key(), Type: j.Executor, Source: j.Payload, Env: j.EnvVars, Context: string(j.ContextID),
		Timeout: time.Duration(j.Timeout) * time.Second, Who: fmt.Sprintf("actor %s by runner%d", j.CallerID, runner)}
}

type runParams struct {
	Secret string  `json:"secret,omitempty"`
	Job    wireJob `json:"job"`
}

type idParams struct {
	Secret    string `json:"secret,omitempty"`
	JobID     text   `json:"job_id"`
	CallerID  text   `json:"caller_id,omitempty"`
	ContextID text   `json:"context_id,omitempty"`
}

// answer is the end of a job: a job that failed is a successful call.
type answer struct {
	Success *string `json:"success,omitempty"`
	Error   *string `json:"error,omitempty"`
}

func answerOf(out script.Outcome) answer {
	if !out.OK {
		why := out.Result[hero.ResultError]
		return answer{Error: &why}
	}
	all, only := out.Result[hero.ResultOutput]
	if !only || len(out.Result) != 1 {
		b, _ := json.Marshal(out.Result) // strings only: cannot fail
		all = string(b)
	}
	return answer{Success: &all}
}

// state is where a job stands.
type state struct {
	JobID       text   `json:"job_id"`
	Status      string `json:"status"`
	CreatedAt   string `json:"created_at"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func lines(all string) []string {
	if all == "" {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(all, "\n"), "\n")
}
