package router

import (
	"fmt"

	"edda/hero"
)

// errand is one job of a message, with how it is to be routed.
type errand struct {
	job hero.Job
	url string // the node's supervisor_url
}

// wanted lists the jobs of a message, with the ids of those that are not in it
// and are to be loaded. Where there are nodes they say which jobs and where to;
// without them it is the embedded jobs.
func wanted(m hero.Message) ([]errand, error) {
	byID := map[uint32]hero.Job{}
	for _, j := range m.Job {
		if _, twice := byID[j.ID]; twice {
			return nil, fmt.Errorf("job %d is in the message twice", j.ID)
		}
		byID[j.ID] = j
	}
	var out []errand
	seen := map[uint32]bool{}
	for _, n := range m.Nodes {
		if seen[n.ID] {
			return nil, fmt.Errorf("node %d is in the message twice", n.ID)
		}
		seen[n.ID] = true
		j, ok := byID[n.ID]
		if !ok {
			j = hero.Job{ID: n.ID}
		}
		out = append(out, errand{job: j, url: n.SupervisorURL})
	}
	for _, j := range m.Job {
		if !seen[j.ID] {
			out = append(out, errand{job: j})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the message carries no job: fill job or nodes")
	}
	return out, nil
}

// loaded tells whether the job came with its script, or is only an id so far.
func (e errand) loaded() bool { return e.job.ScriptType != "" || e.job.Script != "" }

// complete fills in what a job gets from its message.
func (e errand) complete(m hero.Message, context uint32) hero.Job {
	j := e.job
	if j.CallerID == 0 {
		j.CallerID = m.CallerID
	}
	if j.ContextID == 0 {
		j.ContextID = context
	}
	if j.Executor == "" {
		j.Executor = string(j.ScriptType)
	}
	if j.ScriptType == "" {
		j.ScriptType = hero.ScriptType(j.Executor)
	}
	j.FlowID, j.Attempt, j.MessageKey = m.FlowID, m.Attempt, m.Key()
	j.Result, j.Status = nil, hero.JobDispatched
	return j
}
