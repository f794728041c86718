package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"edda/hero"
	"edda/hero/coordinator"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
)

// coordinatorOf answers the methods of a flow as look says, which gets the number
// of the call of flow.load; no status cuts the connection.
func coordinatorOf(t *testing.T, look func(call int) (hero.FlowStatus, *jsonrpc.Error)) *httptest.Server {
	t.Helper()
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		if req.Method == "flow.load" {
			calls.Add(1)
		}
		status, no := look(int(calls.Load()))
		if status == "" && no == nil {
			panic(http.ErrAbortHandler)
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": req.ID}
		switch {
		case no != nil:
			answer["error"] = no
		case req.Method == "flow.dag":
			answer["result"] = graphOf(flow.GraphNode{NodeStatus: hero.NodeRunning, Attempt: 1})
		default:
			answer["result"] = hero.Flow{ID: 33, ContextID: 7, Status: status}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestARefusedCallIsToldInLines(t *testing.T) {
	for name, test := range map[string]struct {
		data any
		code int
		want string
	}{
		"with what to do": {coordinator.Detail{Key: "context:7", Why: "actor 13 is no admin", Do: "ask one"}, jsonrpc.PermissionDenied,
			"Permission denied (-32003): actor 13 is no admin\n  object: context:7\n  what to do: ask one"},
		"nothing twice": {coordinator.Detail{Key: "flow:33", Why: "flow:33 does not exist", Do: "look with flow.list, or create it with flow.create"}, jsonrpc.NotFound,
			"Not found (-32001): flow:33 does not exist\n  what to do: look with edda hero flow list CONTEXT, or create it with edda hero flow create FILE"},
		"a method without a command": {coordinator.Detail{Key: "job:12:1", Why: "job:12:1 does not exist", Do: "look with job.list, or create it with job.create"}, jsonrpc.NotFound,
			"Not found (-32001): job:12:1 does not exist\n  what to do: look with edda hero call job.list, or create it with edda hero call job.create"},
		"a way round": {coordinator.Detail{Why: "it goes round", IDs: []uint32{1, 2}, Cycle: []uint32{1, 2, 1}}, jsonrpc.DagError,
			"DAG error (-32020): it goes round\n  ids: 1, 2\n  the way round: 1 → 2 → 1\n  what to do: correct what was called with, and call again"},
		"a text": {"no such\n\x1b[2Jmethod", jsonrpc.MethodNotFound,
			"Method not found (-32601): no such �[2Jmethod\n  what to do: see what the coordinator takes with: edda hero call rpc.discover"},
		"another server's": {map[string]any{"b": "two", "a": []int{1}}, jsonrpc.InternalError,
			"Internal error (-32603)\n  a: [1]\n  b: two\n  what to do: look at the coordinator's log"},
		"nothing": {nil, jsonrpc.Busy, "Server is busy (-32009)\n  what to do: call again in a moment; where that does not help, look at the coordinator's log"},
	} {
		t.Run(name, func(t *testing.T) {
			s := coordinatorOf(t, func(int) (hero.FlowStatus, *jsonrpc.Error) {
				return "", &jsonrpc.Error{Code: test.code, Message: jsonrpc.Words(test.code), Data: test.data}
			})
			for _, line := range [][]string{{"call", "flow.load"}, {"flow", "start", "7", "33"}, {"flow", "show", "7", "33"}} {
				said := newScreen()
				term := &terminal{in: strings.NewReader(""), out: newScreen(), err: said}
				code := term.run(t.Context(), append(append([]string{"hero"}, line...), "--coordinator", s.URL))
				if want := fmt.Sprintf("edda: %s\n", test.want); code != exitFailed || said.String() != want {
					t.Errorf("%q: exit %d\n%s\nwant\n%s", line, code, said, want)
				}
			}
		})
	}
}
