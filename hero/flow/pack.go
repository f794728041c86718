package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"edda/hero"
)

// A state is stored as a head, whose size is the same for every flow, and as parts. A step
// writes only the changed parts: the cost of a job does not grow with the flow.

const (
	// nodesInPart is the number of nodes in a part: a step writes a few hundred bytes, and a
	// flow of a thousand jobs takes about a hundred rows.
	nodesInPart = 8
	// metInPart is the number of prerequisites in a part.
	metInPart = 8
	// firstNodes and firstMet number the first part of each kind. Part 0 is the definition.
	firstNodes, firstMet = 1, 1 << 16
)

// StatePart is a part of a state. One without data is to be removed.
type StatePart struct {
	N    uint64
	Data json.RawMessage
}

// StateHead is a state without its parts.
type StateHead struct {
	FlowID    uint32                  `json:"flow_id"`
	CallerID  uint32                  `json:"caller_id"`
	ContextID uint32                  `json:"context_id"`
	Status    hero.FlowStatus         `json:"status"`
	Jobs      int                     `json:"jobs"`
	Nodes     map[hero.NodeStatus]int `json:"nodes"` // the number in each status
	FailedJob uint32                  `json:"failed_job,omitempty"`
	Reason    string                  `json:"reason,omitempty"`
	Base      uint32                  `json:"base,omitempty"`
}

// packedNode is a node's state in a part.
type packedNode struct {
	Status  hero.NodeStatus `json:"s"`
	Attempt uint32          `json:"a,omitempty"`
	Due     time.Time       `json:"d,omitzero"`
	Error   string          `json:"e,omitempty"`
}

// Pack returns the state's head, the parts that differ from an earlier state, which may be
// nil, and the number of its parts.
func (s State) Pack(was *State) (head json.RawMessage, changed []StatePart, parts int, err error) {
	if was == nil {
		was = &State{}
	}
	raw, err := json.Marshal(s.head())
	if err != nil {
		return nil, nil, 0, err
	}
	if was.Nodes == nil || !sameDefinition(s.Definition, was.Definition) {
		if changed, err = with(changed, 0, s.Definition); err != nil {
			return nil, nil, 0, err
		}
	}
	if changed, err = packed(changed, firstNodes, nodesInPart, s.Nodes, was.Nodes, packNodes); err != nil {
		return nil, nil, 0, err
	}
	if changed, err = packed(changed, firstMet, metInPart, s.Met, was.Met, func(met []string) any { return met }); err != nil {
		return nil, nil, 0, err
	}
	return raw, changed, 1 + chunks(len(s.Nodes), nodesInPart) + chunks(len(s.Met), metInPart), nil
}

func (s State) head() StateHead {
	h := StateHead{
		FlowID: s.Definition.FlowID, CallerID: s.Definition.CallerID, ContextID: s.Definition.ContextID, Status: s.Status,
		Jobs: len(s.Nodes), Nodes: map[hero.NodeStatus]int{}, FailedJob: s.FailedJob, Reason: s.Reason, Base: s.Base,
	}
	for i := 0; i < len(s.Nodes); { // neighbours mostly have the same status
		status, from := s.Nodes[i].Status, i
		for i < len(s.Nodes) && s.Nodes[i].Status == status {
			i++
		}
		h.Nodes[status] += i - from
	}
	return h
}

// sameDefinition reports whether both states share one definition, which never changes while a
// flow runs. Pack writes any other one.
func sameDefinition(a, b Definition) bool {
	return a.FlowID == b.FlowID && len(a.Nodes) == len(b.Nodes) && (len(a.Nodes) == 0 || &a.Nodes[0] == &b.Nodes[0])
}

func packNodes(nodes []NodeState) any {
	out := make([]packedNode, len(nodes))
	for i, n := range nodes {
		out[i] = packedNode(n)
	}
	return out
}

func chunks(n, size int) int { return (n + size - 1) / size }

// packed appends the changed parts of a list, and the removal of those that it no longer has.
func packed[T comparable](to []StatePart, first uint64, size int, now, was []T, pack func([]T) any) ([]StatePart, error) {
	var err error
	for i := range chunks(len(now), size) {
		from := i * size
		chunk, before := now[from:min(from+size, len(now))], was[min(from, len(was)):min(from+size, len(was))]
		if slices.Equal(chunk, before) {
			continue
		}
		if to, err = with(to, first+uint64(i), pack(chunk)); err != nil {
			return nil, err
		}
	}
	for i := chunks(len(now), size); i < chunks(len(was), size); i++ {
		to = append(to, StatePart{N: first + uint64(i)})
	}
	return to, nil
}

func with(to []StatePart, n uint64, v any) ([]StatePart, error) {
	raw, err := json.Marshal(v)
	return append(to, StatePart{N: n, Data: raw}), err
}

// Unpack returns the state of a head and all of its parts, sorted by number.
func Unpack(head json.RawMessage, parts []StatePart) (State, error) {
	var h StateHead
	if err := json.Unmarshal(head, &h); err != nil {
		return State{}, fmt.Errorf("head: %w", err)
	}
	s := State{Status: h.Status, FailedJob: h.FailedJob, Reason: h.Reason, Base: h.Base, Nodes: make([]NodeState, 0, h.Jobs)}
	for _, p := range parts {
		if err := s.take(p); err != nil {
			return State{}, fmt.Errorf("part %d: %w", p.N, err)
		}
	}
	if len(s.Nodes) != h.Jobs || len(s.Definition.Nodes) != h.Jobs {
		return State{}, fmt.Errorf("%d jobs are defined, %d stand somewhere, and there should be %d", len(s.Definition.Nodes), len(s.Nodes), h.Jobs)
	}
	return s, nil
}

func (s *State) take(p StatePart) error {
	switch {
	case p.N == 0:
		return json.Unmarshal(p.Data, &s.Definition)
	case p.N < firstMet:
		var nodes []packedNode
		if err := json.Unmarshal(p.Data, &nodes); err != nil {
			return err
		}
		for _, n := range nodes {
			s.Nodes = append(s.Nodes, NodeState(n))
		}
		return nil
	}
	var met []string
	err := json.Unmarshal(p.Data, &met)
	s.Met = append(s.Met, met...)
	return err
}

// Size estimates the bytes that the state takes in memory.
func (s State) Size() int {
	const node, state, edge = 160, 72, 4
	n := len(s.Nodes) * (node + state)
	for i := range s.Definition.Nodes {
		d := &s.Definition.Nodes[i]
		n += edge*len(d.Depends) + len(d.SupervisorURL)
		for _, name := range d.Prerequisites {
			n += len(name)
		}
	}
	return n
}
