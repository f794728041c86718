package flow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"encoding/json"
	"reflect"

	"edda/hero"
	"edda/hero/flow"
	"edda/internal/testkit"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func job(id uint32, depends ...uint32) hero.Job {
	return hero.Job{ID: id, CallerID: 12, ContextID: 7, Script: "print(1)", ScriptType: hero.ScriptPython, Timeout: 60, Dependends: depends}
}

func define(t *testing.T, jobs ...hero.Job) flow.Definition {
	t.Helper()
	d, err := flow.Define(flowOf(jobs...), jobs)
	testkit.Must(t, err)
	return d
}

func flowOf(jobs ...hero.Job) hero.Flow {
	f := hero.Flow{ID: 33, CallerID: 12, ContextID: 7}
	for _, j := range jobs {
		f.Jobs = append(f.Jobs, j.ID)
	}
	return f
}

func diamond(t *testing.T) flow.State {
	return define(t, job(1), job(2, 1), job(3, 1), job(4, 2, 3)).State()
}

// say prints acts as people would.
func say(acts []flow.Act) []string {
	var out []string
	for _, a := range acts {
		switch a.Kind {
		case flow.ActFlow:
			out = append(out, "flow "+string(a.Flow))
		case flow.ActNode:
			out = append(out, fmt.Sprintf("%d %s", a.Node, a.Status))
		default:
			out = append(out, fmt.Sprintf("%s %d #%d", a.Kind, a.Node, a.Attempt))
		}
	}
	return out
}

func want(t *testing.T, acts []flow.Act, lines ...string) {
	t.Helper()
	if diff := cmp.Diff(lines, say(acts)); diff != "" {
		t.Fatalf("acts (-want +got):\n%s", diff)
	}
}

func completed(node uint32) hero.Report {
	return hero.Report{Node: node, Status: hero.NodeCompleted, Result: map[string]string{"output": fmt.Sprint(node)}}
}

func failed(node, attempt uint32) hero.Report {
	return hero.Report{Node: node, Attempt: attempt, Status: hero.NodeFailed, Result: map[string]string{"error": "exit 1"}}
}

func TestADiamondRunsLevelByLevel(t *testing.T) {
	s, acts := diamond(t).Start(epoch)
	want(t, acts, "flow started", "dispatch 1 #1", "2 pending", "3 pending", "4 pending")
	s, acts, _ = s.Report(at(1), completed(1))
	want(t, acts, "1 completed", "dispatch 2 #1", "dispatch 3 #1")
	s, acts, _ = s.Report(at(2), hero.Report{Node: 2, Status: hero.NodeRunning})
	want(t, acts, "2 running")
	s, acts, _ = s.Report(at(3), completed(3))
	want(t, acts, "3 completed")
	s, acts, _ = s.Report(at(4), completed(2))
	want(t, acts, "2 completed", "dispatch 4 #1")
	s, acts, _ = s.Report(at(5), completed(4))
	want(t, acts, "4 completed", "flow finished")
	if acts[0].Result["output"] != "4" || !s.Next().IsZero() || !s.Ended() {
		t.Fatalf("the end is wrong: %+v", s)
	}
}

func TestStartingTwiceChangesNothing(t *testing.T) {
	s, _ := diamond(t).Start(epoch)
	if _, acts := s.Start(at(1)); acts != nil {
		t.Fatalf("a second start did %v", say(acts))
	}
}

func TestAFailureIsTriedAgainAfterAPauseThatDoubles(t *testing.T) {
	j := job(1)
	j.Retries = 2
	s, _ := define(t, j).State().Start(epoch)
	s, acts, _ := s.Report(epoch, failed(1, 1))
	want(t, acts)
	if s.Next() != at(250*time.Millisecond) {
		t.Fatalf("tried again at %v", s.Next())
	}
	if _, acts = s.Tick(at(249 * time.Millisecond)); acts != nil {
		t.Fatalf("tried again too early: %v", say(acts))
	}
	s, acts = s.Tick(at(250 * time.Millisecond))
	want(t, acts, "dispatch 1 #2")
	s, _, _ = s.Report(at(time.Second), failed(1, 2))
	if s.Next() != at(1500*time.Millisecond) {
		t.Fatalf("the second pause ends at %v", s.Next())
	}
	s, acts = s.Tick(s.Next())
	want(t, acts, "dispatch 1 #3")
	s, acts, _ = s.Report(at(2*time.Second), failed(1, 3))
	want(t, acts, "1 failed", "flow error")
	if acts[0].Result["error"] != "exit 1" || s.FailedJob != 1 || s.Reason != "job 1 failed: exit 1" {
		t.Fatalf("%+v", s)
	}
}

