package hero

// Report tells a flow what became of one of its nodes.
type Report struct {
	// ID is the report's own: the same report again has the same one.
	ID        string `json:"id"`
	ContextID uint32 `json:"context_id"`
	FlowID    uint32 `json:"flow_id"`
	Node      uint32 `json:"node"` // the job
	// Attempt is the dispatch it speaks of; 0 means whichever is current. A
	// report of an older one is dropped.
	Attempt uint32 `json:"attempt,omitempty"`
	// Status is dispatched (the receiver has it), running, completed or failed.
	Status NodeStatus `json:"status"`
	// Result is the job's; a failure says why under ResultError.
	Result map[string]string `json:"result,omitempty"`
}

// Keys of a job's result that mean something to us.
const (
	ResultOutput = "output" // what the script wrote, where it gave no object
	ResultError  = "error"  // why the job failed
	ResultNote   = "note"   // what is left out of a flow's result
)
