package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"

	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

type prerequisite struct {
	in
	Name string `json:"name"`
}

// runMethods are the methods that run flows.
func (c *Coordinator) runMethods() []jsonrpc.Method {
	return []jsonrpc.Method{
		define(c, "flow.dag", "The flow's graph and how far it is. Readers, executors and admins may.", "", []int{jsonrpc.NotFound, jsonrpc.DagError}, c.dagOf),
		define(c, "flow.start", "Run the flow. Admins may. True: started now; false: it runs already. A flow in error goes on where it failed.", "",
			[]int{jsonrpc.NotFound, jsonrpc.AlreadyExists, jsonrpc.DagError}, c.startFlow),
		define(c, "flow.cancel", "End the flow now. Admins may. True: cancelled now; false: it does not run.", "", []int{jsonrpc.NotFound}, c.cancelFlow),
		define(c, "flow.prerequisite_met", "Say that an external condition holds, and get the jobs it made ready. Executors and admins may.", "",
			[]int{jsonrpc.NotFound}, c.met),
	}
}

func (c *Coordinator) startFlow(ctx context.Context, p in) (bool, error) {
	f, err := c.seenFlow(ctx, p, mayAdmin())
	if err != nil {
		return false, err
	}
	started, err := c.begin(ctx, p)
	if err == nil && started {
		c.startShown(ctx, f)
	}
	return started, err
}

// begin starts the flow, under the lock of its context.
func (c *Coordinator) begin(ctx context.Context, p in) (bool, error) {
	unlock, err := c.locks.lock(ctx, p.ContextID)
	if err != nil {
		return false, err
	}
	defer unlock()
	f, err := c.loadedFlow(ctx, p.ContextID, p.ID) // again, under the lock
	if err != nil {
		return false, err
	}
	s, ran, err := c.flows.State(ctx, p.ContextID, p.ID)
	switch {
	case err != nil:
		return false, err
	case ran && !s.Ended():
		return false, nil
	case ran && s.Status == hero.FlowFinished:
		return false, conflict(f.Key(), "it is finished, and has its results", "create another flow to run the jobs again")
	}
	d, err := c.definition(ctx, f)
	if err != nil {
		return false, err
	}
	return c.flows.Start(ctx, d)
}

// definition reads the flow's jobs, which belong to its creator.
func (c *Coordinator) definition(ctx context.Context, f hero.Flow) (flow.Definition, error) {
	var jobs []hero.Job
	for _, id := range f.Jobs {
		j, err := c.db.Job(ctx, f.ContextID, f.CallerID, id)
		if errors.Is(err, redisdb.ErrNotFound) {
			continue // Define names all that are missing
		}
		if err != nil {
			return flow.Definition{}, err
		}
		jobs = append(jobs, j)
	}
	return flow.Define(f, jobs)
}

// dagOf returns the graph of a flow that was started, else the one that a start would run.
func (c *Coordinator) dagOf(ctx context.Context, p in) (flow.Graph, error) {
	f, err := c.seenFlow(ctx, p, mayRead())
	if err != nil {
		return flow.Graph{}, err
	}
	s, ran, err := c.flows.State(ctx, p.ContextID, p.ID)
	if err != nil {
		return flow.Graph{}, err
	}
	if ran {
		return s.Graph(), nil
	}
	d, err := c.definition(ctx, f)
	if err != nil {
		return flow.Graph{}, err
	}
	return d.State().Graph(), nil
}

func (c *Coordinator) cancelFlow(ctx context.Context, p in) (bool, error) {
	s, ran, err := c.run(ctx, p, mayAdmin())
	if err != nil || !ran || s.Ended() {
		return false, err
	}
	return c.flows.Cancel(ctx, p.ContextID, p.ID)
}

func (c *Coordinator) met(ctx context.Context, p prerequisite) ([]uint32, error) {
	if p.Name == "" {
		return nil, invalid("name", "is missing: it is the prerequisite that holds now")
	}
	if err := checkWord("name", p.Name, maxName); err != nil {
		return nil, err
	}
	s, ran, err := c.run(ctx, p.in, mayExecute())
	if err != nil {
		return nil, err
	}
	if !ran {
		return nil, notFound(hero.FlowKey(p.ID)+" as a started flow", "start it with flow.start first")
	}
	if names := awaited(s); !slices.Contains(names, p.Name) {
		return nil, invalid("name", "is no prerequisite of this flow's jobs; they wait for: %s", strings.Join(names, ", "))
	}
	ready, err := c.flows.Met(ctx, p.ContextID, p.ID, p.Name)
	return list(ready), err
}

// awaited returns the names of the flow's prerequisites.
func awaited(s flow.State) []string {
	var names []string
	for _, n := range s.Definition.Nodes {
		names = append(names, n.Prerequisites...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// run returns the state of a flow, for a caller that has the right.
func (c *Coordinator) run(ctx context.Context, p in, r right) (flow.State, bool, error) {
	if _, err := c.seenFlow(ctx, p, r); err != nil {
		return flow.State{}, false, err
	}
	return c.flows.State(ctx, p.ContextID, p.ID)
}
