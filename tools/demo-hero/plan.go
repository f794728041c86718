package main

import (
	"embed"
	"fmt"
	"maps"
	"strconv"
)

//go:embed scripts/*.py
var scripts embed.FS

// Who asks for the flows, and where.
const (
	actorID   = 12
	contextID = 7
	runnerID  = 1
)

// plan is a flow and what is to come of it.
type plan struct {
	id   uint32
	env  map[string]string
	jobs []task
}

// task is one job of a plan, and what is to come of it.
type task struct {
	id       uint32
	name     string
	script   string // file, without .py
	depends  []uint32
	needs    string // its prerequisite
	env      map[string]string
	retries  int
	attempts int // wanted; 0 means 1
	result   map[string]string
}

func (t task) wanted() int { return max(t.attempts, 1) }

// approval is what the last job of the first act waits for.
const approval = "approved"

// saga is the first act: a diamond (2001 to 2004), a fan-out (2005 to 2009), a job
// that fails twice, one that changes a variable of the flow, and one that waits
// for somebody's word.
func saga() plan {
	p := plan{id: 33, env: map[string]string{"LANGUAGE": "old norse", "TONE": "solemn"}, jobs: []task{
		{id: 2001, name: "text", result: output("12 verses")},
		{id: 2002, name: "letters", depends: ids(2001), result: map[string]string{"letters": "204"}},
		{id: 2003, name: "words", depends: ids(2001), result: map[string]string{"words": "72"}},
		{id: 2004, name: "average", depends: ids(2002, 2003), result: map[string]string{"letters per word": "2.83"}},
	}}
	for part := range 4 {
		p.jobs = append(p.jobs, task{
			id: uint32(2005 + part), name: "part " + strconv.Itoa(part+1), script: "part", depends: ids(2001),
			env: map[string]string{"PART": strconv.Itoa(part)}, result: output("18"),
		})
	}
	p.jobs = append(p.jobs,
		task{id: 2009, name: "total", depends: ids(2005, 2006, 2007, 2008), result: map[string]string{"total": "72", "parts": "4"}},
		task{id: 2010, name: "flaky", depends: ids(2001), retries: 3, attempts: 3, result: output("landed in run 3")},
		task{id: 2011, name: "greet", env: map[string]string{"TONE": "merry"}, result: map[string]string{"language": "old norse", "tone": "merry"}},
		task{id: 2012, name: "publish", depends: ids(2004, 2009, 2010, 2011), needs: approval, result: map[string]string{"title": "a saga of 72 words"}})
	return p
}

// storm is the second act: two jobs run when the processes are killed, so they
// run twice.
func storm() plan {
	p := plan{id: 34, jobs: []task{{id: 2101, name: "text", result: output("12 verses")}}}
	for i, weight := range []string{"7", "35"} {
		p.jobs = append(p.jobs, task{
			id: uint32(2102 + i), name: "gate " + strconv.Itoa(i+1), script: "gate", depends: ids(2101),
			env: map[string]string{"WEIGHT": weight}, retries: 2, attempts: 2, result: output(weight),
		})
	}
	p.jobs = append(p.jobs, task{
		id: 2104, name: "weigh", depends: ids(2102, 2103),
		env: map[string]string{"GATES": "2102 2103"}, result: map[string]string{"weight": "42"},
	})
	return p
}

// gates are the jobs of the second act that the kill meets.
func gates() []uint32 { return ids(2102, 2103) }

func ids(list ...uint32) []uint32 { return list }

// output is the result of a script that prints text.
func output(text string) map[string]string { return map[string]string{"output": text + "\n"} }

// source is the script as it is sent.
func (t task) source() (string, error) {
	name := t.script
	if name == "" {
		name = t.name
	}
	prelude, err := scripts.ReadFile("scripts/prelude.py")
	if err != nil {
		return "", err
	}
	body, err := scripts.ReadFile("scripts/" + name + ".py")
	return string(prelude) + string(body), err
}

// jobTimeout is of every job, in seconds: far more than one takes on a busy
// machine. It is also for how long one waits for its prerequisite.
const jobTimeout = 60

// register creates the plan's jobs and its flow. work is the folder that the
// scripts share.
func (p plan) register(call caller, work string) error {
	list := []uint32{}
	for _, t := range p.jobs {
		source, err := t.source()
		if err != nil {
			return err
		}
		env := map[string]string{"JOB": fmt.Sprint(t.id)}
		maps.Copy(env, t.env)
		job := map[string]any{
			"id": t.id, "caller_id": actorID, "script": source, "script_type": "python", "timeout": jobTimeout,
			"retries": t.retries, "env_vars": env, "prerequisites": []string{}, "dependends": append([]uint32{}, t.depends...),
		}
		if t.needs != "" {
			job["prerequisites"] = []string{t.needs}
		}
		if err := call("job.create", map[string]any{"context_id": contextID, "job": job}, nil); err != nil {
			return err
		}
		list = append(list, t.id)
	}
	env := map[string]string{"WORK": work}
	maps.Copy(env, p.env)
	flow := map[string]any{"id": p.id, "caller_id": actorID, "jobs": list, "env_vars": env}
	return call("flow.create", map[string]any{"context_id": contextID, "flow": flow}, nil)
}

// attempts is how many runs are wanted in all.
func (p plan) attempts() int {
	n := 0
	for _, t := range p.jobs {
		n += t.wanted()
	}
	return n
}
