package supervisor

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode"

	"edda/hero"
)

// The wire types that supervisors and runners share.
type (
	// ID is a string on the wire.
	ID = hero.WireID
	// Answer is the result of job.run.
	Answer = hero.JobAnswer
	// State is the result of job.status.
	State = hero.JobState
	// Job is a job on the wire.
	Job = hero.WireJob
)

func toID(n uint32) ID { return hero.ToWireID(n) }

// FromHero converts a job of Redis to the wire.
func FromHero(j hero.Job) Job {
	executor := cmp.Or(j.Executor, string(j.ScriptType))
	env := j.EnvVars
	if env == nil {
		env = map[string]string{} // the field is required
	}
	return Job{
		ID: idOf(j), CallerID: toID(j.CallerID), ContextID: toID(j.ContextID),
		Payload: j.Script, Runner: executor, Executor: executor, Timeout: j.Timeout, EnvVars: env,
		CreatedAt: rfc3339(j.CreatedAt), UpdatedAt: rfc3339(j.UpdatedAt),
		Signatures: j.Signatures, QueueTimeout: j.QueueTimeout, Priority: j.Priority, Attempt: j.Attempt, Status: string(j.Status),
		Retries: j.Retries, Prerequisites: j.Prerequisites, Dependends: j.Dependends, Unreadable: j.Unreadable,
	}
}

// ToRun converts a job for a supervisor to run. It omits dependencies and prerequisites,
// which the sender has checked, and the retries of a flow's job, which the flow makes.
func ToRun(j hero.Job) Job {
	wire := FromHero(j)
	wire.Status, wire.Prerequisites, wire.Dependends = "", nil, nil
	if j.FlowID != 0 {
		wire.Retries = 0
	}
	return wire
}

// ToHero converts a job of the wire for Redis.
func ToHero(j Job) (hero.Job, error) {
	var ids [3]uint32
	var name string
	var err error
	if ids[0], name, err = jobNumber("job.id", j.ID); err != nil {
		return hero.Job{}, err
	}
	if ids[1], err = numbered("job.caller_id", j.CallerID, callerWords); err != nil {
		return hero.Job{}, err
	}
	if ids[2], err = numbered("job.context_id", j.ContextID, contextWords); err != nil {
		return hero.Job{}, err
	}
	executor := cmp.Or(j.Executor, j.Runner)
	switch {
	case ids[2] == 0:
		return hero.Job{}, fmt.Errorf("job.context_id: 0 is the actors' database, name the job's context")
	case strings.TrimSpace(j.Payload) == "":
		return hero.Job{}, fmt.Errorf("job.payload is missing: it is the script to run")
	case executor == "":
		return hero.Job{}, fmt.Errorf("job.executor is missing: say what runs the payload, such as python")
	}
	created, err := unix("job.created_at", j.CreatedAt)
	if err != nil {
		return hero.Job{}, err
	}
	priority, err := priorityOf(j.Priority)
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
		CreatedAt: created, UpdatedAt: updated, Signatures: j.Signatures, QueueTimeout: j.QueueTimeout, Priority: priority, Attempt: j.Attempt, Status: hero.JobDispatched,
		Retries: j.Retries, Prerequisites: j.Prerequisites, Dependends: j.Dependends, Name: name,
	}, nil
}

// priorityOf reads the priority. A missing one is normal.
func priorityOf(p hero.Priority) (hero.Priority, error) {
	if p == hero.PriorityNormal {
		return p, nil
	}
	p, err := hero.ParsePriority(string(p))
	if err != nil {
		return p, fmt.Errorf("job.priority: %w", err)
	}
	return p, nil
}

// The words that may precede a number in the id of a context or a caller, as in the
// documents: context-1, client-1.
const (
	contextWords = "context"
	callerWords  = "client caller actor"
)

// numbered reads the id of a context or an actor: a decimal number, alone or behind one
// of the words.
func numbered(field string, id ID, words string) (uint32, error) {
	for _, word := range strings.Fields(words) {
		if number, ok := strings.CutPrefix(string(id), word+"-"); ok {
			id = ID(number)
			break
		}
	}
	n, err := id.Uint32(field)
	if err != nil {
		err = fmt.Errorf("%w, alone or as %s-<number>", err, strings.Fields(words)[0])
	}
	return n, err
}

func allNumbered(field string, ids []ID, words string) ([]uint32, error) {
	var out []uint32
	for _, id := range ids {
		n, err := numbered(field, id, words)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// jobNumber reads the id of a job. An id that is no number is a name, whose hash is the
// number of the job.
func jobNumber(field string, id ID) (uint32, string, error) {
	if n, err := id.Uint32(field); err == nil {
		return n, "", nil
	}
	name := string(id)
	if strings.Trim(name, "0123456789") == "" {
		_, err := id.Uint32(field)
		return 0, "", err
	}
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return 0, "", fmt.Errorf("%s: %.40q is no id: want a number below 4294967296 or a name of at most %d characters", field, name, maxName)
	}
	sum := sha256.Sum256([]byte("job " + name))
	return max(1, binary.BigEndian.Uint32(sum[:])), name, nil
}

// idOf returns the job's id as its client gave it.
func idOf(j hero.Job) ID {
	if j.Name != "" {
		return ID(j.Name)
	}
	return toID(j.ID)
}

func rfc3339(seconds uint32) string { return hero.WireTime(time.Unix(int64(seconds), 0)) }

// unix reads a time. A missing one is 0, as in a job that was never stored.
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
