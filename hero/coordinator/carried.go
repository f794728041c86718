package coordinator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"edda"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

// The methods of this file run the flows that messages carry, for the router. They check
// what the JSON-RPC methods check. An error is edda.Permanent if the same call fails again.

// FlowBegan reports whether the flow is stored and was started.
func (c *Coordinator) FlowBegan(ctx context.Context, context, id uint32) (bool, error) {
	f, err := c.db.Flow(ctx, context, id)
	if errors.Is(err, redisdb.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		f, err = c.showFlow(ctx, f)
	}
	return err == nil && f.Status != hero.FlowDispatched, final(err)
}

// FlowRun identifies the flow's last run: it returns another text after each start.
func (c *Coordinator) FlowRun(ctx context.Context, context, id uint32) (string, error) {
	s, ran, err := c.flows.State(ctx, context, id)
	if err != nil || !ran {
		return "0", final(err)
	}
	return strconv.FormatUint(uint64(s.Base)+1, 10), nil
}

// RunFlow starts the flow that a message names, for the message's caller, unless it was
// started since FlowRun returned run. A finished flow stays finished. A flow that the
// message carries is created first, with its jobs. RunFlow may be repeated.
func (c *Coordinator) RunFlow(ctx context.Context, m hero.Message, carries bool, run string) error {
	now, err := c.FlowRun(ctx, m.ContextID, m.FlowID)
	if err != nil || now != run {
		return err
	}
	if carries {
		if err := c.storeCarried(ctx, m); err != nil {
			return final(err)
		}
	}
	at := in{ContextID: m.ContextID, ID: m.FlowID, callerParams: callerParams{CallerID: m.CallerID}}
	f, err := c.seenFlow(ctx, at, mayAdmin())
	if err == nil && f.Status != hero.FlowFinished {
		_, err = c.startFlow(ctx, at)
	}
	return final(err)
}

// storeCarried creates the flow of a message, and its jobs.
func (c *Coordinator) storeCarried(ctx context.Context, m hero.Message) error {
	by := callerParams{CallerID: m.CallerID}
	f := hero.Flow{ID: m.FlowID, CallerID: m.CallerID, ContextID: m.ContextID, Nodes: slices.Clone(m.Nodes)}
	for i, n := range f.Nodes {
		f.Jobs = append(f.Jobs, n.ID)
		if len(n.Depends) == 0 { // a message has an empty list instead of none
			f.Nodes[i].Depends = nil
		}
		if len(n.Prerequisites) == 0 {
			f.Nodes[i].Prerequisites = nil
		}
	}
	for _, j := range m.Job {
		if !slices.Contains(f.Jobs, j.ID) {
			f.Jobs = append(f.Jobs, j.ID)
		}
	}
	if _, err := c.createFlow(ctx, flowParams{ContextID: m.ContextID, Flow: f, callerParams: by}); err != nil {
		return err
	}
	for _, j := range m.Job {
		if _, err := c.createJob(ctx, jobParams{ContextID: m.ContextID, Job: j, callerParams: by}); err != nil {
			return err
		}
	}
	return nil
}

// FlowEnd returns the result of a flow that ended, with the reason if it failed. It returns
// nil while the flow runs.
func (c *Coordinator) FlowEnd(ctx context.Context, context, id uint32) (map[string]string, error) {
	f, err := c.loadedFlow(ctx, context, id)
	if err != nil || !f.Status.Ended() {
		return nil, final(err)
	}
	result := dict(maps.Clone(f.Result))
	if f.Status == hero.FlowError {
		s, _, err := c.flows.State(ctx, context, id)
		if err != nil {
			return nil, final(err)
		}
		result[hero.ResultError] = "the flow ended in error: " + s.Reason
	}
	return result, nil
}

// final classifies an error: edda.Permanent if the same call fails again.
func final(err error) error {
	if err == nil {
		return nil
	}
	no := translate(err)
	kind := edda.Permanent
	if no.Code == jsonrpc.StorageError || no.Code == jsonrpc.InternalError || no.Code == jsonrpc.Busy {
		kind = edda.Temporary
	}
	d, _ := no.Data.(Detail)
	return edda.Classify(kind, "%s: %s %s", no.Message, d.Field, d.Why)
}
