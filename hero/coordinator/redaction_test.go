package coordinator

import (
	"encoding/json"
	"strings"
	"testing"

	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

func TestMereReadersDoNotSeeSecretVariables(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	vars := dict2{"API_TOKEN": "t0p-secret-token", "db_password": "t0p-secret-word", "CITY": "Ghent", "MY_KEYHOLE": "plain"}
	w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": 1, "caller_id": admin, "script": "x", "script_type": "python", "env_vars": vars}}, nil)
	w.call("flow.create", dict2{"context_id": 7, "flow": dict2{"id": 33, "caller_id": admin, "jobs": []int{1}, "env_vars": vars}}, nil)
	w.call("message.create", dict2{"context_id": 7, "message": dict2{"id": 5, "caller_id": admin, "message_type": "job", "message_format_type": "text",
		"job": []dict2{{"id": 9, "caller_id": admin, "context_id": 7, "script": "x", "script_type": "python", "env_vars": vars}}}}, nil)
	given := map[string]uint32{}
	for _, actor := range []uint32{admin, other, executor, reader} {
		given[tokenOf(actor)] = actor
	}
	calls := []struct {
		method string
		params dict2
	}{
		{"job.load", dict2{"context_id": 7, "caller_id": admin, "id": 1}}, {"job.list", dict2{"context_id": 7}},
		{"flow.load", dict2{"context_id": 7, "id": 33}}, {"flow.list", dict2{"context_id": 7}},
		{"message.load", dict2{"context_id": 7, "caller_id": admin, "id": 5}}, {"message.list", dict2{"context_id": 7}},
	}
	see := func(o Options, token string, actor uint32) map[string]string {
		t.Helper()
		c, err := New(w.db, w.flows, o)
		testkit.Must(t, err)
		client, out := jsonrpc.NewClient(serveHTTP(t, c), jsonrpc.ClientOptions{Token: token}), map[string]string{}
		for _, call := range calls {
			params := dict2{}
			for k, v := range call.params {
				params[k] = v
			}
			if actor != 0 {
				params["actor_id"] = actor
			}
			var raw json.RawMessage
			testkit.Must(t, client.Call(t.Context(), call.method, params, &raw))
			out[call.method] = string(raw)
		}
		return out
	}
	for name, tt := range map[string]struct {
		o      Options
		token  string
		actor  uint32
		hidden bool
	}{
		"a reader":                       {Options{Tokens: given}, tokenOf(reader), 0, true},
		"an executor":                    {Options{Tokens: given}, tokenOf(executor), 0, false},
		"an admin":                       {Options{Tokens: given}, tokenOf(other), 0, false},
		"a reader, by its word":          {Options{}, "", reader, true},
		"an executor, by its word":       {Options{}, "", executor, false},
		"who names nobody, as elsewhere": {Options{}, "", 0, false},
	} {
		for method, text := range see(tt.o, tt.token, tt.actor) {
			if strings.Contains(text, "t0p-secret") == tt.hidden || strings.Contains(text, `"***"`) != tt.hidden || !strings.Contains(text, "Ghent") || !strings.Contains(text, "plain") {
				t.Errorf("%s by %s: %s", name, method, text)
			}
		}
	}
	for method, text := range see(Options{Tokens: given, Secrets: []string{"c?ty"}}, tokenOf(reader), 0) {
		if !strings.Contains(text, "t0p-secret") || strings.Contains(text, "Ghent") {
			t.Errorf("by other patterns, %s: %s", method, text)
		}
	}
}

func TestACreatorThatMayOnlyReadSeesItsOwnSecrets(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": 1, "caller_id": other, "script": "x", "script_type": "python", "env_vars": dict2{"TOKEN": "t0p-secret"}}}, nil)
	w.call("context.create", dict2{"context": dict2{"id": 7, "admins": []int{admin}, "readers": []int{reader, other}, "executors": []int{executor}}, "caller_id": admin}, nil)
	for actor, want := range map[uint32]string{other: "t0p-secret", reader: "***", admin: "t0p-secret"} {
		var got []struct {
			EnvVars map[string]string `json:"env_vars"`
		}
		w.call("job.list", dict2{"context_id": 7, "actor_id": actor}, &got)
		if len(got) != 1 || got[0].EnvVars["TOKEN"] != want {
			t.Errorf("actor %d sees %+v", actor, got)
		}
	}
}
