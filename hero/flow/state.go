package flow

import (
	"time"

	"edda/hero"
)

const (
	// DefaultTimeout is how long a job without a timeout may run.
	DefaultTimeout = time.Hour
	// AnswerGrace extends a job's timeouts: the report of a runner that ends a script in
	// time comes a little later.
	AnswerGrace = 2 * time.Second
	// retryFirst is the pause before the second attempt. It doubles up to retryMost.
	retryFirst = 250 * time.Millisecond
	retryMost  = 30 * time.Second
	// maxError bounds a node's error in the state, in bytes. The job has the whole text.
	maxError = 200
)

// State is the state of a flow: a value, which its methods do not change.
type State struct {
	Definition Definition      `json:"definition"`
	Status     hero.FlowStatus `json:"status"`
	Nodes      []NodeState     `json:"nodes"` // in the definition's order
	// Met lists the prerequisites that hold, in the order in which they were met.
	Met []string `json:"met,omitempty"`
	// FailedJob is the node that aborted the flow.
	FailedJob uint32 `json:"failed_job,omitempty"`
	// Reason is why the flow is in error.
	Reason string `json:"reason,omitempty"`
	// Base is the number of the last attempt of earlier runs. A flow that is started again
	// counts on from it, so that reports on those are known as old.
	Base uint32 `json:"base,omitempty"`
}

// MaxAttempts is more than a node can have in one run: its retries are a byte.
const MaxAttempts = 1000

// NodeState is the state of one node.
type NodeState struct {
	Status  hero.NodeStatus `json:"status"`
	Attempt uint32          `json:"attempt,omitempty"` // the last dispatch, from Base+1
	// Due is the deadline of a pending node's prerequisites, of a dispatched node's start or
	// of a running node's end, or the time of a ready node's next attempt.
	Due   time.Time `json:"due,omitzero"`
	Error string    `json:"error,omitempty"` // of the last attempt that failed
}

func (s NodeState) inFlight() bool {
	return s.Status == hero.NodeDispatched || s.Status == hero.NodeRunning
}

// ActKind is the kind of an act.
type ActKind string

// The kinds of acts.
const (
	ActDispatch ActKind = "dispatch" // send the node's job, as this attempt
	ActStop     ActKind = "stop"     // ask the receiver of the node's job to stop it
	ActNode     ActKind = "node"     // write the node's status and result to its job
	ActFlow     ActKind = "flow"     // write the flow's status, and at its end its result
)

// Act is one action that a step asks for. Acts are done in order.
type Act struct {
	Kind    ActKind `json:"kind"`
	Node    uint32  `json:"node,omitempty"`   // the job; unset for ActFlow
	Caller  uint32  `json:"caller,omitempty"` // of the job
	Attempt uint32  `json:"attempt,omitempty"`
	// Status is the node's, of an ActNode.
	Status hero.NodeStatus   `json:"status,omitempty"`
	Result map[string]string `json:"result,omitempty"` // of a node that ended
	// SupervisorURL and the timeouts, in seconds, belong to an ActDispatch.
	SupervisorURL string `json:"supervisor_url,omitempty"`
	Timeout       uint32 `json:"timeout,omitempty"`
	QueueTimeout  uint32 `json:"queue_timeout,omitempty"`
	// Flow is the flow's status, of an ActFlow.
	Flow   hero.FlowStatus `json:"flow,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

// Batch holds the acts of one step of a flow. It is one piece of work: a wide flow has a
// thousand acts at once.
type Batch struct {
	FlowID    uint32 `json:"flow_id"`
	CallerID  uint32 `json:"caller_id"`
	ContextID uint32 `json:"context_id"`
	Acts      []Act  `json:"acts"`
	// Jobs lists the keys of all jobs once the flow has ended: its result is gathered from
	// them.
	Jobs []string `json:"jobs,omitempty"`
}

// WorkName names the work that carries a Batch.
const WorkName = "flow"

// Saga is the name of the saga whose instances are flows.
const Saga = "hero_flow"

// timeout bounds the execution of the node's job.
func (n Node) timeout() time.Duration {
	if n.Timeout == 0 {
		return DefaultTimeout
	}
	return time.Duration(n.Timeout) * time.Second
}

// patience bounds each wait of the node's job: for its prerequisites, and from its dispatch
// to its start.
func (n Node) patience() time.Duration { return hero.QueueTimeoutOf(n.QueueTimeout) }

// pause returns the pause after a failed attempt, from 1.
func pause(attempt uint32) time.Duration {
	d := retryFirst
	for range attempt - 1 {
		if d *= 2; d >= retryMost {
			return retryMost
		}
	}
	return d
}

// Next returns the earliest deadline, or zero if there is none.
func (s State) Next() time.Time {
	var at time.Time
	for i := range s.Nodes {
		if n := &s.Nodes[i]; !n.Due.IsZero() && (at.IsZero() || n.Due.Before(at)) {
			at = n.Due
		}
	}
	return at
}

// Ended reports whether the flow has ended.
func (s State) Ended() bool { return s.Status.Ended() }

// Node finds a node by its job's id.
func (s State) Node(id uint32) (NodeState, bool) {
	if i, ok := s.Definition.find(id); ok {
		return s.Nodes[i], true
	}
	return NodeState{}, false
}
