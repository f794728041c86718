package coordinator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

func carrying(jobs ...hero.Job) hero.Message {
	return hero.Message{ID: 101, CallerID: admin, ContextID: 7, MessageType: hero.MessageJob, FlowID: 33, Job: jobs}
}

func aJobAfter(id uint32, after ...uint32) hero.Job {
	return hero.Job{ID: id, Script: "print(1)", ScriptType: hero.ScriptPython, Dependends: after}
}

// run handles a flow's message as a router does.
func (w *world) run(m hero.Message, carries bool) (string, error) {
	w.t.Helper()
	run, err := w.FlowRun(w.t.Context(), 7, 33)
	testkit.Must(w.t, err)
	return run, w.RunFlow(w.t.Context(), m, carries, run)
}

func TestAMessageBringsTheFlowThatItHasRun(t *testing.T) {
	for name, m := range map[string]hero.Message{
		"by the jobs": carrying(aJobAfter(2, 1), aJobAfter(1)),
		"by the nodes": {ID: 101, CallerID: admin, ContextID: 7, FlowID: 33, Job: []hero.Job{aJobAfter(2), aJobAfter(1)},
			Nodes: []hero.FlowNode{{ID: 2, Depends: []uint32{1}, Prerequisites: []string{}, NodeStatus: hero.NodeReady}, {ID: 1, Depends: []uint32{}, Prerequisites: []string{}}}},
		// The hash has empty lists for a node without edges, so the jobs' own edges hold.
		"by nodes that say nothing": {ID: 101, CallerID: admin, ContextID: 7, FlowID: 33, Job: []hero.Job{aJobAfter(2, 1), aJobAfter(1)},
			Nodes: []hero.FlowNode{{ID: 2, Depends: []uint32{}, Prerequisites: []string{}}, {ID: 1, Depends: []uint32{}, Prerequisites: []string{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{}).settle()
			run, err := w.run(m, true)
			testkit.Must(t, err)
			if err := w.RunFlow(t.Context(), m, true, run); err != nil { // a restarted router repeats the call
				t.Fatal(err)
			}
			var g struct{ Edges [][2]uint32 }
			w.call("flow.dag", dict2{"context_id": 7, "id": 33}, &g)
			if !slices.Equal(g.Edges, [][2]uint32{{1, 2}}) {
				t.Errorf("its edges are %v", g.Edges)
			}
			if began, err := w.FlowBegan(t.Context(), 7, 33); !began || err != nil {
				t.Errorf("it runs: %v, %v", began, err)
			}
			if end, err := w.FlowEnd(t.Context(), 7, 33); end != nil || err != nil {
				t.Errorf("it ended with %v, %v", end, err)
			}
		})
	}
}

// A router dies after the start, and the flow fails. The next router must not start it again.
func TestAFlowIsStartedOnceForAMessage(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	run, err := w.run(carrying(), false)
	testkit.Must(t, err)
	w.call("flow.cancel", dict2{"context_id": 7, "id": 33}, nil)
	testkit.Must(t, w.RunFlow(t.Context(), carrying(), false, run))
	end, err := w.FlowEnd(t.Context(), 7, 33)
	if err != nil || !strings.HasPrefix(end[hero.ResultError], "the flow ended in error: ") {
		t.Errorf("%v: it runs again: %v", err, end)
	}
	if _, err := w.run(carrying(), false); err != nil { // another message
		t.Fatal(err)
	}
	if end, _ := w.FlowEnd(t.Context(), 7, 33); end != nil {
		t.Errorf("another message did not start it again: %v", end)
	}
	w.flows.finish(t, 33, map[string]string{"x": "1"})
	if _, err := w.run(carrying(), false); err != nil {
		t.Errorf("a flow that has finished: %v", err)
	}
	if end, err := w.FlowEnd(t.Context(), 7, 33); err != nil || end == nil {
		t.Errorf("its result is %v, %v", end, err)
	}
}

func TestAFlowOfAMessageHasTheRightsOfTheCalls(t *testing.T) {
	foreign := aJobAfter(1)
	foreign.CallerID = other
	for name, test := range map[string]struct {
		m       hero.Message
		carries bool
		want    string
	}{
		"an executor":        {hero.Message{CallerID: executor, ContextID: 7, FlowID: 33}, false, "may not change this context"},
		"no such flow":       {carrying(), false, "flow:33 does not exist"},
		"another's job":      {carrying(foreign), true, "may not create in the name of another actor"},
		"a way round":        {carrying(aJobAfter(1, 2), aJobAfter(2, 1)), true, "1 → 2 → 1"},
		"a missing job":      {carrying(aJobAfter(1, 5)), true, "5"},
		"no script":          {carrying(hero.Job{ID: 1, ScriptType: "python"}), true, "script is missing"},
		"an unknown field":   {carrying(hero.Job{ID: 1, Script: "x", ScriptType: "python", Unknown: []string{"colour"}}), true, "colour is not understood"},
		"of another context": {carrying(hero.Job{ID: 1, Script: "x", ScriptType: "python", ContextID: 8}), true, "the call is about context 7"},
	} {
		w := newWorld(t, Options{}).settle()
		_, err := w.run(test.m, test.carries)
		if !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if began, err := w.FlowBegan(t.Context(), 7, 33); began || err != nil {
			t.Errorf("%s: it runs: %v", name, err)
		}
	}
}

func TestAFlowOfAMessageWaitsForRedis(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	w.flows.fail = edda.Classify(edda.Temporary, "the engine is away")
	if _, err := w.run(carrying(), false); !errors.Is(err, edda.Temporary) {
		t.Errorf("it is given up: %v", err)
	}
}

func TestMessageCreateTakesAMessageWithAFlowIdAlone(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	w.flow(33, 1)
	var m hero.Message
	w.call("message.create", dict2{"context_id": 7, "message": dict2{"id": 101, "caller_id": admin, "message_type": "job", "flow_id": 33}}, &m)
	if m.FlowID != 33 || len(m.Job) != 0 {
		t.Errorf("%+v", m)
	}
	carried := dict2{"id": 102, "caller_id": admin, "message_type": "job", "flow_id": 34, "job": []any{dict2{"id": 5, "script": "x", "script_type": "python"}}}
	w.call("message.create", dict2{"context_id": 7, "message": carried}, &m)
	if m.FlowID != 34 || len(m.Job) != 1 {
		t.Errorf("%+v", m)
	}
	if d := w.refused(-32001, "message.create", dict2{"context_id": 7, "message": dict2{"id": 103, "caller_id": admin, "message_type": "job", "flow_id": 35}}); d.Key != "flow:35" {
		t.Errorf("a flow that is not there: %+v", d)
	}
	if d := w.refused(-32602, "message.create", dict2{"context_id": 7, "message": dict2{"id": 103, "caller_id": admin, "message_type": "job"}}); d.Field != "message.job" {
		t.Errorf("neither: %+v", d)
	}
}
