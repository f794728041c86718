package flow

import (
	"time"

	"edda/hero"
)

const (
	// DefaultTimeout is how long a job without a timeout may run.
	DefaultTimeout = time.Hour
	// AnswerGrace is what an answer may take beyond a job's timeouts: a runner
	// that ends a script in time says so a little later.
	AnswerGrace = 2 * time.Second
	// retryFirst is the pause before the second attempt; it doubles up to retryMost.
	retryFirst = 250 * time.Millisecond
	retryMost  = 30 * time.Second
	// maxError bounds what the state keeps of why a node failed; the job has it whole.
	maxError = 200
)

// State is where a flow stands.
type State struct {
	Definition Definition      `json:"definition"`
	Status     hero.FlowStatus `json:"status"`
	Nodes      []NodeState     `json:"nodes"` // in the definition's order
	// Met are the prerequisites that hold, in the order they were met.
	Met []string `json:"met,omitempty"`
	// FailedJob is the node that aborted the flow.
	FailedJob uint32 `json:"failed_job,omitempty"`
	// Reason is why the flow is in error.
	Reason string `json:"reason,omitempty"`
	// Base is what attempts are counted from: a flow that is started again goes
	// on behind the attempts of its earlier runs, so that their answers are old.
	Base uint32 `json:"base,omitempty"`
}

// MaxAttempts is more than a node can have in one run: its retries are a byte.
const MaxAttempts = 1000

// NodeState is where one node stands.
type NodeState struct {
	Status  hero.NodeStatus `json:"status"`
	Attempt uint32          `json:"attempt,omitempty"` // the last dispatch, from Base+1
	// Due is when its patience ends: pending, for the prerequisites; ready, the
	// pause before it is tried again; dispatched, for its beginning; running, for its end.
	Due   time.Time `json:"due,omitzero"`
	Error string    `json:"error,omitempty"` // of the last attempt that failed
}

func (s NodeState) inFlight() bool {
	return s.Status == hero.NodeDispatched || s.Status == hero.NodeRunning
}

// ActKind says what is to be done.
type ActKind string

// The kinds of acts.
const (
	ActDispatch ActKind = "dispatch" // send the node's job, as that attempt
	ActStop     ActKind = "stop"     // ask the receiver of the node's job to end it
	ActNode     ActKind = "node"     // show the node's status, and its result, in its job
	ActFlow     ActKind = "flow"     // show the flow's status; at an end, gather its result
)

// Act is one thing to do, in this order.
type Act struct {
	Kind    ActKind `json:"kind"`
	Node    uint32  `json:"node,omitempty"`   // the job, of all but ActFlow
	Caller  uint32  `json:"caller,omitempty"` // of the job
	Attempt uint32  `json:"attempt,omitempty"`
	// Status of the node, as it is now; of an ActNode.
	Status hero.NodeStatus   `json:"status,omitempty"`
	Result map[string]string `json:"result,omitempty"` // of a node that ended
	// SupervisorURL and the timeouts, in seconds, are of an ActDispatch.
	SupervisorURL string `json:"supervisor_url,omitempty"`
	Timeout       uint32 `json:"timeout,omitempty"`
	QueueTimeout  uint32 `json:"queue_timeout,omitempty"`
	// Flow is the status of the flow, of an ActFlow.
	Flow   hero.FlowStatus `json:"flow,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

// timeout is how long the node's job may run.
func (n Node) timeout() time.Duration {
	if n.Timeout == 0 {
		return DefaultTimeout
	}
	return time.Duration(n.Timeout) * time.Second
}

// patience is how long the node's job waits: first for its prerequisites, and once
// it is dispatched for its beginning.
func (n Node) patience() time.Duration { return hero.QueueTimeoutOf(n.QueueTimeout) }

// pause is what lies between the attempt that failed, from 1, and the next.
func pause(attempt uint32) time.Duration {
	d := retryFirst
	for range attempt - 1 {
		if d *= 2; d >= retryMost {
			return retryMost
		}
	}
	return d
}

// Next is when something comes due; zero when nothing does.
func (s State) Next() time.Time {
	var at time.Time
	for i := range s.Nodes {
		if n := &s.Nodes[i]; !n.Due.IsZero() && (at.IsZero() || n.Due.Before(at)) {
			at = n.Due
		}
	}
	return at
}

// Ended tells whether the flow has ended.
func (s State) Ended() bool { return s.Status.Ended() }

// Node finds a node by its job's id.
func (s State) Node(id uint32) (NodeState, bool) {
	if i, ok := s.Definition.find(id); ok {
		return s.Nodes[i], true
	}
	return NodeState{}, false
}
