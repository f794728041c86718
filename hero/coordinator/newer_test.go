package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

// Calls and hashes accept the fields of the newer documents. An unknown field is refused by
// its name, and none is dropped.
func TestFieldsOfTheNewerDocumentsAreDropped(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	for i, job := range []dict2{
		{"script": "x", "script_type": "v", "depends": []int{1}},
		{"script": "x", "script_type": "v", "dependencies": []int{1}, "dependends": []int{}},
		{"payload": "x", "script_type": "v", "dependends": []int{1}},
		{"script": "x", "executor": "v", "depends": []int{1}},
	} {
		job["id"], job["caller_id"] = 20+i, admin
		var got hero.Job
		w.call("job.create", dict2{"context_id": 7, "job": job}, &got)
		if got.Script != "x" || got.ScriptType != "v" || got.Executor != "v" || fmt.Sprint(got.Dependends) != "[1]" {
			t.Errorf("%v: %+v", job, got)
		}
	}
	for name, job := range map[string]dict2{
		"job.priority":    {"script": "x", "script_type": "v", "priority": 5},
		"job.script":      {"script_type": "v"},
		"job.script_type": {"script": "x"},
	} {
		job["id"], job["caller_id"] = 30, admin
		if d := w.refused(jsonrpc.InvalidParams, "job.create", dict2{"context_id": 7, "job": job}); d.Field != name {
			t.Errorf("%s: %+v", name, d)
		}
	}
	w.job(1)
	w.job(2)
	node := func(edges string) dict2 {
		return dict2{"context_id": 7, "flow": dict2{"id": 9, "caller_id": admin, "nodes": []dict2{{"id": 1}, {"id": 2, edges: []int{1}}}}}
	}
	for _, edges := range []string{"depends", "dependends", "dependencies"} {
		w.call("flow.create", node(edges), nil)
		var g struct{ Edges [][2]uint32 }
		w.call("flow.dag", dict2{"context_id": 7, "id": 9}, &g)
		if fmt.Sprint(g.Edges) != "[[1 2]]" {
			t.Errorf("%s: %v", edges, g.Edges)
		}
	}
	if d := w.refused(jsonrpc.InvalidParams, "flow.create", node("after")); d.Field != "flow.nodes[1].after" {
		t.Errorf("%+v", d)
	}
	c, err := w.db.Client(7)
	testkit.Must(t, err)
	c.HSet(t.Context(), "job:1:40", "id", "40", "caller_id", "1", "payload", "x", "executor", "python", "depends", "[1]")
	c.HSet(t.Context(), "job:1:41", "id", "41", "caller_id", "1", "script", "x", "payload", "y")
	var got hero.Job
	w.call("job.load", dict2{"context_id": 7, "caller_id": 1, "id": 40}, &got)
	if got.Script != "x" || got.ScriptType != "python" || fmt.Sprint(got.Dependends) != "[1]" {
		t.Errorf("%+v", got)
	}
	if d := w.refused(jsonrpc.StorageError, "job.load", dict2{"context_id": 7, "caller_id": 1, "id": 41}); !strings.Contains(d.Why, "payload") {
		t.Errorf("%+v", d)
	}
}

// An unknown field of any object is refused by name; it was dropped silently. Fields beside an
// object without its wrapper belong to the call.
func TestAnUnknownFieldIsDroppedSilently(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(1)
	for method, object := range map[string]dict2{
		"actor.create":   {"id": 55, "pubkey": "aa", "address": []string{}, "created_at": 5},
		"context.create": {"id": 9, "admins": []int{admin}, "readers": []int{}, "executors": []int{}},
		"runner.create":  {"id": 20, "local": true, "type": "python", "topic": "t"},
		"flow.create":    {"id": 9, "caller_id": admin, "jobs": []int{1}, "name": "nightly", "status": "created"},
		"message.create": {"id": 9, "caller_id": admin, "message_type": "chat", "message": "hello", "transport_id": "x", "logs": []any{}},
	} {
		kind, _, _ := strings.Cut(method, ".")
		for _, unknown := range []string{"colour", "Id", kind + "_ids"} {
			object[unknown] = 5
			wrapped, bare := dict2{"context_id": 7, "actor_id": admin, kind: object}, dict2{"context_id": 7, "actor_id": admin}
			maps.Copy(bare, object)
			for shape, params := range map[string]dict2{"wrapped": wrapped, "bare": bare} {
				if kind == "actor" {
					params["actor_id"] = 55
				}
				if d := w.refused(jsonrpc.InvalidParams, method, params); d.Field != kind+"."+unknown || !strings.Contains(d.Why, "not understood") {
					t.Errorf("%s %s: %s: %+v", method, shape, unknown, d)
				}
			}
			delete(object, unknown)
			object["colour"] = nil // null counts as absent
			delete(bare, unknown)
			w.call(method, wrapped, nil)
			w.call(method, bare, nil)
			delete(object, "colour")
		}
	}
	var stored hero.Flow
	w.call("flow.load", dict2{"context_id": 7, "id": 9}, &stored)
	if stored.Name != "nightly" || stored.Status != hero.FlowDispatched {
		t.Errorf("%+v", stored)
	}
	var runner map[string]any
	if w.call("runner.load", dict2{"context_id": 7, "id": 20, "actor_id": admin}, &runner); runner["type"] != nil {
		t.Errorf("the runner's type is shown, and not kept: %v", runner)
	}
	w.call("runner.create", dict2{"context_id": 7, "actor_id": admin, "runner": dict2{"id": 20, "local": true, "runner_type": "v"}}, nil)
}

