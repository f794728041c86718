package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"edda/hero"
)

// step applies one input to a copy of the state, and collects the acts.
type step struct {
	State
	now  time.Time
	acts []Act
}

func (s State) begin(now time.Time) *step {
	s.Nodes = slices.Clone(s.Nodes)
	s.Met = slices.Clone(s.Met)
	return &step{State: s, now: now}
}

func (s *step) done() (State, []Act) { return s.State, s.acts }

// Start starts a flow that is only defined. Its Base may be set before.
func (s State) Start(now time.Time) (State, []Act) {
	if s.Status != hero.FlowDispatched {
		return s, nil
	}
	r := s.begin(now)
	r.Status = hero.FlowStarted
	r.show()
	r.advance()
	for i := range r.Nodes {
		if r.Nodes[i].Status == hero.NodePending {
			r.act(ActNode, i)
		}
	}
	return r.done()
}

// Report applies a report on a node. A report of an older attempt, or of a node that has
// ended or was never dispatched, changes nothing: taken is false.
func (s State) Report(now time.Time, report hero.Report) (next State, acts []Act, taken bool) {
	i, ok := s.Definition.find(report.Node)
	if !ok || s.Ended() || !s.Nodes[i].inFlight() || report.Attempt != 0 && report.Attempt != s.Nodes[i].Attempt {
		return s, nil, false
	}
	r := s.begin(now)
	switch report.Status {
	case hero.NodeRunning:
		r.running(i)
	case hero.NodeCompleted:
		r.end(i, hero.NodeCompleted, report.Result)
	case hero.NodeFailed:
		r.failed(i, report.Result)
	default: // received by the runner, which the state does not record
		return s, nil, true
	}
	r.advance()
	next, acts = r.done()
	return next, acts, true
}

// Prerequisite records that a condition holds, and returns the nodes that it made ready.
func (s State) Prerequisite(now time.Time, name string) (State, []Act, []uint32) {
	if s.Ended() || slices.Contains(s.Met, name) || !s.awaits(name) {
		return s, nil, []uint32{}
	}
	r := s.begin(now)
	r.Met = append(r.Met, name)
	r.advance()
	ready := []uint32{}
	for _, a := range r.acts {
		if a.Kind == ActDispatch {
			ready = append(ready, a.Node)
		}
	}
	next, acts := r.done()
	return next, acts, ready
}

// awaits reports whether any node names the prerequisite. Only those are recorded, so that the
// state cannot grow.
func (s State) awaits(name string) bool {
	return slices.ContainsFunc(s.Definition.Nodes, func(n Node) bool { return slices.Contains(n.Prerequisites, name) })
}

// Cancel ends the flow now: it cancels waiting nodes and asks running ones to stop.
func (s State) Cancel(now time.Time) (State, []Act) {
	if s.Ended() {
		return s, nil
	}
	r := s.begin(now)
	r.Reason = "cancelled"
	for i := range r.Nodes {
		if r.Nodes[i].inFlight() {
			r.act(ActStop, i)
		}
		if !r.Nodes[i].Status.Ended() {
			r.end(i, hero.NodeCancelled, map[string]string{hero.ResultError: "the flow was cancelled"})
		}
	}
	r.finish(hero.FlowError)
	return r.done()
}

// Tick handles the deadlines that have passed.
func (s State) Tick(now time.Time) (State, []Act) {
	if s.Ended() || s.Next().IsZero() || s.Next().After(now) {
		return s, nil
	}
	r := s.begin(now)
	for i := range r.Nodes {
		if due := r.Nodes[i].Due; !due.IsZero() && !due.After(now) {
			r.due(i)
		}
	}
	r.advance()
	return r.done()
}

// due handles the deadline of a node.
func (s *step) due(i int) {
	n := &s.Definition.Nodes[i]
	switch s.Nodes[i].Status {
	case hero.NodePending:
		s.fail(i, map[string]string{hero.ResultError: fmt.Sprintf("queue_timeout: not met within %s: %s", n.patience(), strings.Join(s.unmet(n), ", "))})
	case hero.NodeDispatched:
		s.giveUp(i, fmt.Sprintf("queue_timeout: not begun within %s", n.patience()))
	case hero.NodeRunning:
		s.giveUp(i, fmt.Sprintf("timeout: no result within %s of its start", n.timeout()))
	}
}

// giveUp ends an attempt without a report of its end. It asks the receiver to stop, so that
// the attempt does not run beside the next one.
func (s *step) giveUp(i int, why string) {
	s.act(ActStop, i)
	s.failed(i, map[string]string{hero.ResultError: why})
}

