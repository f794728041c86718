package flow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"edda/hero"
)

// GraphError says why a flow's graph cannot run.
type GraphError struct {
	Why   string   // may have one %d, for N
	N     int      `json:",omitempty"`
	Nodes []uint32 `json:",omitempty"` // which jobs, where that helps
	// Cycle is the way round, its first id again at the end.
	Cycle []uint32 `json:",omitempty"`
}

func (e *GraphError) Error() string {
	why := e.Why
	if strings.Contains(why, "%d") {
		why = fmt.Sprintf(why, e.N)
	}
	switch {
	case len(e.Cycle) > 0:
		return why + ": " + join(e.Cycle, " → ")
	case len(e.Nodes) > 0:
		return why + ": " + join(e.Nodes, ", ")
	}
	return why
}

// maxNamed bounds the ids that one error names.
const maxNamed = 50

func join(ids []uint32, sep string) string {
	var words []string
	for i, id := range ids {
		if i == maxNamed {
			words = append(words, fmt.Sprintf("… and %d more", len(ids)-i))
			break
		}
		words = append(words, strconv.FormatUint(uint64(id), 10))
	}
	return strings.Join(words, sep)
}

func missingJobs(ids []uint32) error {
	return &GraphError{Why: "jobs of the flow do not exist: create them first", Nodes: slices.Compact(slices.Sorted(slices.Values(ids)))}
}

// cycle finds a way from a node back to itself; nil when there is none. It
// walks with a stack of its own: a chain may be as long as the flow.
func (d Definition) cycle() []uint32 {
	at := d.index()
	const (
		fresh = iota
		open  // on the way
		done
	)
	mark := make([]int, len(d.Nodes))
	next := make([]int, len(d.Nodes)) // dependency to look at
	for i := range d.Nodes {
		if mark[i] == done {
			continue
		}
		way := []int{i}
		mark[i] = open
		for len(way) > 0 {
			top := way[len(way)-1]
			if next[top] == len(d.Nodes[top].Depends) {
				mark[top] = done
				way = way[:len(way)-1]
				continue
			}
			dep := at[d.Nodes[top].Depends[next[top]]]
			next[top]++
			switch mark[dep] {
			case open:
				return d.round(way, dep)
			case fresh:
				mark[dep] = open
				way = append(way, dep)
			}
		}
	}
	return nil
}

// round is the part of the way that begins and ends at the node.
func (d Definition) round(way []int, at int) []uint32 {
	var out []uint32
	for _, i := range way[slices.Index(way, at):] {
		out = append(out, d.Nodes[i].ID)
	}
	return append(out, d.Nodes[at].ID)
}

// Graph is a flow as flow.dag shows it. All lists are in ascending order.
type Graph struct {
	FlowID    uint32 `json:"flow_id"`
	CallerID  uint32 `json:"caller_id"`
	ContextID uint32 `json:"context_id"`
	// Nodes by job id, in decimal.
	Nodes        map[string]GraphNode `json:"nodes"`
	Edges        [][2]uint32          `json:"edges"`         // dependency, dependent
	ReverseEdges [][2]uint32          `json:"reverse_edges"` // dependent, dependency
	Roots        []uint32             `json:"roots"`         // depend on nothing
	Leaves       []uint32             `json:"leaves"`        // nothing depends on them
	Levels       [][]uint32           `json:"levels"`        // each depends on those before it
	Started      []uint32             `json:"started"`       // dispatched or running
	Completed    []uint32             `json:"completed"`
	// FailedJob is the node that aborted the flow; null while there is none.
	FailedJob *uint32 `json:"failed_job"`
}

// GraphNode is one node of a Graph.
type GraphNode struct {
	ID            uint32          `json:"id"`
	Depends       []uint32        `json:"depends"`
	Prerequisites []string        `json:"prerequisites"`
	SupervisorURL string          `json:"supervisor_url"`
	NodeStatus    hero.NodeStatus `json:"node_status"`
	ScriptType    hero.ScriptType `json:"script_type"`
	Attempt       uint32          `json:"attempt,omitempty"` // dispatches so far
	Error         string          `json:"error,omitempty"`   // of the last attempt that failed
}

// Graph shows the state.
func (s State) Graph() Graph {
	d := s.Definition
	g := Graph{
		FlowID: d.FlowID, CallerID: d.CallerID, ContextID: d.ContextID, Nodes: map[string]GraphNode{},
		Edges: [][2]uint32{}, ReverseEdges: [][2]uint32{}, Roots: []uint32{}, Leaves: []uint32{}, Started: []uint32{}, Completed: []uint32{},
		Levels: d.levels(),
	}
	needed := map[uint32]bool{}
	for i, n := range d.Nodes {
		g.add(n, s.Nodes[i], s.Base)
		for _, dep := range n.Depends {
			needed[dep] = true
			g.Edges = append(g.Edges, [2]uint32{dep, n.ID})
			g.ReverseEdges = append(g.ReverseEdges, [2]uint32{n.ID, dep})
		}
	}
	slices.SortFunc(g.Edges, func(a, b [2]uint32) int { return slices.Compare(a[:], b[:]) })
	for _, n := range d.Nodes {
		if !needed[n.ID] {
			g.Leaves = append(g.Leaves, n.ID)
		}
	}
	if s.FailedJob != 0 {
		g.FailedJob = &s.FailedJob
	}
	return g
}

func (g *Graph) add(n Node, s NodeState, base uint32) {
	g.Nodes[strconv.FormatUint(uint64(n.ID), 10)] = GraphNode{
		ID: n.ID, Depends: orEmpty(n.Depends), Prerequisites: orEmpty(n.Prerequisites), SupervisorURL: n.SupervisorURL,
		NodeStatus: s.Status, ScriptType: n.ScriptType, Attempt: max(s.Attempt, base) - base, Error: s.Error,
	}
	if len(n.Depends) == 0 {
		g.Roots = append(g.Roots, n.ID)
	}
	switch s.Status {
	case hero.NodeDispatched, hero.NodeRunning:
		g.Started = append(g.Started, n.ID)
	case hero.NodeCompleted:
		g.Completed = append(g.Completed, n.ID)
	}
}

// orEmpty makes a list that JSON shows as one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// levels puts each node one level after the last one it depends on.
func (d Definition) levels() [][]uint32 {
	at := d.index()
	level := make([]int, len(d.Nodes))
	left := make([]int, len(d.Nodes)) // dependencies not yet placed
	dependents := make([][]int, len(d.Nodes))
	var queue []int
	for i, n := range d.Nodes {
		left[i] = len(n.Depends)
		if left[i] == 0 {
			queue = append(queue, i)
		}
		for _, dep := range n.Depends {
			dependents[at[dep]] = append(dependents[at[dep]], i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, k := range dependents[i] {
			level[k] = max(level[k], level[i]+1)
			if left[k]--; left[k] == 0 {
				queue = append(queue, k)
			}
		}
	}
	out := make([][]uint32, slices.Max(append(level, 0))+1)
	for i := range out {
		out[i] = []uint32{} // a list for JSON, not null
	}
	for i, n := range d.Nodes { // by id, so each level is too
		out[level[i]] = append(out[level[i]], n.ID)
	}
	return out
}
