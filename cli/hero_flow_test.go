package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"edda/hero"
	"edda/hero/flow"
)

// graphOf is a flow of two jobs, the second after the first.
func graphOf(second flow.GraphNode) flow.Graph {
	second.ID, second.Depends = 2, []uint32{1}
	g := flow.Graph{FlowID: 33, ContextID: 7, Levels: [][]uint32{{1}, {2}}, Completed: []uint32{1}, Nodes: map[string]flow.GraphNode{
		"1": {ID: 1, NodeStatus: hero.NodeCompleted, Attempt: 1}, "2": second,
	}}
	if second.NodeStatus == hero.NodeCompleted {
		g.Completed = append(g.Completed, 2)
	}
	return g
}

func TestAnErrorIsShownWithTheAttemptThatFailed(t *testing.T) {
	for _, tt := range []struct {
		status  hero.NodeStatus
		attempt uint32
		want    string
	}{
		{hero.NodeReady, 1, "2: attempt 1: exit 1"}, // its second is to come
		{hero.NodeDispatched, 2, "2: attempt 1: exit 1"},
		{hero.NodeRunning, 3, "2: attempt 2: exit 1"},
		{hero.NodeFailed, 3, "2: attempt 3: exit 1"},
	} {
		picture := drawFlow(graphOf(flow.GraphNode{NodeStatus: tt.status, Attempt: tt.attempt, Error: "exit 1"}), hero.Flow{Status: hero.FlowStarted}, false)
		if !strings.Contains(picture, tt.want) {
			t.Errorf("%s: want %q in:\n%s", tt.status, tt.want, picture)
		}
	}
}

// A flow that ends between two calls of the one who watches it: the last picture
// must not show a finished flow with a job that still runs.
func TestTheLastPictureShowsEveryJobDone(t *testing.T) {
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		status, node := hero.FlowStarted, hero.NodeRunning
		if calls.Add(1) > 1 {
			status, node = hero.FlowFinished, hero.NodeCompleted
		}
		var result any = hero.Flow{ID: 33, ContextID: 7, Status: status}
		if req.Method == "flow.dag" {
			result = graphOf(flow.GraphNode{NodeStatus: node, Attempt: 1})
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": req.ID, "result": result}); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	var out bytes.Buffer
	term := &terminal{out: &out, err: &out}
	if code := term.run(t.Context(), []string{"hero", "flow", "show", "7", "33", "--watch", "--coordinator", s.URL}); code != 0 {
		t.Fatalf("exit %d: %s", code, out.String())
	}
	last := out.String()[strings.LastIndex(out.String(), "flow 33"):]
	if !strings.HasPrefix(last, "flow 33 of context 7: finished, 2 of 2 jobs completed") || strings.Contains(last, "▶") {
		t.Errorf("the last picture:\n%s", last)
	}
}

func TestALongLineDoesNotSpoilTheRedrawing(t *testing.T) {
	var out bytes.Buffer
	s := canvas{out: &out, terminal: true}
	s.draw("one\ntwo\n", false)
	s.draw("one\ntwo\n", false)
	s.draw("three\n", true)
	if want := "\x1b[?7lone\ntwo\n\x1b[?7h" + "\x1b[2A\x1b[J" + "three\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	s = canvas{out: &out}
	s.draw("one\n", false)
	s.draw("two\n", true)
	if out.String() != "one\ntwo\n" {
		t.Errorf("below each other: %q", out.String())
	}
}