// Unambiguous parameters of other client libraries were refused.
func TestWhatOtherClientsSendIsRefused(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	for name, call := range map[string]struct {
		method string
		params any
		want   string
	}{
		"an address as a text":     {"actor.create", dict2{"actor": dict2{"id": 55, "pubkey": "", "address": "200::7"}}, `"address":["200::7"]`},
		"no address":               {"actor.create", dict2{"actor": dict2{"id": 55, "pubkey": "", "address": ""}}, `"address":[]`},
		"names in camelCase":       {"job.create", dict2{"contextId": 7, "job": dict2{"id": 1, "callerId": admin, "script": "x", "scriptType": "Python", "envVars": dict2{"aB": "c"}, "queueTimeout": 5}}, `"env_vars":{"aB":"c"}`},
		"bare, in camelCase":       {"job.create", dict2{"contextId": 7, "id": 1, "callerId": admin, "script": "x", "scriptType": "python", "envVars": dict2{"aB": "c"}, "queueTimeout": 5}, `"queue_timeout":5`},
		"a node in camelCase":      {"flow.create", dict2{"context_id": 7, "flow": dict2{"id": 9, "caller_id": admin, "nodes": []dict2{{"id": 1, "supervisorUrl": "http://s"}}}}, `"supervisor_url":"http://s"`},
		"times in RFC 3339":        {"job.create", dict2{"context_id": 7, "job": dict2{"id": 2, "caller_id": admin, "script": "x", "script_type": "v", "created_at": "2026-01-01T12:00:00Z", "updated_at": "2026-01-01T12:00:00+01:00"}}, `"id":2`},
		"parameters by position":   {"job.load", []any{7, admin, 1}, `"id":1`},
		"an object by position":    {"runner.create", []any{7, dict2{"id": 20, "local": true, "callerId": admin, "pubKey": "ab"}}, `"pubkey":"ab"`},
		"a list by position":       {"job.list", []any{7}, `"id":2`},
		"an update by position":    {"job.update", []any{7, admin, 1, "Started"}, `"status":"started"`},
		"a message in camelCase":   {"message.create", dict2{"context_id": 7, "message": dict2{"id": 9, "callerId": admin, "messageType": "Chat", "messageFormatType": "Md", "message": "hi"}}, `"message_format_type":"md"`},
		"a context's in camelCase": {"context.load", dict2{"id": 7, "actorId": admin}, `"admins"`},
	} {
		if strings.HasSuffix(name, "position") || strings.HasPrefix(name, "a node") || name == "a list by position" {
			w.job(1) // the same again changes nothing where it is there
			w.job(2)
		}
		var got any
		w.call(call.method, call.params, &got)
		raw, err := json.Marshal(got)
		if err != nil || !strings.Contains(string(raw), call.want) {
			t.Errorf("%s: %s, want %s", name, raw, call.want)
		}
	}
	for field, params := range map[string]dict2{
		"callerId":   {"context_id": 7, "job": dict2{"id": 3, "callerId": admin, "caller_id": other, "script": "x", "script_type": "v"}},
		"created_at": {"context_id": 7, "job": dict2{"id": 3, "caller_id": admin, "script": "x", "script_type": "v", "created_at": "yesterday"}},
	} {
		if d := w.refused(jsonrpc.InvalidParams, "job.create", params); !strings.Contains(d.Why, field) {
			t.Errorf("%s: %+v", field, d)
		}
	}
}
