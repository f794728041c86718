package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

// TestNothingThatIsMalformedIsTaken makes each value of a valid call of each method wrong, one
// at a time. The answer is an error with a reason, and Redis does not change.
func TestNothingThatIsMalformedIsTaken(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	id, calls := uint32(100), 0
	for _, p := range append(permissions(), whole()) {
		id++
		p.prepare(w, id)
		before := w.dump()
		for _, bent := range bend(t, p.params(id, admin)) {
			err := w.http1.Call(t.Context(), p.method, bent, nil)
			var e *jsonrpc.Error
			if !errors.As(err, &e) {
				t.Errorf("%s %v: %v", p.method, short(bent), err)
				continue
			}
			if detailOf(t, e).Why == "" || e.Code == jsonrpc.InternalError {
				t.Errorf("%s %v: %v", p.method, short(bent), err)
			}
			calls++
		}
		if w.dump() != before {
			t.Errorf("%s: something malformed changed Redis", p.method)
		}
	}
	if calls < 500 {
		t.Errorf("only %d calls were bent", calls)
	}
}

// whole has a call of each method with every field that a client may send.
func whole() permission {
	return permission{"message.create", creator, func(*world, uint32) {}, func(id, caller uint32) dict2 {
		return dict2{"context_id": 7, "message": dict2{
			"id": id, "caller_id": caller, "message": "run", "message_type": "job", "message_format_type": "md",
			"timeout": 1, "timeout_ack": 2, "timeout_result": 3, "topic": "t",
			"job": []dict2{{
				"id": id, "caller_id": caller, "context_id": 7, "script": "x", "script_type": "v", "executor": "v", "timeout": 1, "retries": 2,
				"env_vars": dict2{"A": "b"}, "prerequisites": []string{"p"}, "dependends": []int{5},
			}},
			"nodes": []dict2{{"id": id, "depends": []int{5}, "prerequisites": []string{"p"}, "supervisor_url": "http://127.0.0.1:1"}},
		}}
	}}
}

// short formats a value for a message of the test.
func short(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw[:min(len(raw), 300)])
}

// bend returns copies of the parameters, each with one wrong value.
func bend(t *testing.T, params dict2) []any {
	t.Helper()
	raw, err := json.Marshal(params)
	testkit.Must(t, err)
	var v map[string]any
	testkit.Must(t, json.Unmarshal(raw, &v))
	return bentOf(v, true)
}

func bentOf(v any, top bool) []any {
	switch v := v.(type) {
	case map[string]any:
		return bentObject(v, top)
	case []any:
		out := []any{"a", true, 5, dict2{"a": "b"}}
		for i := range v {
			for _, b := range bentOf(v[i], false) {
				bent := slices.Clone(v)
				bent[i] = b
				out = append(out, bent)
			}
		}
		return out
	case float64:
		return []any{-1, 4294967296, 1.5, 1e300, "a", "1x", true, []int{1}, dict2{}}
	case string:
		return []any{5, true, []string{"a", "b"}, dict2{"a": "b"}, "a\x00b"}
	}
	return []any{"a", 7, []int{1}, dict2{}}
}

func bentObject(v map[string]any, top bool) []any {
	var out []any
	if !top {
		out = []any{[]int{1}, true, 5}
	}
	for name := range v {
		for _, b := range bentOf(v[name], false) {
			bent := maps.Clone(v)
			bent[name] = b
			out = append(out, bent)
		}
		if name != "context_id" && name != "id" && name != "name" || !top {
			continue
		}
		bent := maps.Clone(v)
		delete(bent, name)
		out = append(out, bent)
		if name == "name" {
			continue
		}
		bent = maps.Clone(v)
		bent[name] = 0
		out = append(out, bent)
	}
	return out
}

