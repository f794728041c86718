package router

import (
	"fmt"
	"slices"

	"edda/hero"
)

// jobRoute is one job of a message and its route.
type jobRoute struct {
	job hero.Job
	url string // the node's supervisor_url
	// node is the job's node in the message's graph, nil where it has none.
	node *hero.FlowNode
}

// routesOf lists the jobs of a message: those that its nodes name, with their URLs, and
// those that it embeds. A job that is not embedded has only its id.
func routesOf(m hero.Message) ([]jobRoute, error) {
	byID := map[uint32]hero.Job{}
	for _, j := range m.Job {
		if _, twice := byID[j.ID]; twice {
			return nil, fmt.Errorf("job %d is in the message twice", j.ID)
		}
		if len(j.Unknown) > 0 {
			return nil, fmt.Errorf("job %d has a field %q, which is not understood here: leave it out", j.ID, j.Unknown[0])
		}
		byID[j.ID] = j
	}
	var out []jobRoute
	seen := map[uint32]bool{}
	for _, n := range m.Nodes {
		if seen[n.ID] {
			return nil, fmt.Errorf("node %d is in the message twice", n.ID)
		}
		if len(n.Unknown) > 0 {
			return nil, fmt.Errorf("node %d has a field %q, which is not understood here: leave it out", n.ID, n.Unknown[0])
		}
		seen[n.ID] = true
		j, ok := byID[n.ID]
		if !ok {
			j = hero.Job{ID: n.ID}
		}
		out = append(out, jobRoute{job: j, url: n.SupervisorURL, node: &n})
	}
	for _, j := range m.Job {
		if !seen[j.ID] {
			out = append(out, jobRoute{job: j})
		}
	}
	if id, ok := inCycle(out); ok && m.FlowID == 0 {
		return nil, fmt.Errorf("job %d waits for itself, through jobs of the message that depend on each other", id)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the message carries no job: fill job or nodes, or name a flow to run with flow_id")
	}
	return out, nil
}

// inCycle finds a job of the message that can never run, because jobs wait for each other.
func inCycle(list []jobRoute) (uint32, bool) {
	open := map[uint32][]uint32{}
	for _, e := range list {
		open[e.job.ID] = e.needs()
	}
	for n := -1; n != len(open); {
		n = len(open)
		for id, needs := range open {
			if !slices.ContainsFunc(needs, func(need uint32) bool { _, is := open[need]; return is }) {
				delete(open, id)
			}
		}
	}
	for id := range open {
		return id, true
	}
	return 0, false
}

// needs lists the jobs that it depends on. The node goes before the job, as in a flow.
func (e jobRoute) needs() []uint32 {
	if e.node != nil && len(e.node.Depends) > 0 {
		return e.node.Depends
	}
	return e.job.Dependends
}

// complete returns the job with the fields that it gets from its message.
func (e jobRoute) complete(m hero.Message, context uint32) hero.Job {
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
	if e.node != nil && m.FlowID == 0 { // the node goes before the job, as in a flow
		j.Dependends = e.needs()
		if len(e.node.Prerequisites) > 0 {
			j.Prerequisites = e.node.Prerequisites
		}
	}
	j.FlowID, j.Attempt, j.MessageKey = m.FlowID, m.Attempt, m.Key()
	j.Result, j.Status = nil, hero.JobDispatched
	return j
}
