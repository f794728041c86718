package flowsaga_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/flowsaga"
	"edda/internal/testkit"
	"edda/saga"
)

// cost is what the events of one flow take, for each job.
type cost struct {
	bytes    float64 // that are committed
	largest  int     // by one event but the start
	allocs   float64
	duration time.Duration
}

// shapes are how jobs may depend on each other.
var shapes = map[string]func(id uint32) []uint32{
	"wide":  func(uint32) []uint32 { return nil },
	"chain": func(id uint32) []uint32 { return []uint32{id - 1} },
	"tree":  func(id uint32) []uint32 { return []uint32{id / 2} },
}

// costOf runs a flow as the engine does: each job is taken, begun and completed.
func costOf(t testing.TB, n int, depends func(uint32) []uint32) (c cost) {
	t.Helper()
	set, err := saga.NewSet()
	testkit.Must(t, err)
	s, f := flowsaga.With(set), hero.Flow{ID: 33, CallerID: 12, ContextID: 7}
	var jobs []hero.Job
	for id := uint32(1); id <= uint32(n); id++ {
		j := hero.Job{ID: id, CallerID: 12, ContextID: 7, ScriptType: hero.ScriptPython, Timeout: 60}
		if id > 1 {
			j.Dependends = depends(id)
		}
		f.Jobs, jobs = append(f.Jobs, id), append(jobs, j)
	}
	d, err := flow.Define(f, jobs)
	testkit.Must(t, err)
	cell, at, events := edda.Cell{Key: flowsaga.Key("acme", 7, 33)}, epoch, 0
	give := func(name string, payload any) {
		raw, err := json.Marshal(payload)
		testkit.Must(t, err)
		events++
		at = at.Add(time.Millisecond)
		ev := edda.Event{Kind: edda.KindSignal, ID: fmt.Sprintf("report/7/33/%06d", events), Tenant: "acme", Key: cell.Key, Type: name, Payload: raw, Time: at}
		target := s.Route(ev)[0]
		began := time.Now()
		next, out := s.Apply(cell, target, ev)
		c.duration += time.Since(began)
		if cell = next; len(out) != 1 || out[0].Fate == edda.FateDead {
			t.Fatalf("%s: %+v", name, out)
		}
		size := written(t, out[0])
		c.bytes += float64(size)
		if name == "report" && !cell.Instance.Status.Finished() {
			c.largest = max(c.largest, size)
		}
	}
	give("start", d)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for id := uint32(1); id <= uint32(n); id++ {
		for _, status := range []hero.NodeStatus{hero.NodeDispatched, hero.NodeRunning, hero.NodeCompleted} {
			give("report", hero.Report{ContextID: 7, FlowID: 33, Node: id, Attempt: 1, Status: status, Result: map[string]string{"output": "ok"}})
		}
	}
	runtime.ReadMemStats(&after)
	if cell.Instance.Status != edda.StatusDone {
		t.Fatalf("the flow is %s", cell.Instance.Status)
	}
	c.allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
	c.bytes /= float64(n)
	c.duration /= time.Duration(n)
	return c
}

// written is about what a transition adds to the store: the instance and its state
// beside it in the history, the parts, the event and the work.
func written(t testing.TB, tr edda.Transition) int {
	t.Helper()
	raw, err := json.Marshal(tr.Instance)
	testkit.Must(t, err)
	n := len(raw) + len(tr.Instance.State) + len(tr.Event.Payload)
	for _, p := range tr.Parts {
		n += len(p.Data)
	}
	for _, w := range tr.Work {
		n += len(w.Payload)
	}
	return n
}

// The whole state was decoded, encoded and written with every event: a thousand jobs
// cost four times as much each as thirty.
func TestAJobOfALargeFlowCostsWhatOneOfASmallFlowDoes(t *testing.T) {
	for name, depends := range shapes {
		t.Run(name, func(t *testing.T) {
			small, large := costOf(t, 30, depends), costOf(t, flow.MaxNodes, depends)
			t.Logf("30 jobs: %.0f bytes, %.0f allocations and %v a job, %d bytes the largest event", small.bytes, small.allocs, small.duration, small.largest)
			t.Logf("%d jobs: %.0f bytes, %.0f allocations and %v a job, %d bytes the largest event", flow.MaxNodes, large.bytes, large.allocs, large.duration, large.largest)
			if large.bytes > 1.2*small.bytes {
				t.Errorf("a job of a large flow has %.0f bytes committed, one of a small flow %.0f", large.bytes, small.bytes)
			}
			if large.allocs > 1.2*small.allocs {
				t.Errorf("a job of a large flow takes %.0f allocations, one of a small flow %.0f", large.allocs, small.allocs)
			}
			if large.largest > small.largest+small.largest/10 {
				t.Errorf("an event of a large flow has %d bytes committed, one of a small flow %d", large.largest, small.largest)
			}
		})
	}
}

func BenchmarkAFlowOfAThousandJobs(b *testing.B) {
	for b.Loop() {
		costOf(b, flow.MaxNodes, shapes["chain"])
	}
}