// TestEachRefusalSaysWhatToDo makes common mistakes, and checks the code, the field or key,
// and the advice of each error.
func TestEachRefusalSaysWhatToDo(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	job := func(more dict2) dict2 {
		j := dict2{"id": 11, "caller_id": admin, "script": "x", "script_type": "v"}
		maps.Copy(j, more)
		return dict2{"context_id": 7, "job": j}
	}
	flowOf := func(more dict2) dict2 {
		f := dict2{"id": 2, "caller_id": admin, "jobs": []int{10, 11}}
		maps.Copy(f, more)
		return dict2{"context_id": 7, "flow": f}
	}
	message := func(more dict2) dict2 {
		m := dict2{"id": 1, "caller_id": admin, "message_type": "chat", "message": "x"}
		maps.Copy(m, more)
		return dict2{"context_id": 7, "message": m}
	}
	many := make([]int, 10000)
	for i := range many {
		many[i] = i + 1
	}
	chain := make([]dict2, 1000)
	for i := range chain {
		chain[i] = dict2{"id": i + 1, "depends": []int{(i+1)%1000 + 1}}
	}
	for _, c := range []struct {
		method string
		params dict2
		code   int
		about  string // field or key
		says   string // in why or do
	}{
		{"actor.create", dict2{"actor": dict2{"id": 0}}, jsonrpc.InvalidParams, "actor.id", "from 1 to 4294967295"},
		{"actor.create", dict2{"actor": dict2{"id": 6, "address": []string{""}}}, jsonrpc.InvalidParams, "actor.address[0]", "is empty"},
		{"actor.create", dict2{"actor": dict2{"id": 6, "pubkey": strings.Repeat("a", 5000)}}, jsonrpc.InvalidParams, "actor.pubkey", "may have 1024"},
		{"actor.load", dict2{"id": 77}, jsonrpc.NotFound, "actor:77", "actor.create"},
		{"actor.delete", dict2{"id": 77}, jsonrpc.NotFound, "actor:77", "actor.create"},
		{"context.create", dict2{"context": dict2{"id": 0, "admins": []int{1}}}, jsonrpc.InvalidParams, "context.id", "contexts begin at 1"},
		{"context.create", dict2{"context": dict2{"id": 8, "admins": []int{}}}, jsonrpc.InvalidParams, "context.admins", "nobody could"},
		{"context.create", dict2{"context": dict2{"id": 8, "admins": []int{1, 1}}}, jsonrpc.InvalidParams, "context.admins[1]", "as context.admins[0] is"},
		{"context.create", dict2{"context": dict2{"id": 16, "admins": []int{1}}}, jsonrpc.StorageError, "", "databases N"},
		{"context.create", dict2{"context": dict2{"id": uint32(4294967295), "admins": []int{1}}}, jsonrpc.StorageError, "", "2147483647"},
		{"context.load", dict2{"id": 9}, jsonrpc.NotFound, "context:9", "context.create"},
		{"context.load", dict2{"id": 0}, jsonrpc.InvalidParams, "id", "contexts begin at 1"},
		{"context.delete", dict2{"id": 7, "actor_id": 1}, jsonrpc.AlreadyExists, "context:7", "1 flows, 1 jobs"},
		{"runner.create", dict2{"context_id": 7, "runner": dict2{"id": 1}}, jsonrpc.InvalidParams, "runner.address", "cannot be reached"},
		{"runner.create", dict2{"context_id": 0, "runner": dict2{"id": 1, "local": true}}, jsonrpc.InvalidParams, "context_id", "database 0 holds the actors"},
		{"runner.load", dict2{"context_id": 7, "id": 9}, jsonrpc.NotFound, "runner:9", "runner.create"},
		{"job.create", job(dict2{"script_type": "cobol"}), jsonrpc.InvalidParams, "", "python"},
		{"job.create", job(dict2{"script_type": nil}), jsonrpc.InvalidParams, "job.script_type", "is missing"},
		{"job.create", job(dict2{"retries": 256}), jsonrpc.InvalidParams, "", "255"},
		{"job.create", job(dict2{"context_id": 8}), jsonrpc.InvalidParams, "job.context_id", "about context 7"},
		{"job.create", job(dict2{"caller_id": 0}), jsonrpc.InvalidParams, "caller_id", "is missing"},
		{"job.create", job(dict2{"script": strings.Repeat("x", 1<<20+1)}), jsonrpc.InvalidParams, "job.script", "1048577 bytes"},
		{"job.create", job(dict2{"dependends": []int{11}}), jsonrpc.DagError, "job.dependends", "depends on itself"},
		{"job.create", job(dict2{"env_vars": dict2{"A=B": "secret-value"}}), jsonrpc.InvalidParams, "job.env_vars", "contains = or NUL"},
		{"job.create", job(dict2{"env_vars": dict2{"A": strings.Repeat("x", 200000)}}), jsonrpc.InvalidParams, "job.env_vars.A", "200000 bytes"},
		{"job.create", job(dict2{"prerequisites": []string{"a\nb"}}), jsonrpc.InvalidParams, "job.prerequisites[0]", "control character"},
		{"job.load", dict2{"context_id": 7, "caller_id": 1, "id": 12}, jsonrpc.NotFound, "job:1:12", "job.create"},
		{"job.update", dict2{"context_id": 7, "caller_id": 1, "id": 12, "status": "started"}, jsonrpc.NotFound, "job:1:12", "job.create"},
		{"job.update", dict2{"context_id": 7, "caller_id": 1, "id": 10, "status": "done"}, jsonrpc.InvalidParams, "", "finished"},
		{"job.update", dict2{"context_id": 7, "caller_id": 1, "id": 10, "status": "error", "result": dict2{"a": strings.Repeat("x", 1<<20+1)}}, jsonrpc.InvalidParams, "result.a", "may have 1048576"},
		{"flow.create", flowOf(dict2{"id": 0}), jsonrpc.InvalidParams, "flow.id", "from 1"},
		{"flow.create", flowOf(dict2{"jobs": []int{10, 0}}), jsonrpc.InvalidParams, "flow.jobs[1]", "is 0"},
		{"flow.create", flowOf(dict2{"jobs": []int{10, 11, 10}}), jsonrpc.InvalidParams, "flow.jobs[2]", "as flow.jobs[0] is"},
		{"flow.create", flowOf(dict2{"jobs": many}), jsonrpc.InvalidParams, "flow.jobs", "has 10000 entries, and may have 1000"},
		{"flow.create", flowOf(dict2{"jobs": nil, "nodes": chain}), jsonrpc.DagError, "", "and 951 more"},
		{"flow.create", flowOf(dict2{"nodes": []dict2{{"id": 12}}}), jsonrpc.DagError, "", "not among the flow's jobs"},
		{"flow.create", flowOf(dict2{"nodes": []dict2{{"id": 10, "depends": []int{99}}}}), jsonrpc.DagError, "", "not in the flow: 99"},
		{"flow.create", flowOf(dict2{"nodes": []dict2{{"id": 10, "depends": []int{10}}}}), jsonrpc.DagError, "", "10 → 10"},
		{"flow.create", flowOf(dict2{"nodes": []dict2{{"id": 10, "depends": []int{11}}, {"id": 11, "depends": []int{10}}}}), jsonrpc.DagError, "", "10 → 11 → 10"},
		{"flow.create", flowOf(dict2{"nodes": []dict2{{"id": 10, "supervisor_url": "file:///etc/passwd"}}}), jsonrpc.InvalidParams, "flow.nodes[0].supervisor_url", "mycelium://"},
		{"flow.load", dict2{"context_id": 7, "id": 9}, jsonrpc.NotFound, "flow:9", "flow.create"},
		{"flow.load", dict2{"context_id": 9, "id": 9}, jsonrpc.NotFound, "context:9", "context.create"},
		{"flow.start", dict2{"context_id": 7, "id": 9}, jsonrpc.NotFound, "flow:9", "flow.create"},
		{"flow.prerequisite_met", dict2{"context_id": 7, "id": 1, "name": "paid"}, jsonrpc.NotFound, "flow:1 as a started flow", "flow.start first"},
		{"flow.prerequisite_met", dict2{"context_id": 7, "id": 1, "name": ""}, jsonrpc.InvalidParams, "name", "is missing"},
		{"flow.list", dict2{"context_id": 7, "limit": 20000}, jsonrpc.InvalidParams, "limit", "offset"},
		{"message.create", message(dict2{"message_type": "result"}), jsonrpc.InvalidParams, "message.message_type", "job, chat or mail"},
		{"message.create", message(dict2{"message_type": "job"}), jsonrpc.InvalidParams, "message.job", "is empty"},
		{"message.create", message(dict2{"to": 77}), jsonrpc.NotFound, "actor:77", "actor.create"},
		{"message.create", message(dict2{"flow_id": 9}), jsonrpc.NotFound, "flow:9", "flow.create"},
		{"message.create", message(dict2{"caller_id": other, "flow_id": 1}), jsonrpc.PermissionDenied, "flow:1", "flow_id"},
		{"message.load", dict2{"context_id": 7, "caller_id": 1, "id": 9}, jsonrpc.NotFound, "message:1:9", "message.create"},
		{"message.load", dict2{"context_id": 7, "caller_id": 0, "id": 9}, jsonrpc.InvalidParams, "caller_id", "is missing"},
	} {
		before := w.dump()
		d := w.refused(c.code, c.method, c.params)
		if !strings.Contains(d.Why+" / "+d.Do, c.says) {
			t.Errorf("%s %s: says %+v, want %q", c.method, short(c.params), d, c.says)
		}
		if c.about != "" && d.Field != c.about && d.Key != c.about {
			t.Errorf("%s %s: is about %q %q, want %q", c.method, short(c.params), d.Field, d.Key, c.about)
		}
		if strings.Contains(fmt.Sprint(d), "secret-value") {
			t.Errorf("%s: the error shows a value: %+v", c.method, d)
		}
		if w.dump() != before {
			t.Errorf("%s %s changed Redis", c.method, short(c.params))
		}
	}
}

