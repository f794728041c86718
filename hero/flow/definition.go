package flow

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"

	"edda/hero"
)

// The bounds of one flow. Its start writes the definition in one change set, which holds half
// a megabyte.
const (
	MaxNodes      = 1000
	MaxDefinition = 192 << 10 // bytes as JSON
)

// Definition is the graph of a flow as it was when the flow started. A later change of the
// objects in Redis does not affect it.
type Definition struct {
	FlowID    uint32 `json:"flow_id"`
	CallerID  uint32 `json:"caller_id"`
	ContextID uint32 `json:"context_id"`
	Nodes     []Node `json:"nodes"` // by id
}

// Node is one job of a definition. The script stays in the job.
type Node struct {
	ID            uint32          `json:"id"`
	CallerID      uint32          `json:"caller_id"` // of the job: half of its key
	Depends       []uint32        `json:"depends,omitempty"`
	Prerequisites []string        `json:"prerequisites,omitempty"`
	SupervisorURL string          `json:"supervisor_url,omitempty"`
	ScriptType    hero.ScriptType `json:"script_type"`
	Timeout       uint32          `json:"timeout,omitempty"`       // of the execution, in seconds; 0 means DefaultTimeout
	QueueTimeout  uint32          `json:"queue_timeout,omitempty"` // of each wait, in seconds; 0 means hero.DefaultQueueTimeout
	Retries       uint8           `json:"retries,omitempty"`
}

// Define makes the definition of a flow from its jobs. f.Nodes override the jobs. The error is
// a *GraphError.
func Define(f hero.Flow, jobs []hero.Job) (Definition, error) {
	d := Definition{FlowID: f.ID, CallerID: f.CallerID, ContextID: f.ContextID}
	byID := map[uint32]hero.Job{}
	for _, j := range jobs {
		byID[j.ID] = j
	}
	var missing []uint32
	for _, id := range ids(f) {
		j, ok := byID[id]
		if !ok {
			missing = append(missing, id)
			continue
		}
		d.Nodes = append(d.Nodes, node(j, f.Nodes))
	}
	if len(missing) > 0 {
		return Definition{}, &GraphError{Why: "jobs of the flow do not exist: create them first", Nodes: slices.Compact(slices.Sorted(slices.Values(missing)))}
	}
	slices.SortFunc(d.Nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return d, d.check(f.Nodes)
}

// ids returns the flow's jobs, or those of its nodes if it has no list of jobs.
func ids(f hero.Flow) []uint32 {
	if len(f.Jobs) > 0 {
		return f.Jobs
	}
	var out []uint32
	for _, n := range f.Nodes {
		out = append(out, n.ID)
	}
	return out
}

func node(j hero.Job, said []hero.FlowNode) Node {
	n := Node{
		ID: j.ID, CallerID: j.CallerID, Depends: j.Dependends, Prerequisites: j.Prerequisites,
		ScriptType: j.ScriptType, Timeout: j.Timeout, QueueTimeout: j.QueueTimeout, Retries: j.Retries,
	}
	for _, s := range said {
		if s.ID != j.ID {
			continue
		}
		n.SupervisorURL = s.SupervisorURL
		if s.Depends != nil {
			n.Depends = s.Depends
		}
		if s.Prerequisites != nil {
			n.Prerequisites = s.Prerequisites
		}
	}
	n.Depends = slices.Compact(slices.Sorted(slices.Values(n.Depends)))
	n.Prerequisites = slices.Compact(slices.Sorted(slices.Values(n.Prerequisites)))
	return n
}

// check refuses a graph that cannot end, or is too large.
func (d Definition) check(said []hero.FlowNode) error {
	if len(d.Nodes) == 0 {
		return &GraphError{Why: "the flow has no jobs"}
	}
	if len(d.Nodes) > MaxNodes {
		return &GraphError{Why: "more than the %d jobs that one flow may have: split it", N: MaxNodes}
	}
	if err := d.checkIDs(said); err != nil {
		return err
	}
	if cycle := d.cycle(); cycle != nil {
		return &GraphError{Why: "the jobs wait for each other", Cycle: cycle}
	}
	if raw, err := json.Marshal(d); err != nil || len(raw) > MaxDefinition {
		return &GraphError{Why: "the graph is larger than %d bytes: shorten its URLs and prerequisites, or split it", N: MaxDefinition}
	}
	return nil
}

func (d Definition) checkIDs(said []hero.FlowNode) error {
	at := d.index()
	if len(at) != len(d.Nodes) {
		return &GraphError{Why: "a job is listed twice", Nodes: d.repeated()}
	}
	for _, s := range said {
		if _, ok := at[s.ID]; !ok {
			return &GraphError{Why: "nodes speak of a job that is not among the flow's jobs", Nodes: []uint32{s.ID}}
		}
	}
	for _, n := range d.Nodes {
		for _, dep := range n.Depends {
			if _, ok := at[dep]; !ok {
				return &GraphError{Why: "job %d depends on jobs that are not in the flow", N: int(n.ID), Nodes: []uint32{dep}}
			}
		}
	}
	return nil
}

func (d Definition) repeated() []uint32 {
	var out []uint32
	for i := 1; i < len(d.Nodes); i++ {
		if d.Nodes[i].ID == d.Nodes[i-1].ID {
			out = append(out, d.Nodes[i].ID)
		}
	}
	return slices.Compact(out)
}

// find returns the index of a node. Nodes are sorted by id.
func (d Definition) find(id uint32) (int, bool) {
	i := sort.Search(len(d.Nodes), func(i int) bool { return d.Nodes[i].ID >= id }) // unlike slices.BinarySearchFunc it copies no node
	return i, i < len(d.Nodes) && d.Nodes[i].ID == id
}

// index maps ids to the indexes of nodes. Nodes need not be unique.
func (d Definition) index() map[uint32]int {
	at := make(map[uint32]int, len(d.Nodes))
	for i, n := range d.Nodes {
		at[n.ID] = i
	}
	return at
}

// Resume returns the flow before its restart after a run that ended in error. Completed
// nodes stay completed, and met prerequisites stay met.
func (d Definition) Resume(before State) State {
	s := d.State()
	s.Base, s.Met = before.Base+MaxAttempts, slices.Clone(before.Met)
	for i, n := range d.Nodes {
		if was, ok := before.Node(n.ID); ok && was.Status == hero.NodeCompleted {
			s.Nodes[i] = was
		}
	}
	return s
}

// State returns the flow before it starts: every node is pending.
func (d Definition) State() State {
	s := State{Definition: d, Status: hero.FlowDispatched, Nodes: make([]NodeState, len(d.Nodes))}
	for i := range s.Nodes {
		s.Nodes[i].Status = hero.NodePending
	}
	return s
}