func TestAReportOfAnOlderAttemptIsDropped(t *testing.T) {
	j := job(1)
	j.Retries = 1
	s, _ := define(t, j).State().Start(epoch)
	s, _, _ = s.Report(epoch, failed(1, 1))
	if _, _, taken := s.Report(epoch, failed(1, 1)); taken {
		t.Fatal("a failure was taken twice")
	}
	s, acts := s.Tick(s.Next())
	want(t, acts, "dispatch 1 #2")
	late := completed(1)
	late.Attempt = 1
	if _, acts, taken := s.Report(at(time.Second), late); taken || acts != nil {
		t.Fatal("an answer to the first attempt settled the second")
	}
	late.Attempt = 2
	if _, acts, _ := s.Report(at(time.Second), late); len(acts) != 2 {
		t.Fatalf("the second attempt's answer did %v", say(acts))
	}
}

// A job's timeout is that of its execution: while it waits in a queue only the queue
// timeout counts.
func TestAJobThatIsNotBegunWithinItsQueueTimeoutFails(t *testing.T) {
	for seconds, patience := range map[uint32]time.Duration{0: hero.DefaultQueueTimeout, 7: 7 * time.Second} {
		j := job(1)
		j.QueueTimeout = seconds
		s, acts := define(t, j).State().Start(epoch)
		if s.Next() != at(patience+2*time.Second) {
			t.Fatalf("queue_timeout %d: waits until %v", seconds, s.Next())
		}
		if acts[1].Timeout != 60 || time.Duration(acts[1].QueueTimeout)*time.Second != patience {
			t.Fatalf("dispatched with %+v", acts[1])
		}
		_, acts = s.Tick(s.Next())
		want(t, acts, "stop 1 #1", "1 failed", "flow error")
		if why := acts[1].Result["error"]; why != "queue_timeout: not begun within "+patience.String() {
			t.Fatal(why)
		}
	}
}

func TestAJobThatBeginsLateStillHasItsTimeout(t *testing.T) {
	s, _ := define(t, job(1)).State().Start(epoch)
	s, _, _ = s.Report(at(time.Hour), hero.Report{Node: 1, Status: hero.NodeRunning})
	if s.Next() != at(time.Hour+62*time.Second) {
		t.Fatalf("waits until %v", s.Next())
	}
	_, acts := s.Tick(s.Next())
	want(t, acts, "stop 1 #1", "1 failed", "flow error")
	if !strings.Contains(acts[1].Result["error"], "no result within 1m0s of its start") {
		t.Fatal(acts[1].Result)
	}
}