// advance dispatches ready nodes, and ends the flow when all nodes have ended.
func (s *step) advance() {
	if s.Ended() {
		return
	}
	for i := range s.Nodes {
		s.ready(i)
	}
	if s.FailedJob != 0 {
		s.abort()
	}
	if slices.ContainsFunc(s.Nodes, func(n NodeState) bool { return !n.Status.Ended() }) {
		return
	}
	if s.FailedJob != 0 {
		s.finish(hero.FlowError)
		return
	}
	s.finish(hero.FlowFinished)
}

// ready dispatches a node if it may run now.
func (s *step) ready(i int) {
	n, st := &s.Definition.Nodes[i], &s.Nodes[i]
	if s.FailedJob != 0 {
		return
	}
	switch st.Status {
	case hero.NodeReady:
		if !st.Due.After(s.now) {
			s.dispatch(i)
		}
	case hero.NodePending:
		switch {
		case !s.dependenciesDone(n):
		case len(s.unmet(n)) == 0:
			s.dispatch(i)
		case st.Due.IsZero():
			st.Due = s.now.Add(n.patience())
		}
	}
}

func (s *step) dependenciesDone(n *Node) bool {
	return !slices.ContainsFunc(n.Depends, func(id uint32) bool {
		at, _ := s.Definition.find(id)
		return s.Nodes[at].Status != hero.NodeCompleted
	})
}

func (s *step) unmet(n *Node) []string {
	if len(n.Prerequisites) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.Prerequisites), func(name string) bool { return slices.Contains(s.Met, name) })
}

func (s *step) dispatch(i int) {
	n, st := s.Definition.Nodes[i], &s.Nodes[i]
	st.Status = hero.NodeDispatched
	st.Attempt = max(st.Attempt, s.Base) + 1
	st.Due = s.now.Add(n.patience() + AnswerGrace)
	s.act(ActDispatch, i)
}

func (s *step) running(i int) {
	n, st := s.Definition.Nodes[i], &s.Nodes[i]
	if st.Status == hero.NodeRunning {
		return
	}
	st.Status = hero.NodeRunning
	st.Due = s.now.Add(n.timeout() + AnswerGrace)
	s.act(ActNode, i)
}

// failed ends an attempt in error, and retries the node if it has retries left.
func (s *step) failed(i int, result map[string]string) {
	n, st := s.Definition.Nodes[i], &s.Nodes[i]
	st.Error = clip(result[hero.ResultError])
	if st.Attempt-s.Base > uint32(n.Retries) || s.FailedJob != 0 {
		s.fail(i, result)
		return
	}
	st.Status = hero.NodeReady
	st.Due = s.now.Add(pause(st.Attempt - s.Base))
}

// fail fails a node for good. The first failure aborts the flow.
func (s *step) fail(i int, result map[string]string) {
	if result[hero.ResultError] == "" {
		result = maps.Clone(result)
		if result == nil {
			result = map[string]string{}
		}
		result[hero.ResultError] = "the job failed without saying why"
	}
	s.Nodes[i].Error = clip(result[hero.ResultError])
	if s.FailedJob == 0 {
		s.FailedJob = s.Definition.Nodes[i].ID
		s.Reason = fmt.Sprintf("job %d failed: %s", s.FailedJob, s.Nodes[i].Error)
	}
	s.end(i, hero.NodeFailed, result)
}

// abort cancels the waiting nodes: a failure stops new dispatches.
func (s *step) abort() {
	for i := range s.Nodes {
		if st := s.Nodes[i].Status; st == hero.NodePending || st == hero.NodeReady {
			s.end(i, hero.NodeCancelled, map[string]string{hero.ResultError: "the flow was aborted: " + s.Reason})
		}
	}
}

// end ends a node. Its act carries the result, which the state does not keep.
func (s *step) end(i int, status hero.NodeStatus, result map[string]string) {
	s.Nodes[i].Status = status
	s.Nodes[i].Due = time.Time{}
	if status == hero.NodeCompleted {
		s.Nodes[i].Error = ""
	}
	s.act(ActNode, i).Result = result
}

func (s *step) finish(status hero.FlowStatus) {
	s.Status = status
	s.show()
}

func (s *step) show() {
	s.acts = append(s.acts, Act{Kind: ActFlow, Flow: s.Status, Reason: s.Reason})
}

func (s *step) act(kind ActKind, i int) *Act {
	n := s.Definition.Nodes[i]
	s.acts = append(s.acts, Act{Kind: kind, Node: n.ID, Caller: n.CallerID, Attempt: s.Nodes[i].Attempt})
	a := &s.acts[len(s.acts)-1]
	switch kind {
	case ActNode:
		a.Status = s.Nodes[i].Status
	case ActDispatch:
		a.SupervisorURL = n.SupervisorURL
		a.Timeout, a.QueueTimeout = uint32(n.timeout()/time.Second), uint32(n.patience()/time.Second)
	}
	return a
}

func clip(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}
