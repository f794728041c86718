package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

type flowParams struct {
	ContextID uint32    `json:"context_id"`
	Flow      hero.Flow `json:"flow"`
	// Nodes may stand beside the flow or in it.
	Nodes []hero.FlowNode `json:"nodes,omitempty"`
	callerParams
}

type flowList struct {
	contextList
	Status hero.FlowStatus `json:"status,omitempty"` // lists only flows of this status
}

func (c *Coordinator) flowMethods() []jsonrpc.Method {
	return append([]jsonrpc.Method{
		define(c, "flow.create", "Store a flow. Admins may, each in its own name; only its creator changes it. Its jobs may be created later.", "flow",
			[]int{jsonrpc.NotFound, jsonrpc.AlreadyExists, jsonrpc.DagError}, c.createFlow),
		define(c, "flow.load", "A flow, with its status and result. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.loadFlow),
		define(c, "flow.list", "The context's flows, by id, of one status if given. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.listFlows),
		define(c, "flow.delete", "Remove a flow that does not run. Admins may. Its jobs stay.", "", []int{jsonrpc.NotFound, jsonrpc.AlreadyExists}, c.deleteFlow),
	}, c.runMethods()...)
}

func (c *Coordinator) createFlow(ctx context.Context, p flowParams) (hero.Flow, error) {
	caller, err := c.creator(ctx, p.callerParams, p.Flow.CallerID)
	if err != nil {
		return hero.Flow{}, err
	}
	p.Flow.CallerID = caller
	f, err := checkFlow(p)
	if err != nil {
		return hero.Flow{}, err
	}
	unlock, err := c.enter(ctx, p.ContextID, callerParams{ActorID: caller}, mayAdmin())
	if err != nil {
		return hero.Flow{}, err
	}
	defer unlock()
	stored, err := c.db.Flow(ctx, p.ContextID, f.ID)
	switch {
	case errors.Is(err, redisdb.ErrNotFound):
		f.Status = hero.FlowDispatched
		err = c.unused(ctx, f)
	case err == nil && stored.CallerID == caller && sameFlow(stored, f):
		return c.showFlow(ctx, stored)
	case err == nil:
		f.Status, f.Result, f.CreatedAt = stored.Status, stored.Result, stored.CreatedAt
		err = c.mayChange(ctx, stored, caller)
	}
	if err != nil {
		return hero.Flow{}, err
	}
	if err := c.db.PutFlow(ctx, f); err != nil {
		return hero.Flow{}, err
	}
	return c.loadedFlow(ctx, p.ContextID, f.ID)
}

// checkFlow refuses an invalid flow, and fills in what may be left out.
func checkFlow(p flowParams) (hero.Flow, error) {
	f := p.Flow
	if f.Nodes == nil {
		f.Nodes = p.Nodes
	}
	err := cmp.Or(
		checkID("flow.id", f.ID),
		checkKnown("flow", f.Unknown, "a flow has id, caller_id, context_id, name, jobs, env_vars and nodes"),
		sameContext("flow.context_id", &f.ContextID, p.ContextID),
		checkWord("flow.name", f.Name, maxName),
		checkEnv("flow.env_vars", f.EnvVars),
		checkNodes("flow.nodes", f.Nodes),
	)
	if err != nil {
		return f, err
	}
	if len(f.Jobs) == 0 { // a flow may be given as nodes alone
		for _, n := range f.Nodes {
			f.Jobs = append(f.Jobs, n.ID)
		}
	}
	if err := checkIDs("flow.jobs", f.Jobs); err != nil {
		return f, err
	}
	f.Jobs, f.EnvVars, f.Result, f.CreatedAt, f.UpdatedAt = list(f.Jobs), dict(f.EnvVars), map[string]string{}, 0, 0
	for i := range f.Nodes {
		f.Nodes[i].NodeStatus = "" // flow.dag shows the server's
	}
	return f, checkGraph(f)
}

func checkNodes(field string, nodes []hero.FlowNode) error {
	if err := checkCount(field, len(nodes)); err != nil {
		return err
	}
	var ids []uint32
	for i, n := range nodes {
		at := fmt.Sprintf("%s[%d]", field, i)
		err := cmp.Or(
			checkKnown(at, n.Unknown, "a node has id, name, depends, prerequisites and supervisor_url"),
			checkWord(at+".name", n.Name, maxName),
			checkIDs(at+".depends", n.Depends),
			checkWords(at+".prerequisites", n.Prerequisites, maxName),
			CheckURL(at+".supervisor_url", n.SupervisorURL),
		)
		if err != nil {
			return err
		}
		ids = append(ids, n.ID)
	}
	return checkIDs(field, ids)
}

// checkGraph refuses a graph that cannot run with any jobs: they may be created later.
func checkGraph(f hero.Flow) error {
	if len(f.Jobs) == 0 {
		return nil
	}
	jobs := make([]hero.Job, len(f.Jobs))
	for i, id := range f.Jobs {
		jobs[i] = hero.Job{ID: id}
	}
	_, err := flow.Define(f, jobs)
	return err
}

// unused refuses the id of a flow that ran and was deleted: its progress would count for the
// new one.
func (c *Coordinator) unused(ctx context.Context, f hero.Flow) error {
	_, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
	if err == nil && ran {
		return conflict(f.Key(), "a flow of this id ran here before and was deleted", "give the flow an id that was never used")
	}
	return err
}

func (c *Coordinator) mayChange(ctx context.Context, stored hero.Flow, caller uint32) error {
	if stored.CallerID != caller {
		return conflict(stored.Key(), fmt.Sprintf("it belongs to actor %d, and only its creator changes it", stored.CallerID), "give the flow another id")
	}
	fixed, err := c.fixed(ctx, stored)
	if err == nil && fixed != "" {
		return conflict(stored.Key(), "it "+fixed+", and would change", "create another flow, or cancel this one first")
	}
	return err
}

// fixed returns why a flow may not change: it runs, or has finished. A flow in error may be
// changed and started again.
func (c *Coordinator) fixed(ctx context.Context, f hero.Flow) (string, error) {
	s, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
	switch {
	case err != nil || !ran:
		return "", err
	case !s.Ended():
		return "is started", nil
	case s.Status == hero.FlowFinished:
		return "is finished", nil
	case !f.Status.Ended(): // the outbox is about to write its end to Redis
		return "is ending", nil
	}
	return "", nil
}

func sameFlow(a, b hero.Flow) bool {
	return a.Name == b.Name && slices.Equal(a.Jobs, b.Jobs) && maps.Equal(a.EnvVars, b.EnvVars) && (len(a.Nodes) == 0 && len(b.Nodes) == 0 || reflect.DeepEqual(a.Nodes, b.Nodes))
}

func (c *Coordinator) loadFlow(ctx context.Context, p in) (hero.Flow, error) {
	f, err := c.seenFlow(ctx, p, mayRead())
	if err != nil {
		return hero.Flow{}, err
	}
	if p.CallerID == 0 {
		p.CallerID = f.CallerID // without a token, a call that names no caller is its creator's
	}
	v, err := c.redaction(ctx, p.ContextID, p.callerParams)
	return v.flow(f), err
}

// seenFlow loads a flow for a caller that has the right; a call that names no caller is
// the flow's creator.
func (c *Coordinator) seenFlow(ctx context.Context, p in, r right) (hero.Flow, error) {
	if err := c.see(ctx, p, r); err != nil {
		return hero.Flow{}, err
	}
	f, err := c.loadedFlow(ctx, p.ContextID, p.ID)
	if err != nil {
		return hero.Flow{}, err
	}
	p.CallerID, err = c.caller(ctx, p.callerParams, f.CallerID)
	if err != nil {
		return hero.Flow{}, err
	}
	return f, c.see(ctx, p, r)
}

func (c *Coordinator) loadedFlow(ctx context.Context, context, id uint32) (hero.Flow, error) {
	f, err := c.db.Flow(ctx, context, id)
	if err != nil {
		return f, orNotFound(err, hero.FlowKey(id), "look with flow.list, or create it with flow.create")
	}
	return c.showFlow(ctx, f)
}

// showFlow corrects the status of a flow that Redis does not show as started yet. Its end
// shows when its result is in Redis.
func (c *Coordinator) showFlow(ctx context.Context, f hero.Flow) (hero.Flow, error) {
	s, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
	if err == nil && ran && (!s.Ended() || !f.Status.Ended()) {
		f.Status = hero.FlowStarted
	}
	return f, err
}

func (c *Coordinator) listFlows(ctx context.Context, p flowList) ([]hero.Flow, error) {
	v, err := c.browse(ctx, p.contextList)
	if err != nil {
		return nil, err
	}
	all, err := c.db.Flows(ctx, p.ContextID)
	all, err = withUnreadable(c, p.ContextID, all, err, hero.ReadFlow, func(f *hero.Flow) *string { return &f.Unreadable })
	if err != nil {
		return nil, err
	}
	if p.Status != "" { // showFlow decides the status
		for i := range all {
			if all[i], err = c.showFlow(ctx, all[i]); err != nil {
				return nil, err
			}
		}
		all = slices.DeleteFunc(all, func(f hero.Flow) bool { return f.Status != p.Status })
	}
	out := cut(p.page, all, v.flow)
	for i := range out {
		if out[i], err = c.showFlow(ctx, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *Coordinator) deleteFlow(ctx context.Context, p in) (bool, error) {
	f, err := c.seenFlow(ctx, p, mayAdmin())
	if err != nil {
		return false, err
	}
	unlock, err := c.locks.lock(ctx, p.ContextID)
	if err != nil {
		return false, err
	}
	defer unlock()
	s, ran, err := c.flows.State(ctx, p.ContextID, p.ID)
	if err != nil {
		return false, err
	}
	if ran && !s.Ended() {
		return false, conflict(f.Key(), "it is started", "cancel it first, with flow.cancel")
	}
	return true, c.db.DeleteFlow(ctx, p.ContextID, p.ID)
}
