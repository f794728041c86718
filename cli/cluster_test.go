package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"edda/server"
)

// clusterStub answers as the nodes of a cluster do.
type clusterStub struct {
	mu     sync.Mutex // guards all below
	status server.ClusterStatus
	calls  []string            // "METHOD path by why"
	before func(call int) bool // answers in its place, or changes the status; calls are counted from 1
	answer http.ResponseWriter // of the call at hand
	addr   string
}

func newClusterStub(t *testing.T) *clusterStub {
	t.Helper()
	s := &clusterStub{status: server.ClusterStatus{Name: "shop", Node: "n2", Owner: "n1", Epoch: 7, Level: 3, Nodes: []server.ClusterNode{
		{Node: "n1", Role: server.NodeOwner, State: server.NodeAlive, Version: "1.9.0", Level: 3, LSN: 1000, BeatAge: 240, URL: "https://n1:8700", Revision: 4},
		{Node: "n2", Role: server.NodeStandby, State: server.NodeAlive, Version: "1.9.0", Level: 3, LSN: 997, Lag: 3, URL: "https://n2:8700", Revision: 4},
		{Node: "n3", Role: server.NodeJoining, State: server.NodeDead, Version: "1.9.0", Level: 3, BeatAge: 61_234, Lag: 1000, Problem: "it copies \x1b[2Jthe store"},
	}}}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	s.addr = h.URL
	return s
}

func (s *clusterStub) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+r.Header.Get("x-edda-by")+" "+r.Header.Get("x-edda-why")))
	if s.answer = w; s.before != nil && s.before(len(s.calls)) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	var body any = s.status
	switch r.Method + " " + r.URL.Path {
	case "POST /cluster/move":
		body = server.ClusterMove{From: "n1", To: "n2", Epoch: s.status.Epoch}
	case "POST /cluster/finalize":
		body = server.ClusterLevel{Level: 4}
	}
	_ = json.NewEncoder(w).Encode(body)
}

// edda runs a command on the cluster.
func (s *clusterStub) edda(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	s.calls = nil
	return shell(t, []string{"USER=ann", "EDDA_URL=" + s.addr}, append([]string{"cluster"}, args...)...)
}

// refuse answers the call at hand.
func (s *clusterStub) refuse(status int, detail string) bool {
	s.answer.Header().Set("Content-Type", "application/problem+json")
	s.answer.WriteHeader(status)
	_ = json.NewEncoder(s.answer).Encode(map[string]string{"detail": detail})
	return true
}

func TestTheStatusOfAClusterIsUnderstoodAtThreeInTheMorning(t *testing.T) {
	s := newClusterStub(t)
	code, out, said := s.edda(t, "status")
	const want = `shop: n1 owns the store; epoch 7, level 3 (as n2 knows it)
NODE  ROLE     STATE  LAG   RECORD  LAST BEAT  VERSION  LEVEL  URL              MANIFESTS   PROBLEM
n1    owner    alive  0     1000    200ms ago  1.9.0    3      https://n1:8700  revision 4
n2    standby  alive  3     997     answers    1.9.0    3      https://n2:8700  revision 4
n3    joining  dead   1000  0       1m1s ago   1.9.0    3                                   it copies �[2Jthe store
node n3 is dead: start it again, or edda cluster forget n3 if it does not come back
`
	if code != exitDone || out != want || said != "" {
		t.Errorf("%d\n%s%s\nwant\n%s", code, out, said, want)
	}
	if code, out, _ := s.edda(t, "status", "-o", "ids"); code != exitDone || out != "n1\nn2\nn3\n" {
		t.Errorf("%d %s", code, out)
	}
	var back server.ClusterStatus
	if code, out, _ := s.edda(t, "status", "-o", "json"); code != exitDone || json.Unmarshal([]byte(out), &back) != nil || back.Nodes[1].Lag != 3 {
		t.Errorf("%d %s", code, out)
	}
}

func TestTheStatusOfAClusterSaysWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*server.ClusterStatus)
		code   int
		want   []string
		never  string
	}{
		"all is well": {func(*server.ClusterStatus) {}, exitDone, []string{"n1 owns the store"}, "level 4"},
		"no owner, a copy": {func(s *server.ClusterStatus) { s.Owner, s.Nodes[0].State = "", server.NodeDead }, exitFailed,
			[]string{"shop: NOBODY OWNS THE STORE NOW", "until a standby takes over", "no node owns the store of the cluster shop now"}, "start a node"},
		"no owner, no copy": {func(s *server.ClusterStatus) {
			s.Owner, s.Nodes[0].State, s.Nodes[1].State = "", server.NodeDead, server.NodeDead
		}, exitFailed,
			[]string{"no living node here has a copy"}, "until a standby"},
		"alone":     {func(s *server.ClusterStatus) { s.Nodes = s.Nodes[:1] }, exitDone, []string{"if the owner dies, nobody takes over"}, ""},
		"a problem": {func(s *server.ClusterStatus) { s.Problem = "NATS does not answer" }, exitDone, []string{"problem: NATS does not answer"}, ""},
		"a new level": {func(s *server.ClusterStatus) {
			for i := range s.Nodes {
				s.Nodes[i].Level = 4 + i
			}
		}, exitDone, []string{"all nodes know level 4", "edda cluster finalize"}, "level 5:"},
		"a node that has just died": {func(s *server.ClusterStatus) { s.Nodes[2].BeatAge = 59_000 }, exitDone, []string{"dead"}, "forget"},
		"an old node":               {func(s *server.ClusterStatus) { s.Nodes[1].Level = 4 }, exitDone, nil, "finalize"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClusterStub(t)
			tt.change(&s.status)
			code, out, said := s.edda(t, "status")
			for _, want := range tt.want {
				if !strings.Contains(out+said, want) {
					t.Errorf("%q is missing in\n%s%s", want, out, said)
				}
			}
			if code != tt.code || tt.never != "" && strings.Contains(out, tt.never) {
				t.Errorf("%d\n%s%s", code, out, said)
			}
		})
	}
	if got := clusterPicture(server.ClusterStatus{Name: "shop"}, true); !strings.HasPrefix(got, "\x1b[31;1mshop: NOBODY") {
		t.Errorf("%q", got)
	}
}

// TestAMoveEndsWhenTheOtherNodeOwnsTheStore, although no node answers in between.
func TestAMoveEndsWhenTheOtherNodeOwnsTheStore(t *testing.T) {
	s := newClusterStub(t)
	s.before = func(call int) bool {
		switch call {
		case 2:
			return s.refuse(503, "no node owns the store")
		case 3:
			s.status.Owner = ""
		case 4:
			s.status.Owner, s.status.Epoch = "n2", 8
		}
		return false
	}
	code, out, said := s.edda(t, "move", "--to", "n2", "--why", "a new disk")
	if code != exitDone || out != "n1 hands the store over to n2\nn2 owns the store; epoch 8\n" || said != "" {
		t.Errorf("%d %s%s", code, out, said)
	}
	if len(s.calls) != 4 || s.calls[0] != "POST /cluster/move?to=n2 ann a new disk" || !strings.HasPrefix(s.calls[3], "GET /cluster") {
		t.Errorf("%q", s.calls)
	}
	s.status.Epoch, s.before = 7, nil
	if code, out, _ := s.edda(t, "move", "--wait", "0s", "-o", "ids"); code != exitDone || out != "n2\n" || len(s.calls) != 1 || s.calls[0] != "POST /cluster/move ann" {
		t.Errorf("%d %s %q", code, out, s.calls)
	}
}

func TestAMoveThatFailsSaysSo(t *testing.T) {
	// Its own stub: the request that the command gave up may still be under way.
	if code, _, said := newClusterStub(t).edda(t, "move", "--wait", "1ms"); code != exitFailed || !strings.Contains(said, "n2 does not own the store within 1ms") {
		t.Errorf("no end: %d %s", code, said)
	}
	s := newClusterStub(t)
	s.before = func(call int) bool { s.status.Epoch += uint64(call - 1); s.status.Owner = "n3"; return false }
	if code, _, said := s.edda(t, "move"); code != exitFailed || !strings.Contains(said, "n3 owns the store now, and not n2") {
		t.Errorf("another node: %d %s", code, said)
	}
	s.before = func(int) bool { return s.refuse(409, "n2 is dead") }
	if code, _, said := s.edda(t, "move", "--to", "n2"); code != exitFailed || !strings.Contains(said, "n2 is dead") || len(s.calls) != 1 {
		t.Errorf("refused: %d %s", code, said)
	}
	if code, _, said := s.edda(t, "move", "--wait", "-1s"); code != exitUsage || len(s.calls) != 0 {
		t.Errorf("a negative time: %d %s", code, said)
	}
}

