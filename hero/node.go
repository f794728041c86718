package hero

// NodeStatus is where a job stands within its flow: the truth, of which a job's
// own status is a projection.
type NodeStatus string

// The statuses of a node. The last three are ends.
const (
	NodePending    NodeStatus = "pending"    // waits for other nodes or for prerequisites
	NodeReady      NodeStatus = "ready"      // may run; about to be dispatched, or waits to be tried again
	NodeDispatched NodeStatus = "dispatched" // sent
	NodeRunning    NodeStatus = "running"    // a runner said that it began
	NodeCompleted  NodeStatus = "completed"
	NodeFailed     NodeStatus = "failed"
	NodeCancelled  NodeStatus = "cancelled"
)

// Ended tells whether the status is an end.
func (s NodeStatus) Ended() bool {
	return s == NodeCompleted || s == NodeFailed || s == NodeCancelled
}

// JobStatus is the status that a job's hash shows for a node.
func (s NodeStatus) JobStatus() JobStatus {
	switch s {
	case NodePending:
		return JobWaiting
	case NodeReady, NodeDispatched:
		return JobDispatched
	case NodeRunning:
		return JobStarted
	case NodeCompleted:
		return JobFinished
	}
	return JobError
}

// FlowNode is one job of a flow and how it is to be run.
type FlowNode struct {
	ID   uint32 `json:"id"`             // of the job
	Name string `json:"name,omitempty"` // what people call it: Edda's own
	// Depends and Prerequisites, names of external conditions, are the job's own
	// where they are nil; an empty list is none.
	Depends       []uint32   `json:"depends,omitzero"`
	Prerequisites []string   `json:"prerequisites,omitzero"`
	SupervisorURL string     `json:"supervisor_url"`
	NodeStatus    NodeStatus `json:"node_status,omitempty"`
	// Unknown are fields that came with the node and that nobody here understands.
	Unknown []string `json:"-"`
}

// wholeNodes writes the nodes' lists even where they are empty, as readers in
// other languages expect.
func wholeNodes(nodes []FlowNode) []FlowNode {
	out := make([]FlowNode, len(nodes))
	for i, n := range nodes {
		n.Depends, n.Prerequisites = filled(n.Depends), filled(n.Prerequisites)
		out[i] = n
	}
	return out
}

// nodes reads a list of nodes. A list that a node leaves out stays nil.
func (r *HashReader) nodes(name string) []FlowNode {
	out := []FlowNode{}
	r.objects(name, "id", func(r *HashReader) {
		r.named(nodeFields(), dependsNames)
		n := FlowNode{
			ID:            r.owner("id"),
			Name:          r.text("name"),
			SupervisorURL: r.text("supervisor_url"),
			NodeStatus:    one(r, "node_status", "", ParseNodeStatus),
		}
		name := r.called(dependsNames)
		if _, said := r.h[name]; said {
			n.Depends = r.numbers(name)
		}
		n.Unknown = notUnderstood(r.json, nodeFields(), dependsNames...)
		if _, said := r.h["prerequisites"]; said {
			n.Prerequisites = r.Texts("prerequisites")
		}
		out = append(out, n)
	})
	return out
}

// ParseNodeStatus reads the word, however it is written.
func ParseNodeStatus(s string) (NodeStatus, error) {
	return word("status of a node", s, NodePending, NodeReady, NodeDispatched, NodeRunning, NodeCompleted, NodeFailed, NodeCancelled)
}

// UnmarshalText reads the word as ParseNodeStatus does.
func (s *NodeStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseNodeStatus) }
