package flow

// Batch is the acts of one step of a flow, as one piece of work: a wide flow
// would else make a thousand of them at once.
type Batch struct {
	FlowID    uint32 `json:"flow_id"`
	CallerID  uint32 `json:"caller_id"`
	ContextID uint32 `json:"context_id"`
	Acts      []Act  `json:"acts"`
	// Jobs are the keys of all jobs, where the flow has ended: its result is
	// gathered from them.
	Jobs []string `json:"jobs,omitempty"`
}

// WorkName is the name of the work that carries a Batch.
const WorkName = "flow"

// Saga is the name under which flows are instances of the engine.
const Saga = "hero_flow"
