package coordinator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

func TestAFlowFromCreateToResult(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.flow(33, 2001, 2002, 2003) // before its jobs
	d := w.refused(jsonrpc.DagError, "flow.start", dict2{"context_id": 7, "id": 33})
	if !slices.Equal(d.IDs, []uint32{2001, 2002, 2003}) || !strings.Contains(d.Why, "2001, 2002, 2003") {
		t.Errorf("missing jobs are told as %+v", d)
	}
	w.job(2001)
	w.job(2002, 2001)
	w.job(2003, 2001)

	var g flow.Graph
	w.call("flow.dag", dict2{"context_id": 7, "id": 33}, &g)
	if got := fmt.Sprint(g.Edges, g.Levels, g.Roots, g.Leaves, g.Nodes["2002"].NodeStatus); got != "[[2001 2002] [2001 2003]] [[2001] [2002 2003]] [2001] [2002 2003]pending" {
		t.Errorf("graph %s", got)
	}
	var started bool
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, &started)
	w.call("flow.dag", dict2{"context_id": 7, "id": 33}, &g)
	if !started || g.Nodes["2001"].NodeStatus != hero.NodeDispatched {
		t.Errorf("started %v, node 2001 is %s", started, g.Nodes["2001"].NodeStatus)
	}
	w.call("flow.start", dict2{"context_id": 7, "id": 33}, &started)
	if started {
		t.Error("a flow that runs is started again")
	}
	var f hero.Flow
	w.call("flow.load", dict2{"context_id": 7, "id": 33}, &f)
	if f.Status != hero.FlowStarted || len(f.Result) != 0 {
		t.Errorf("while it runs: %+v", f)
	}
	w.flows.finish(t, 33, map[string]string{"answer": "42"})
	w.call("flow.load", dict2{"context_id": 7, "id": 33}, &f)
	if f.Status != hero.FlowFinished || f.Result["2002.answer"] != "42" {
		t.Errorf("at the end: %+v", f)
	}
	if d := w.refused(jsonrpc.AlreadyExists, "flow.start", dict2{"context_id": 7, "id": 33}); !strings.Contains(d.Do, "another flow") {
		t.Errorf("a finished flow is started: %+v", d)
	}
}

func TestCreateReturnsTheObjectAndAgainChangesNothing(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	for _, c := range []struct {
		method string
		params dict2
		want   string
	}{
		{"actor.create", dict2{"actor": dict2{"id": 9, "pubkey": "ab", "address": []string{"200::9"}}}, `"id":9,"pubkey":"ab","address":["200::9"],"created_at":`},
		{"context.create", dict2{"context": dict2{"id": 8, "admins": []int{1}}}, `"id":8,"admins":[1],"readers":[],"executors":[],"created_at":`},
		{"runner.create", dict2{"context_id": 7, "runner": dict2{"id": 20, "pubkey": "cd", "address": "200::2", "topic": "t"}}, `"id":20,"pubkey":"cd","address":"200::2","topic":"t","local":false,"created_at":`},
		{"job.create", dict2{"context_id": 7, "job": dict2{"id": 1, "caller_id": 1, "script": "x", "script_type": "Python", "status": "finished", "result": dict2{"a": "b"}, "created_at": 5}},
			`"script_type":"python","executor":"python","timeout":0,"retries":0,"env_vars":{},"result":{},"prerequisites":[],"dependends":[],"created_at":`},
		{"flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": 1, "jobs": []int{1}, "status": "finished", "result": dict2{"a": "b"}}}, `"jobs":[1],"env_vars":{},"result":{},"created_at":`},
		{"message.create", dict2{"context_id": 7, "message": dict2{"id": 1, "caller_id": 1, "message": "hi", "message_type": "chat", "status": "processed"}}, `"message":"hi","message_type":"chat","message_format_type":"text"`},
	} {
		var first, second json.RawMessage
		w.call(c.method, c.params, &first)
		w.call(c.method, c.params, &second)
		if !strings.Contains(string(first), c.want) {
			t.Errorf("%s returned %s, want %s", c.method, first, c.want)
		}
		if withoutTime(t, first) != withoutTime(t, second) {
			t.Errorf("%s again returned %s, after %s", c.method, second, first)
		}
		var times struct {
			CreatedAt uint32 `json:"created_at"`
			Status    string
		}
		if json.Unmarshal(first, &times) != nil || times.CreatedAt < 1_700_000_000 {
			t.Errorf("%s: created_at %d is not the server's", c.method, times.CreatedAt)
		}
		if times.Status != "" && times.Status != "dispatched" {
			t.Errorf("%s: status %s is not the server's", c.method, times.Status)
		}
	}
}

func withoutTime(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var m map[string]any
	testkit.Must(t, json.Unmarshal(raw, &m))
	delete(m, "updated_at")
	out, _ := json.Marshal(m)
	return string(out)
}
