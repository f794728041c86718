package supervisor

import (
	"encoding/json"
	"fmt"
	"time"

	"edda/hero"
)

// What supervisors and runners say in the same words.
type (
	// ID is a string on the wire.
	ID = hero.WireID
	// Answer is what job.run gives.
	Answer = hero.JobAnswer
	// State is what job.status gives.
	State = hero.JobState
)

func toID(n uint32) ID { return hero.ToWireID(n) }

// Job is a job as supervisors have it: the script is the payload, ids are
// strings and times RFC 3339.
type Job struct {
	ID        ID                `json:"id"`
	CallerID  ID                `json:"caller_id"`
	ContextID ID                `json:"context_id"`
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
	// Attempt is Edda's own: a higher one may run a job again that failed.
	Attempt uint32 `json:"attempt,omitempty"`
	// Retries, Prerequisites and Dependends are Edda's own too: a supervisor that
	// knows them honours them.
	Retries       uint8    `json:"retries,omitempty"`
	Prerequisites []string `json:"prerequisites,omitempty"`
	Dependends    []uint32 `json:"dependends,omitempty"`
	// Status is in answers only.
	Status string `json:"status,omitempty"`
}

// FromHero is the job as a supervisor shows it.
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
		Signatures: j.Signatures, QueueTimeout: j.QueueTimeout, Attempt: j.Attempt, Status: string(j.Status),
		Retries: j.Retries, Prerequisites: j.Prerequisites, Dependends: j.Dependends,
	}
}

// ToRun is the job as it goes to a supervisor. Who sends it has looked after what it
// waits for, and a flow tries its jobs again itself.
func ToRun(j hero.Job) Job {
	wire := FromHero(j)
	wire.Status, wire.Prerequisites, wire.Dependends = "", nil, nil
	if j.FlowID != 0 {
		wire.Retries = 0
	}
	return wire
}

// Hero is the job as it lies in Redis.
func (j Job) Hero() (hero.Job, error) {
	var ids [3]uint32
	for i, f := range []struct {
		name string
		id   ID
	}{{"job.id", j.ID}, {"job.caller_id", j.CallerID}, {"job.context_id", j.ContextID}} {
		var err error
		if ids[i], err = f.id.Uint32(f.name); err != nil {
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
		CreatedAt: created, UpdatedAt: updated, Signatures: j.Signatures, QueueTimeout: j.QueueTimeout, Attempt: j.Attempt, Status: hero.JobDispatched,
		Retries: j.Retries, Prerequisites: j.Prerequisites, Dependends: j.Dependends,
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

// answerOf is the answer for a job that ended.
func answerOf(j hero.Job) Answer {
	if j.Status == hero.JobFinished {
		text := hero.ResultText(j.Result)
		return Answer{Success: &text}
	}
	text := j.Result[hero.ResultError]
	if text == "" {
		text = "failed without saying why"
	}
	return Answer{Error: &text}
}
