package runner

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"edda/hero"
	"edda/hero/script"
)

// wireJob is a job as supervisors send it.
type wireJob struct {
	ID        hero.WireID       `json:"id"`
	CallerID  hero.WireID       `json:"caller_id"`
	ContextID hero.WireID       `json:"context_id"`
	Payload   string            `json:"payload"`
	Runner    string            `json:"runner"`
	Executor  string            `json:"executor"`
	Timeout   uint32            `json:"timeout"` // of its execution, in seconds
	EnvVars   map[string]string `json:"env_vars"`
	Attempt   uint32            `json:"attempt,omitempty"` // Edda's own
	// QueueTimeout is Edda's own: how long the job may wait for a place here, in seconds.
	QueueTimeout uint32 `json:"queue_timeout,omitempty"`
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
	Secret    string      `json:"secret,omitempty"`
	JobID     hero.WireID `json:"job_id"`
	CallerID  hero.WireID `json:"caller_id,omitempty"`
	ContextID hero.WireID `json:"context_id,omitempty"`
}

// answerOf is the end of a job: a job that failed is a successful call.
func answerOf(out script.Outcome) hero.JobAnswer {
	if !out.OK {
		why := out.Result[hero.ResultError]
		return hero.JobAnswer{Error: &why}
	}
	all := hero.ResultText(out.Result)
	return hero.JobAnswer{Success: &all}
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