func TestACycleOverJobsIsPrinted(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(2001, 2003)
	w.job(2002, 2001)
	w.job(2003, 2002)
	w.flow(1, 2001, 2002, 2003)
	for _, method := range []string{"flow.start", "flow.dag"} {
		d := w.refused(jsonrpc.DagError, method, dict2{"context_id": 7, "id": 1})
		if !strings.Contains(d.Why, "2001 → 2003 → 2002 → 2001") || !slices.Equal(d.Cycle, []uint32{2001, 2003, 2002, 2001}) || d.Do == "" {
			t.Errorf("%s: %+v", method, d)
		}
	}
	if _, ran, _ := w.flows.State(t.Context(), 7, 1); ran {
		t.Error("a flow with a cycle was started")
	}
}

// A broken hash under one of Edda's keys stays, and the error names its key and field.
func TestABrokenHashIsNeverOverwritten(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	c, err := w.db.Client(7)
	testkit.Must(t, err)
	c.HSet(t.Context(), "job:1:5", "id", "5", "caller_id", "1", "timeout", "soon")
	c.HSet(t.Context(), "flow:5", "jobs_done", "12")
	c.Set(t.Context(), "runner:5", "text", 0)
	before := w.dump()
	for _, m := range []struct {
		method string
		params dict2
		key    string
	}{
		{"job.create", dict2{"context_id": 7, "job": dict2{"id": 5, "caller_id": 1, "script": "x", "script_type": "v"}}, "job:1:5"},
		{"job.load", dict2{"context_id": 7, "caller_id": 1, "id": 5}, "job:1:5"},
		{"job.update", dict2{"context_id": 7, "caller_id": 1, "id": 5, "status": "started"}, "job:1:5"},
		{"job.delete", dict2{"context_id": 7, "caller_id": 1, "id": 5}, "job:1:5"},
		{"flow.create", dict2{"context_id": 7, "flow": dict2{"id": 5, "caller_id": 1}}, "flow:5"},
		{"flow.start", dict2{"context_id": 7, "id": 5}, "flow:5"},
		{"runner.create", dict2{"context_id": 7, "runner": dict2{"id": 5, "local": true}}, ""},
	} {
		d := w.refused(jsonrpc.StorageError, m.method, m.params)
		if d.Key != m.key || d.Do == "" {
			t.Errorf("%s: %+v", m.method, d)
		}
	}
	if w.dump() != before {
		t.Error("a foreign hash was changed")
	}
	if j := (hero.Job{CallerID: 1, ID: 5}); j.Key() != "job:1:5" {
		t.Fatal("keys have changed")
	}
}