func TestAFailureAbortsAndRunningNodesMayFinish(t *testing.T) {
	s, _ := define(t, job(1), job(2), job(3, 2), job(4, 1)).State().Start(epoch)
	s, acts, _ := s.Report(epoch, failed(1, 1))
	want(t, acts, "1 failed", "3 cancelled", "4 cancelled")
	s, acts, _ = s.Report(at(1), completed(2))
	want(t, acts, "2 completed", "flow error")
	if s.FailedJob != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestAPrerequisiteIsWaitedFor(t *testing.T) {
	j := job(2, 1)
	j.Prerequisites = []string{"disk", "network"}
	s, _ := define(t, job(1), j).State().Start(epoch)
	s, _, ready := s.Prerequisite(epoch, "disk")
	if len(ready) != 0 {
		t.Fatalf("ready: %v", ready)
	}
	s, acts, _ := s.Report(at(time.Second), completed(1))
	want(t, acts, "1 completed")
	if s.Next() != at(time.Second+hero.DefaultQueueTimeout) {
		t.Fatalf("its patience ends at %v", s.Next())
	}
	if _, _, ready := s.Prerequisite(epoch, "weather"); len(ready) != 0 {
		t.Fatal("a prerequisite that nobody named made a node ready")
	}
	met, acts, ready := s.Prerequisite(at(2*time.Second), "network")
	want(t, acts, "dispatch 2 #1")
	if !slices.Equal(ready, []uint32{2}) || !slices.Equal(met.Met, []string{"disk", "network"}) {
		t.Fatalf("ready %v, met %v", ready, met.Met)
	}
	s, acts = s.Tick(s.Next())
	want(t, acts, "2 failed", "flow error")
	if got := acts[0].Result["error"]; got != "queue_timeout: not met within 24h0m0s: network" {
		t.Fatal(got)
	}
	if _, _, ready := s.Prerequisite(s.Next(), "network"); len(ready) != 0 {
		t.Fatal("met after the end")
	}
}

func TestCancelStopsRunningNodes(t *testing.T) {
	s, _ := diamond(t).Start(epoch)
	s, acts := s.Cancel(at(1))
	want(t, acts, "stop 1 #1", "1 cancelled", "2 cancelled", "3 cancelled", "4 cancelled", "flow error")
	if s.Reason != "cancelled" || !s.Next().IsZero() {
		t.Fatalf("%+v", s)
	}
	if _, acts := s.Cancel(at(2)); acts != nil {
		t.Fatal("cancelled twice")
	}
	if _, _, taken := s.Report(at(2), completed(1)); taken {
		t.Fatal("a result after the cancel was taken")
	}
}

func TestABadGraphIsRefused(t *testing.T) {
	many := make([]hero.Job, flow.MaxNodes+1)
	for i := range many {
		many[i] = job(uint32(i + 1))
	}
	wide := job(1)
	wide.Prerequisites = []string{strings.Repeat("x", flow.MaxDefinition)}
	for name, c := range map[string]struct {
		flow hero.Flow
		jobs []hero.Job
		want string
	}{
		"cycle":      {flowOf(job(5), job(1, 3), job(2, 1), job(3, 2)), []hero.Job{job(5), job(1, 3), job(2, 1), job(3, 2)}, "the jobs wait for each other: 1 → 3 → 2 → 1"},
		"self":       {flowOf(job(1, 1)), []hero.Job{job(1, 1)}, "the jobs wait for each other: 1 → 1"},
		"missing":    {flowOf(job(1), job(9), job(8)), []hero.Job{job(1)}, "jobs of the flow do not exist: create them first: 8, 9"},
		"dependency": {flowOf(job(1, 7)), []hero.Job{job(1, 7)}, "job 1 depends on jobs that are not in the flow: 7"},
		"twice":      {flowOf(job(1), job(1)), []hero.Job{job(1)}, "a job is listed twice: 1"},
		"none":       {flowOf(), nil, "the flow has no jobs"},
		"many":       {flowOf(many...), many, "more than the 1000 jobs that one flow may have: split it"},
		"large":      {flowOf(wide), []hero.Job{wide}, "the graph is larger than 196608 bytes: shorten its URLs and prerequisites, or split it"},
		"stranger": {hero.Flow{ID: 1, Jobs: []uint32{1}, Nodes: []hero.FlowNode{{ID: 2}}}, []hero.Job{job(1)},
			"nodes speak of a job that is not among the flow's jobs: 2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := flow.Define(c.flow, c.jobs)
			if g := (*flow.GraphError)(nil); !errors.As(err, &g) || g.Error() != c.want {
				t.Fatalf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestNodesGoBeforeTheJobsOwnDependencies(t *testing.T) {
	f := flowOf(job(1), job(2, 1))
	f.Nodes = []hero.FlowNode{{ID: 2, Depends: []uint32{}, SupervisorURL: "http://127.0.0.1:1"}, {ID: 1, Depends: []uint32{2, 2}, Prerequisites: []string{"p"}}}
	d, err := flow.Define(f, []hero.Job{job(1), job(2, 1)})
	testkit.Must(t, err)
	if n := d.Nodes[0]; !slices.Equal(n.Depends, []uint32{2}) || !slices.Equal(n.Prerequisites, []string{"p"}) {
		t.Fatalf("%+v", n)
	}
	if n := d.Nodes[1]; len(n.Depends) != 0 || n.SupervisorURL == "" {
		t.Fatalf("%+v", n)
	}
}

func TestTheGraphShowsTheFlow(t *testing.T) {
	s, _ := diamond(t).Start(epoch)
	s, _, _ = s.Report(at(1), completed(1))
	s, _, _ = s.Report(at(2), failed(3, 1))
	g := s.Graph()
	three := uint32(3)
	got := flow.Graph{FlowID: g.FlowID, CallerID: g.CallerID, ContextID: g.ContextID, Edges: g.Edges, ReverseEdges: g.ReverseEdges,
		Roots: g.Roots, Leaves: g.Leaves, Levels: g.Levels, Started: g.Started, Completed: g.Completed, FailedJob: g.FailedJob}
	if diff := cmp.Diff(flow.Graph{
		FlowID: 33, CallerID: 12, ContextID: 7,
		Edges:        [][2]uint32{{1, 2}, {1, 3}, {2, 4}, {3, 4}},
		ReverseEdges: [][2]uint32{{2, 1}, {3, 1}, {4, 2}, {4, 3}},
		Roots:        []uint32{1}, Leaves: []uint32{4}, Levels: [][]uint32{{1}, {2, 3}, {4}},
		Started: []uint32{2}, Completed: []uint32{1}, FailedJob: &three,
	}, got); diff != "" {
		t.Fatal(diff)
	}
	if n := g.Nodes["3"]; n.NodeStatus != hero.NodeFailed || n.Error != "exit 1" || n.ScriptType != hero.ScriptPython {
		t.Fatalf("%+v", n)
	}
	if n := g.Nodes["4"]; n.NodeStatus != hero.NodeCancelled || n.Prerequisites == nil {
		t.Fatalf("%+v", n)
	}
}

func TestALongChainIsNoTrouble(t *testing.T) {
	var jobs []hero.Job
	for i := range uint32(flow.MaxNodes) {
		j := job(i + 1)
		if i > 0 {
			j.Dependends = []uint32{i}
		}
		jobs = append(jobs, j)
	}
	d := define(t, jobs...)
	if got := len(d.State().Graph().Levels); got != flow.MaxNodes {
		t.Fatalf("%d levels", got)
	}
	jobs[0].Dependends = []uint32{flow.MaxNodes}
	_, err := flow.Define(flowOf(jobs...), jobs)
	if err == nil || !strings.Contains(err.Error(), "and 951 more") {
		t.Fatalf("%v", err)
	}
}

func TestAFlowThatIsStartedAgainDropsAnswersOfItsEarlierRun(t *testing.T) {
	j := job(1)
	j.Retries = 1
	s := define(t, j).State()
	s.Base = flow.MaxAttempts
	s, acts := s.Start(epoch)
	want(t, acts, "flow started", "dispatch 1 #1001")
	old := completed(1)
	old.Attempt = 1
	if _, _, taken := s.Report(epoch, old); taken {
		t.Fatal("an answer to the earlier run was taken")
	}
	s, _, _ = s.Report(epoch, failed(1, 1001))
	if s.Next() != at(250*time.Millisecond) {
		t.Fatalf("the first pause ends at %v", s.Next())
	}
	s, acts = s.Tick(s.Next())
	want(t, acts, "dispatch 1 #1002")
	if got := s.Graph().Nodes["1"].Attempt; got != 2 {
		t.Fatalf("the graph says attempt %d", got)
	}
	_, acts, _ = s.Report(s.Next(), failed(1, 1002))
	want(t, acts, "1 failed", "flow error")
}

func TestAFlowInErrorIsResumed(t *testing.T) {
	s, _ := diamond(t).Start(epoch)
	s, _, _ = s.Report(at(1), completed(1))
	s, _, _ = s.Report(at(2), completed(2))
	s, _, _ = s.Report(at(3), failed(3, 1))
	s, acts := s.Definition.Resume(s).Start(at(4))
	want(t, acts, "flow started", "dispatch 3 #1001", "4 pending")
	s, acts, _ = s.Report(at(5), completed(3))
	want(t, acts, "3 completed", "dispatch 4 #1001")
	_, acts, _ = s.Report(at(6), completed(4))
	want(t, acts, "4 completed", "flow finished")
}

func TestAPrerequisiteIsMetOnce(t *testing.T) {
	j := job(1)
	j.Prerequisites = []string{"a", "b"}
	s, _ := define(t, j).State().Start(epoch)
	s, _, _ = s.Prerequisite(at(1), "a")
	s, acts, _ := s.Prerequisite(at(2), "a")
	want(t, acts)
	s, acts, _ = s.Prerequisite(at(3), "nobody's")
	want(t, acts)
	if !slices.Equal(s.Met, []string{"a"}) {
		t.Fatalf("met: %v", s.Met)
	}
	if s.Next() != at(hero.DefaultQueueTimeout) {
		t.Fatalf("what happened meanwhile moved the end of its patience to %v", s.Next())
	}
}

func TestTheFirstFailureIsTheFlows(t *testing.T) {
	s, _ := define(t, job(1), job(2), job(3)).State().Start(epoch)
	s, _, _ = s.Report(at(1), failed(2, 1))
	s, _, _ = s.Report(at(2), failed(1, 1))
	s, acts, _ := s.Report(at(3), completed(3))
	want(t, acts, "3 completed", "flow error")
	if s.FailedJob != 2 || s.Reason != "job 2 failed: exit 1" {
		t.Fatalf("%d: %s", s.FailedJob, s.Reason)
	}
}

func TestAFlowMayBeResumedAgainAndAgain(t *testing.T) {
	s, _ := define(t, job(1)).State().Start(epoch)
	for run := uint32(1); run <= 3; run++ {
		s, _, _ = s.Report(at(1), failed(1, 0))
		next, acts := s.Definition.Resume(s).Start(at(2))
		want(t, acts, "flow started", fmt.Sprintf("dispatch 1 #%d", run*flow.MaxAttempts+1))
		s = next
	}
}

func TestPausesHaveABound(t *testing.T) {
	j := job(1)
	j.Retries = 200
	s, _ := define(t, j).State().Start(epoch)
	now, longest := epoch, time.Duration(0)
	for range 40 {
		s, _, _ = s.Report(now, failed(1, 0))
		longest = max(longest, s.Next().Sub(now))
		now = s.Next()
		s, _ = s.Tick(now)
	}
	if longest != 30*time.Second {
		t.Fatalf("the longest pause is %s", longest)
	}
}

func TestTheEarliestIsNext(t *testing.T) {
	quick := job(2)
	quick.QueueTimeout = 5
	s, _ := define(t, job(1), quick, job(3)).State().Start(epoch)
	if s.Next() != at(7*time.Second) {
		t.Fatalf("next is %v", s.Next())
	}
}

func TestALevelIsBelowAllItDependsOn(t *testing.T) {
	g := define(t, job(1), job(2, 1), job(3, 2), job(4, 1, 3), job(5, 3, 1)).State().Graph()
	if diff := cmp.Diff([][]uint32{{1}, {2}, {3}, {4, 5}}, g.Levels); diff != "" {
		t.Fatal(diff)
	}
	g = define(t, job(1), job(2, 3), job(3, 4), job(4, 1), job(5, 1), job(6, 2, 5)).State().Graph()
	if diff := cmp.Diff([][]uint32{{1}, {4, 5}, {3}, {2}, {6}}, g.Levels); diff != "" {
		t.Fatal(diff)
	}
	g = define(t, job(1), job(2), job(9, 1), job(3, 9, 2)).State().Graph()
	if diff := cmp.Diff([][]uint32{{1, 2}, {9}, {3}}, g.Levels); diff != "" {
		t.Fatal(diff)
	}
}

func TestAMetPrerequisiteStaysMetWhenAFlowIsResumed(t *testing.T) {
	j := job(2)
	j.Prerequisites = []string{"disk"}
	s, _ := define(t, job(1), j).State().Start(epoch)
	s, _, _ = s.Report(at(1), failed(1, 1))
	s.Met = []string{"disk"}
	_, acts := s.Definition.Resume(s).Start(at(2))
	want(t, acts, "flow started", "dispatch 1 #1001", "dispatch 2 #1001")
}

// Between two steps a flow is the JSON that the engine keeps, and an act is the
// JSON of an outbox row: a field that is not in it is forgotten.
func TestWhatAFlowKeepsIsWholeInItsJSON(t *testing.T) {
	for _, kept := range []any{&flow.State{}, &flow.Batch{}, &hero.Report{}} {
		want := reflect.ValueOf(kept).Elem()
		fill(t, want)
		text, err := json.Marshal(kept)
		testkit.Must(t, err)
		got := reflect.New(want.Type())
		testkit.Must(t, json.Unmarshal(text, got.Interface()))
		for i := range want.NumField() {
			if have, want := got.Elem().Field(i).Interface(), want.Field(i).Interface(); !reflect.DeepEqual(have, want) {
				t.Errorf("%T forgets of its %s:\nhave %+v\nwant %+v", kept, got.Elem().Type().Field(i).Name, have, want)
			}
		}
	}
}

// fill sets everything to something.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("error")
		if v.Type() == reflect.TypeFor[hero.NodeStatus]() {
			v.SetString("failed") // it reads its own words only
		}
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(7)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"output": "x"}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(epoch))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("how is %s filled?", v.Type())
	}
}
