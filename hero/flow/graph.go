package flow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"edda/hero"
)

// GraphError tells why a flow's graph cannot run.
type GraphError struct {
	Why   string   // may contain one %d, for N
	N     int      `json:",omitempty"`
	Nodes []uint32 `json:",omitempty"` // the jobs in question
	// Cycle lists the jobs of a cycle; its first id is also its last.
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

// cycle returns the ids of a cycle, its first id also at the end, or nil if there is none. It
// is a depth-first search with its own stack, because a chain may be as long as the flow.
func (d Definition) cycle() []uint32 {
	at := d.index()
	const (
		fresh = iota
		open  // on the path
		done
	)
	mark := make([]int, len(d.Nodes))
	next := make([]int, len(d.Nodes)) // the next dependency to visit
	for i := range d.Nodes {
		if mark[i] == done {
			continue
		}
		path := []int{i}
		mark[i] = open
		for len(path) > 0 {
			top := path[len(path)-1]
			if next[top] == len(d.Nodes[top].Depends) {
				mark[top] = done
				path = path[:len(path)-1]
				continue
			}
			dep := at[d.Nodes[top].Depends[next[top]]]
			next[top]++
			switch mark[dep] {
			case open:
				var out []uint32
				for _, i := range append(path[slices.Index(path, dep):], dep) {
					out = append(out, d.Nodes[i].ID)
				}
				return out
			case fresh:
				mark[dep] = open
				path = append(path, dep)
			}
		}
	}
	return nil
}

// Graph is the answer of flow.dag. All lists are in ascending order.
type Graph struct {
	FlowID    uint32 `json:"flow_id"`
	CallerID  uint32 `json:"caller_id"`
	ContextID uint32 `json:"context_id"`
	// Nodes is by job id, in decimal.
	Nodes        map[string]GraphNode `json:"nodes"`
	Edges        [][2]uint32          `json:"edges"`         // dependency, dependent
	ReverseEdges [][2]uint32          `json:"reverse_edges"` // dependent, dependency
	Roots        []uint32             `json:"roots"`         // depend on nothing
	Leaves       []uint32             `json:"leaves"`        // nothing depends on them
	Levels       [][]uint32           `json:"levels"`        // the nodes of each depend on earlier levels
	Started      []uint32             `json:"started"`       // dispatched or running
	Completed    []uint32             `json:"completed"`
	// FailedJob is the node that aborted the flow, or null.
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
	Attempt       uint32          `json:"attempt,omitempty"` // the number of dispatches
	Error         string          `json:"error,omitempty"`   // of the last attempt that failed
}

// Graph returns the graph and the progress of its nodes.
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

// orEmpty has JSON write an empty list instead of null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// levels puts each node one level after the last of its dependencies.
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
	for i, n := range d.Nodes { // sorted by id, and so is each level
		out[level[i]] = append(out[level[i]], n.ID)
	}
	return out
}
