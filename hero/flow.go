package hero

import "cmp"

// FlowStatus is where a flow stands.
type FlowStatus string

// The statuses of a flow. The last two are ends.
const (
	FlowDispatched FlowStatus = "dispatched" // stored, not started; "created" is read as this
	FlowStarted    FlowStatus = "started"
	FlowError      FlowStatus = "error" // a job failed for good, or it was cancelled
	FlowFinished   FlowStatus = "finished"
)

// Ended tells whether the status is an end.
func (s FlowStatus) Ended() bool { return s == FlowError || s == FlowFinished }

// MayBecome tells whether the step is legal: dispatched, started, then an end. A
// flow in error may be started again.
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
	CallerID  uint32            `json:"caller_id"` // who created it, and alone may change it
	ContextID uint32            `json:"context_id"`
	Jobs      []uint32          `json:"jobs"`
	EnvVars   map[string]string `json:"env_vars"` // for every job; a job's own go before them
	Result    map[string]string `json:"result"`   // gathered from the jobs
	// Name is what people call it: a field of Edda's own, left out where empty.
	Name string `json:"name,omitempty"`
	// Nodes say more about jobs than their hashes do; they go before the jobs'
	// own dependends. Kept in a field of Edda's own, nodes.
	Nodes     []FlowNode `json:"nodes,omitempty"`
	CreatedAt uint32     `json:"created_at"`
	UpdatedAt uint32     `json:"updated_at"`
	Status    FlowStatus `json:"status"`
	// Unknown are fields that came with it and that nobody here understands.
	Unknown []string `json:"-"`
	// Unreadable says, in a list, why the hash cannot be read; all else is left out then.
	Unreadable string `json:"unreadable,omitempty"`
}

// Key is the flow's hash in its context's database.
func (f Flow) Key() string { return FlowKey(f.ID) }

func (f Flow) hash() *hash {
	h := newHash()
	h.number("id", f.ID)
	h.number("caller_id", f.CallerID)
	h.number("context_id", f.ContextID)
	list(h, "jobs", f.Jobs)
	h.object("env_vars", f.EnvVars)
	h.object("result", f.Result)
	h.number("created_at", f.CreatedAt)
	h.number("updated_at", f.UpdatedAt)
	h.text("status", string(cmp.Or(f.Status, FlowDispatched)))
	h.optional("name", f.Name)
	optionalList(h, "nodes", f.Nodes) // as they were given: what a node leaves out is its job's
	return h
}

// ReadFlow reads the hash at that key; what it cannot read is a *FieldError.
func ReadFlow(key string, h map[string]string) (Flow, error) {
	r, ids := readKey("flow", key, h, 1)
	return Flow{
		ID:        r.id("id", ids[0]),
		CallerID:  r.owner("caller_id"),
		ContextID: r.Number("context_id"),
		Jobs:      r.numbers("jobs"),
		EnvVars:   r.Pairs("env_vars"),
		Result:    r.Pairs("result"),
		Name:      r.text("name"),
		Nodes:     r.nodes("nodes"),
		CreatedAt: r.time("created_at"),
		UpdatedAt: r.time("updated_at"),
		Status:    one(r, "status", FlowDispatched, ParseFlowStatus),
	}, r.err
}

// ParseFlowStatus reads the word, however it is written. A flow that later
// documents call created is dispatched.
func ParseFlowStatus(s string) (FlowStatus, error) {
	if fold(s) == "created" {
		return FlowDispatched, nil
	}
	return word("status of a flow", s, FlowDispatched, FlowStarted, FlowError, FlowFinished)
}

// UnmarshalText reads the word as ParseFlowStatus does.
func (s *FlowStatus) UnmarshalText(text []byte) error { return decode(s, text, ParseFlowStatus) }