func TestALevelIsRaisedWithAReasonAndAYes(t *testing.T) {
	s := newClusterStub(t)
	for _, args := range [][]string{{"--yes"}, {"--why", "x"}} {
		if code, _, said := s.edda(t, append([]string{"finalize"}, args...)...); code != exitUsage || len(s.calls) != 0 {
			t.Errorf("%q: %d %s", args, code, said)
		}
	}
	if code, out, _ := s.edda(t, "finalize", "--why", "all are new", "--yes"); code != exitDone || out != "the level of the cluster is 4\n" || s.calls[0] != "POST /cluster/finalize ann all are new" {
		t.Errorf("%d %s %q", code, out, s.calls)
	}
}

func TestAWatchedClusterIsDrawnAtEveryChange(t *testing.T) {
	s := newClusterStub(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.before = func(call int) bool {
		switch call {
		case 2:
			return s.refuse(503, "the node starts")
		case 4:
			s.status.Owner, s.status.Epoch = "n2", 8
		case 5:
			cancel()
		}
		return false
	}
	out := newScreen()
	term := &terminal{in: strings.NewReader(""), out: out, err: out, env: []string{"EDDA_URL=" + s.addr}}
	if code := term.run(ctx, []string{"cluster", "status", "--watch"}); code != exitDone {
		t.Errorf("%d %s", code, out)
	}
	var heads []string
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "owns the store") || strings.Contains(line, "starts") {
			heads = append(heads, strings.TrimSpace(line))
		}
	}
	if got, want := strings.Join(heads, "; "), "shop: n1 owns the store; epoch 7, level 3 (as n2 knows it); the node starts; "+
		"shop: n1 owns the store; epoch 7, level 3 (as n2 knows it); shop: n2 owns the store; epoch 8, level 3 (as n2 knows it)"; got != want {
		t.Errorf("drawn %q, want %q", got, want)
	}
	s.before = func(int) bool { return s.refuse(404, "this process is in no cluster") }
	if code, _, said := s.edda(t, "status", "--watch"); code != exitFailed || !strings.Contains(said, "in no cluster") {
		t.Errorf("%d %s", code, said)
	}
	if code, _, said := s.edda(t, "status", "--watch", "-o", "json"); code != exitUsage {
		t.Errorf("%d %s", code, said)
	}
}

func TestShellsAreOfferedTheNodesThatCouldTakeOver(t *testing.T) {
	s := newClusterStub(t)
	env := []string{"EDDA_URL=" + s.addr}
	if got := completed(t, env, "cluster", "move", "--to", ""); got != "n2\tlag 3\n" {
		t.Errorf("%q", got)
	}
	if got := completed(t, env, "cluster", "move", "--to", "x"); got != "" {
		t.Errorf("%q", got)
	}
}

// TestTheStatusOfSeveralShards names each shard's owner and copies, and a shard without an owner also on a terminal with
// colors.
func TestTheStatusOfSeveralShards(t *testing.T) {
	standby := server.ClusterNode{Node: "n2", Role: server.NodeStandby, State: server.NodeAlive, Lag: 7}
	s := server.ClusterStatus{
		Name: "shop", Node: "n1", Level: 2,
		Nodes: []server.ClusterNode{{Node: "n1", State: server.NodeAlive, Owns: []int{0, 2}}, {Node: "n2", State: server.NodeAlive}, {Node: "n3", State: server.NodeDead, BeatAge: 61_234}},
		Shards: []server.ClusterShard{
			{Shard: 0, Owner: "n1", Epoch: 3, LSN: 40, Nodes: []server.ClusterNode{{Node: "n1", Role: server.NodeOwner}, standby}},
			{Shard: 1, Epoch: 1},
		},
		Problem: "shard 1: no node owns the store now",
	}
	got := clusterPicture(s, true)
	for _, want := range []string{"shop: 2 shards, level 2", "0 2", "n2 (lag 7)", "NOBODY", "problem: shard 1", "edda cluster forget n3"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "x1b") {
		t.Errorf("an escape is shown as text:\n%s", got)
	}
	if err := unowned(s); err == nil || !strings.Contains(err.Error(), "shard 1") {
		t.Errorf("a shard without an owner: %v", err)
	}
	if s.Shards[1].Owner = "n2"; unowned(s) != nil {
		t.Errorf("all have owners: %v", unowned(s))
	}
}