func TestAMessageCannotClaimToComeFromElsewhere(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.call("message.create", dict2{"context_id": 7, "message": dict2{"id": 5, "caller_id": admin, "message_type": "chat", "origin": "8/job:12:2001", "via": "mycelium://x"}}, nil)
	m, err := w.db.Message(t.Context(), 7, admin, 5)
	if err != nil || m.Origin != "" || m.Via != "" {
		t.Fatalf("origin %q, via %q, %v", m.Origin, m.Via, err)
	}
}

func TestAMessageForAContextWhereTheCallerHasNoRight(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.call("context.create", dict2{"context": dict2{"id": 8, "admins": []int{other}}}, nil)
	w.call("context.create", dict2{"context": dict2{"id": 9, "admins": []int{other}, "readers": []int{admin}}}, nil)
	to := func(id, context int, kind string) dict2 {
		return dict2{"context_id": 7, "message": dict2{"id": id, "caller_id": admin, "message_type": kind, "target_context": context,
			"job": []dict2{{"id": id, "script": "x", "script_type": "python"}}}}
	}
	w.refused(jsonrpc.PermissionDenied, "message.create", to(1, 8, "chat"))
	w.refused(jsonrpc.PermissionDenied, "message.create", to(2, 9, "job"))
	w.call("message.create", to(3, 9, "chat"), nil)
	w.call("message.create", to(4, 7, "job"), nil)
}
