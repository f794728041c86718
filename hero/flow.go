package hero

// FlowStatus is the status of a flow.
type FlowStatus string

// The statuses of a flow. FlowError and FlowFinished are final.
const (
	FlowDispatched FlowStatus = "dispatched" // stored, not started; "created" is read as this
	FlowStarted    FlowStatus = "started"
	FlowError      FlowStatus = "error" // a job failed for good, or it was cancelled
	FlowFinished   FlowStatus = "finished"
)

// Ended reports whether the status is final.
func (s FlowStatus) Ended() bool { return s == FlowError || s == FlowFinished }

// MayBecome reports whether the transition is legal: dispatched, started, then error or
// finished. A flow in error may be started again.
func (s FlowStatus) MayBecome(next FlowStatus) bool {
	switch s {
	case next, FlowDispatched:
		return true
	case FlowStarted:
		return next.Ended()
	case FlowError:
		return next == FlowStarted
	}
	return false
}

// Flow is a graph of jobs that one actor created.
type Flow struct {
	ID        uint32            `json:"id"`
	CallerID  uint32            `json:"caller_id"` // its creator, the only actor that may change it
	ContextID uint32            `json:"context_id"`
	Jobs      []uint32          `json:"jobs"`
	EnvVars   map[string]string `json:"env_vars"` // for every job; the job's own override them
	Result    map[string]string `json:"result"`   // gathered from the jobs
	// Name is for people. It is a field of Edda's own, left out where empty.
	Name string `json:"name,omitempty"`
	// Nodes override what the jobs' hashes say, such as dependends. They are kept in a
	// field of Edda's own, nodes.
	Nodes     []FlowNode `json:"nodes,omitempty"`
	CreatedAt uint32     `json:"created_at"`
	UpdatedAt uint32     `json:"updated_at"`
	Status    FlowStatus `json:"status"`
	// Unknown names the fields that were sent and that Edda does not know.
	Unknown []string `json:"-"`
	// Unreadable is set in a list when the hash cannot be read: the reason. Other fields are empty.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key returns the key of the flow's hash in its context's database.
func (f Flow) Key() string { return FlowKey(f.ID) }

func (f Flow) hash() *fields { at := newFields(); f.fields(at); return at }

func (f *Flow) fields(at *fields) {
	at.number("id", &f.ID)
	at.owner("caller_id", &f.CallerID)
	at.number("context_id", &f.ContextID)
	at.numbers("jobs", &f.Jobs)
	at.object("env_vars", &f.EnvVars)
	at.object("result", &f.Result)
	at.time("created_at", &f.CreatedAt)
	at.time("updated_at", &f.UpdatedAt)
	oneOf(at, "status", &f.Status, FlowDispatched, ParseFlowStatus)
	at.optional("name", &f.Name)
	field(at, "nodes", &f.Nodes, (*HashReader).nodes, listText(f.Nodes), len(f.Nodes) == 0) // a list that a node leaves out stays out
}

// ReadFlow reads the hash at the key. A field that it cannot read is a *FieldError.
func ReadFlow(key string, h map[string]string) (f Flow, err error) {
	r := readKey("flow", key, h, "id")
	f.fields(&fields{from: r})
	return f, r.err
}

// UnmarshalJSON reads a flow and notes unknown fields.
func (f *Flow) UnmarshalJSON(raw []byte) error {
	type plain Flow
	return understand(raw, (*plain)(f), &f.Unknown, flowNames())
}

// ParseFlowStatus reads a status in any spelling. The later documents' created is dispatched.
func ParseFlowStatus(s string) (FlowStatus, error) {
	if fold(s) == "created" {
		return FlowDispatched, nil
	}
	return word("status of a flow", s, FlowDispatched, FlowStarted, FlowError, FlowFinished)
}

// UnmarshalText reads the status as ParseFlowStatus does.
func (s *FlowStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseFlowStatus) }

// NodeStatus is the status of a job within its flow. The status in the job's hash follows it.
type NodeStatus string

// The statuses of a node. The last three are final.
const (
	NodePending    NodeStatus = "pending"    // waits for other nodes or for prerequisites
	NodeReady      NodeStatus = "ready"      // about to be dispatched, or waits for its next attempt
	NodeDispatched NodeStatus = "dispatched" // sent
	NodeRunning    NodeStatus = "running"    // a runner reported its start
	NodeCompleted  NodeStatus = "completed"
	NodeFailed     NodeStatus = "failed"
	NodeCancelled  NodeStatus = "cancelled"
)

// Ended reports whether the status is final.
func (s NodeStatus) Ended() bool {
	return s == NodeCompleted || s == NodeFailed || s == NodeCancelled
}

// JobStatus returns the status that the job's hash shows.
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

// FlowNode is one job of a flow, and how to run it.
type FlowNode struct {
	ID   uint32 `json:"id"`             // the job's
	Name string `json:"name,omitempty"` // for people; a field of Edda's own
	// Depends lists jobs, Prerequisites names external conditions. A nil list means
	// the job's own; an empty list means none.
	Depends       []uint32   `json:"depends,omitzero"`
	Prerequisites []string   `json:"prerequisites,omitzero"`
	SupervisorURL string     `json:"supervisor_url"`
	NodeStatus    NodeStatus `json:"node_status,omitempty"`
	// Unknown names the fields that were sent and that Edda does not know.
	Unknown []string `json:"-"`
}

// wholeNodes fills in the nodes' empty lists, which readers in other languages expect.
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
		r.named(nodeNames())
		n := FlowNode{
			ID:            r.owner("id"),
			Name:          r.text("name"),
			SupervisorURL: r.text("supervisor_url"),
			NodeStatus:    one(r, "node_status", "", ParseNodeStatus),
			Prerequisites: r.optionalTexts("prerequisites"),
			Unknown:       nodeNames().unknown(r.json),
		}
		depends := r.called(dependsNames)
		if _, said := r.h[depends]; said {
			n.Depends = r.numbers(depends)
		}
		out = append(out, n)
	})
	return out
}

// UnmarshalJSON reads a node and notes unknown fields. Its edges may be called dependends
// or dependencies.
func (n *FlowNode) UnmarshalJSON(raw []byte) error {
	type plain FlowNode
	return understand(raw, (*plain)(n), &n.Unknown, nodeNames())
}

// ParseNodeStatus reads a status in any spelling.
func ParseNodeStatus(s string) (NodeStatus, error) {
	return word("status of a node", s, NodePending, NodeReady, NodeDispatched, NodeRunning, NodeCompleted, NodeFailed, NodeCancelled)
}

// UnmarshalText reads the status as ParseNodeStatus does.
func (s *NodeStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseNodeStatus) }

// Report tells a flow the progress of one of its nodes.
type Report struct {
	// ID identifies the report: a repeated report has the same one.
	ID        string `json:"id"`
	ContextID uint32 `json:"context_id"`
	FlowID    uint32 `json:"flow_id"`
	Node      uint32 `json:"node"` // the job
	// Attempt is the dispatch that the report is about; 0 means the current one. A
	// report of an older one is dropped.
	Attempt uint32 `json:"attempt,omitempty"`
	// Status is dispatched (the receiver has it), running, completed or failed.
	Status NodeStatus `json:"status"`
	// Result is the job's. A failure gives its reason under ResultError.
	Result map[string]string `json:"result,omitempty"`
}
