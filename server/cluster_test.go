package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"edda"
)

// fakeCluster is a cluster of n1 and n2.
type fakeCluster struct {
	mu    sync.Mutex // guards all below
	url   string     // of the owner; empty: no node owns the store
	moved []string   // "to by why"
	err   error
}

func (c *fakeCluster) Status(context.Context) ClusterStatus {
	url, owned := c.Owner()
	s := ClusterStatus{Name: "shop", Node: "n2", Epoch: 7, Nodes: []ClusterNode{
		{Node: "n1", URL: url, Role: NodeStandby, State: NodeDead, LSN: 90}, {Node: "n2", Role: NodeStandby, State: NodeAlive, LSN: 88, Lag: 2},
	}}
	if owned {
		s.Owner, s.Nodes[0].Role, s.Nodes[0].State = "n1", NodeOwner, NodeAlive
	}
	return s
}

func (c *fakeCluster) Move(_ context.Context, to string, who Operator) (ClusterMove, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.moved = append(c.moved, to+" "+who.By+" "+who.Why)
	}
	return ClusterMove{From: "n1", To: "n2", Epoch: 7}, c.err
}

func (c *fakeCluster) Finalize(_ context.Context, who Operator) (int, error) {
	_, err := c.Move(context.Background(), "finalize", who)
	return 4, err
}

func (c *fakeCluster) Forget(_ context.Context, node string, who Operator) error {
	_, err := c.Move(context.Background(), "forget "+node, who)
	return err
}

func (c *fakeCluster) Owner() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.url, c.url != ""
}

// ownedAt has the owner answer at a URL.
func (c *fakeCluster) ownedAt(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.url = url
}

func TestTheRoutesOfACluster(t *testing.T) {
	c := &fakeCluster{url: "http://127.0.0.1:1"}
	h := start(t, newFakes(), func(o *Options) { o.Cluster, o.Tokens, o.Tenant = c, keeper(t), "" })
	code, body := call(t, h, "GET", "/cluster", "", bearer("viewer-all"))
	for _, want := range []string{`"name":"shop"`, `"node":"n2"`, `"owner":"n1"`, `"epoch":7`, `"role":"owner"`, `"state":"alive"`, `"lag":2`} {
		if code != 200 || !strings.Contains(body, want) || strings.Contains(body, "since") {
			t.Errorf("%s is missing: %d %s", want, code, body)
		}
	}
	if code, body := call(t, h, "POST", "/cluster/move?to=n2", "", bearer("admin-all"), "x-edda-by: ann", "x-edda-why: disk"); code != 200 || body != `{"from":"n1","to":"n2","epoch":7}`+"\n" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := call(t, h, "POST", "/cluster/move", "", bearer("admin-all")); code != 200 {
		t.Errorf("to the best copy: %d %s", code, body)
	}
	if code, body := call(t, h, "POST", "/cluster/forget/n9", "", bearer("admin-all"), "x-edda-by: ann", "x-edda-why: gone"); code != 200 || body != `{"node":"n9"}`+"\n" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := call(t, h, "POST", "/cluster/finalize", "", bearer("admin-all")); code != 422 || !strings.Contains(body, "needs a reason") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := call(t, h, "POST", "/cluster/finalize", "", bearer("admin-all"), "x-edda-why: all are new"); code != 200 || body != `{"level":4}`+"\n" {
		t.Errorf("%d %s", code, body)
	}
	if got, want := strings.Join(c.moved, "; "), "n2 admin-all (ann) disk;  admin-all ; forget n9 admin-all (ann) gone; finalize admin-all all are new"; got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

// TestAStoreAnsweredForAShardThatDoesNotExist: edda cluster move --shard 3 moved the only store.
func TestAStoreAnsweredForAShardThatDoesNotExist(t *testing.T) {
	c := &fakeCluster{url: "http://127.0.0.1:1"}
	h := start(t, newFakes(), func(o *Options) { o.Cluster, o.Shard = c, 1 })
	for _, route := range []string{"GET /cluster", "POST /cluster/move"} {
		method, path, _ := strings.Cut(route, " ")
		if code, body := call(t, h, method, path, "", ShardHeader+": 3"); code != 422 || !strings.Contains(body, "one store, that of shard 1") {
			t.Errorf("%s: %d %s", route, code, body)
		}
		if code, body := call(t, h, method, path, "", ShardHeader+": 1"); code != 200 {
			t.Errorf("%s of its own shard: %d %s", route, code, body)
		}
	}
	if len(c.moved) != 1 {
		t.Errorf("moved %q", c.moved)
	}
}

func TestARefusalOfTheClusterIsThatOfTheCaller(t *testing.T) {
	c := &fakeCluster{}
	h := start(t, newFakes(), func(o *Options) { o.Cluster = c })
	for _, tt := range []struct {
		err  error
		code int
		want string
	}{
		{edda.Classify(edda.Permanent, "n9: %w", ErrNoSuchNode), 404, "n9: the cluster has no such node"},
		{edda.Classify(edda.Permanent, "n2 is dead"), 409, "n2 is dead"},
		{edda.Classify(edda.Temporary, "a hand-over is under way"), 503, "a hand-over is under way"},
		{errors.New("secret"), 500, "the log of the server says why"},
	} {
		c.err = tt.err
		for _, path := range []string{"/cluster/move?to=n9", "/cluster/forget/n9", "/cluster/finalize"} {
			if code, body := call(t, h, "POST", path, "", "x-edda-why: test"); code != tt.code || !strings.Contains(body, tt.want) || strings.Contains(body, "secret") {
				t.Errorf("%s of %v: %d %s", path, tt.err, code, body)
			}
		}
	}
}

func TestASingleProcessSaysThatItIsInNoCluster(t *testing.T) {
	h := start(t, newFakes(), func(o *Options) { o.Cluster = nil })
	for _, route := range []string{"GET /cluster", "POST /cluster/move", "POST /cluster/forget/n9", "POST /cluster/finalize"} {
		method, path, _ := strings.Cut(route, " ")
		if code, body := call(t, h, method, path, "", "x-edda-why: test"); code != 404 || !strings.Contains(body, "this process is in no cluster") {
			t.Errorf("%s: %d %s", route, code, body)
		}
	}
}
