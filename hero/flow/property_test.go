package flow_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda/hero"
	"edda/hero/flow"
)

// anyGraph draws a flow whose jobs depend on earlier ones only.
func anyGraph(t *rapid.T) flow.Definition {
	n := rapid.IntRange(1, 12).Draw(t, "jobs")
	var jobs []hero.Job
	for i := range n {
		j := job(uint32(i + 1))
		j.Retries = uint8(rapid.IntRange(0, 2).Draw(t, "retries"))
		for dep := range i {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				j.Dependends = append(j.Dependends, uint32(dep+1))
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "waits") == 0 {
			j.Prerequisites = []string{"go"}
		}
		jobs = append(jobs, j)
	}
	d, err := flow.Define(flowOf(jobs...), jobs)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// history watches what the acts say, and complains of what must not be.
type history struct {
	d         flow.Definition
	completed map[uint32]bool
	attempts  map[uint32]uint32
	ended     map[uint32]int
	ends      int
}

func (h *history) watch(t *rapid.T, acts []flow.Act) {
	for _, a := range acts {
		switch a.Kind {
		case flow.ActDispatch:
			h.dispatched(t, a)
		case flow.ActNode:
			if a.Status.Ended() {
				h.ended[a.Node]++
			}
			h.completed[a.Node] = a.Status == hero.NodeCompleted
		case flow.ActFlow:
			if a.Flow.Ended() {
				h.ends++
			}
		}
	}
}

func (h *history) dispatched(t *rapid.T, a flow.Act) {
	n := h.d.Nodes[a.Node-1]
	for _, dep := range n.Depends {
		if !h.completed[dep] {
			t.Fatalf("%d was dispatched before %d was completed", a.Node, dep)
		}
	}
	if h.attempts[a.Node]++; h.attempts[a.Node] != a.Attempt || a.Attempt > uint32(n.Retries)+1 {
		t.Fatalf("%d was dispatched as attempt %d of %d", a.Node, a.Attempt, n.Retries+1)
	}
}

// Whatever is reported, in whatever order, how often and how late: a flow ends,
// once, with every node ended once, and none dispatched too early or too often.
func TestEveryFlowEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{d: anyGraph(t), completed: map[uint32]bool{}, attempts: map[uint32]uint32{}, ended: map[uint32]int{}}
		now := epoch
		s, acts := h.d.State().Start(now)
		h.watch(t, acts)
		for range rapid.IntRange(0, 60).Draw(t, "inputs") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			s, acts = anyInput(t, s, now)
			h.watch(t, acts)
		}
		for !s.Ended() {
			if s.Next().IsZero() {
				t.Fatalf("nothing is due, and it has not ended: %+v", s)
			}
			s, acts = s.Tick(s.Next())
			h.watch(t, acts)
		}
		h.settled(t, s)
	})
}

func (h *history) settled(t *rapid.T, s flow.State) {
	if h.ends != 1 {
		t.Fatalf("it ended %d times", h.ends)
	}
	all := true
	for i, n := range s.Nodes {
		all = all && n.Status == hero.NodeCompleted
		if id := h.d.Nodes[i].ID; h.ended[id] != 1 || !n.Due.IsZero() {
			t.Fatalf("node %d ended %d times: %+v", id, h.ended[id], n)
		}
	}
	if all != (s.Status == hero.FlowFinished) {
		t.Fatalf("all completed: %v, but the flow is %s", all, s.Status)
	}
}

func anyInput(t *rapid.T, s flow.State, now time.Time) (flow.State, []flow.Act) {
	before := fmt.Sprintf("%+v", s)
	defer func() {
		if after := fmt.Sprintf("%+v", s); after != before {
			t.Fatalf("the state given was changed:\n%s\n%s", before, after)
		}
	}()
	switch rapid.IntRange(0, 9).Draw(t, "input") {
	case 0:
		next, acts := s.Tick(now)
		return next, acts
	case 1:
		next, acts, _ := s.Prerequisite(now, rapid.SampledFrom([]string{"go", "else"}).Draw(t, "name"))
		return next, acts
	case 2:
		if rapid.IntRange(0, 9).Draw(t, "cancel") == 0 {
			return s.Cancel(now)
		}
	}
	next, acts, _ := s.Report(now, hero.Report{
		Node:    uint32(rapid.IntRange(0, 13).Draw(t, "node")),
		Attempt: uint32(rapid.IntRange(0, 3).Draw(t, "attempt")),
		Status:  rapid.SampledFrom([]hero.NodeStatus{hero.NodeRunning, hero.NodeCompleted, hero.NodeFailed, hero.NodeDispatched, hero.NodePending}).Draw(t, "status"),
	})
	return next, acts
}
