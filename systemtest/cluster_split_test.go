//go:build !race

package systemtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"edda"
	"edda/internal/testkit/natscluster"
	"edda/server"
)

// TestAClusterDoublesItsShards: a store of all keys becomes two shards, and these become four. Every instance is there
// afterwards, goes on, and is in one shard.
func TestAClusterDoublesItsShards(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	servers := natscluster.Start(t)
	manifest := write(t, dir, "small.yaml", smallSaga)
	names := []string{"n1", "n2"}
	nodes := map[string]*child{}
	start := func(data string) {
		t.Helper()
		nodes["n1"] = launchNode(t, servers, dir, "n1", "--data", filepath.Join(dir, data), manifest)
		nodes["n2"] = launchNode(t, servers, dir, "n2", "--data", filepath.Join(dir, data+"-n2"))
	}
	list := func(by string) (all server.InstanceList, ok bool) {
		ok = nodes[by].reads("/v1/instances?saga=small&limit=1000", &all)
		return all, ok
	}
	n := 0
	// begin begins more instances. It waits until each node shows all instances, and that many of them as done.
	begin := func(more, done int) {
		t.Helper()
		for range more {
			k := fmt.Sprintf("K%03d", n)
			untilIn(t, clusterWithin, k+" is taken", func() bool {
				return eventTaken(nodes[names[n%2]], fmt.Sprintf(`{"aggregate_type":"Order","aggregate_id":%q,"event_id":%q,"event_type":"Begin","payload":{"k":%q}}`, k, k, k))
			})
			n++
		}
		for _, name := range names {
			untilIn(t, clusterWithin, fmt.Sprintf("%s shows %d instances, %d of them done", name, n, done), func() bool {
				all, ok := list(name)
				ended := slices.DeleteFunc(slices.Clone(all.Instances), func(i server.InstanceSummary) bool { return i.Status != edda.StatusDone })
				return ok && len(all.Instances) == n && len(ended) == done
			})
		}
	}
	answer := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			k := fmt.Sprintf("K%03d", i)
			untilIn(t, clusterWithin, k+" goes on", func() bool {
				out, code := nodes[names[i%2]].cli("instance", "answer", "small", k, "go_on", "on", "--tenant", "default")
				return code == 0 || strings.Contains(out, "too late") // its answer was lost
			})
		}
	}
	cluster := func(words ...string) string {
		t.Helper()
		c := launch(t, append([]string{"cluster", words[0], "--cluster", "shop", "--node", "n1", "--nats-url", servers.URLs()}, words[1:]...)...)
		if code := c.code(); code != 0 {
			t.Fatalf("cluster %v: %d %s%s", words, code, c.out, c.err)
		}
		return c.out.String()
	}
	// double stops the nodes, n1 last, and begins the cluster anew with twice as many shards.
	double := func(data, to string, shards int) {
		t.Helper()
		for _, name := range []string{"n2", "n1"} {
			if code := nodes[name].terminate(); code != 0 {
				t.Errorf("%s ends with %d: %s", name, code, nodes[name].err)
			}
		}
		data, next := filepath.Join(dir, data), filepath.Join(dir, to)
		early := launch(t, "cluster", "split", "--cluster", "shop", "--data", data, "--to", next)
		if code := early.code(); code != 1 || !strings.Contains(early.err.String(), "edda cluster leave") {
			t.Errorf("a copy is split: %d %s", code, early.err)
		}
		if shards > 2 { // as if a command was cut off after the first shard
			cluster("leave", "--data", filepath.Join(data, "shard-0"))
		}
		cluster("leave", "--data", data)
		if out := cluster("split", "--data", data, "--to", next); !strings.Contains(out, fmt.Sprintf("the stores of %d shards", shards)) {
			t.Errorf("split says %s", out)
		}
		cluster("end")
		for range 2 { // a command that is repeated goes on
			if out := cluster("init", "--data", next); !strings.Contains(out, fmt.Sprintf("the stores of %d shards", shards)) {
				t.Errorf("init says %s", out)
			}
		}
		start(to)
	}
	start("one")
	begin(20, 0)
	answer(0, 5)
	begin(0, 5)
	double("one", "two", 2)
	begin(10, 5)
	answer(5, 10)
	begin(0, 10)
	double("two", "four", 4)
	begin(10, 10)
	answer(10, n)
	begin(0, n)

	for i := range 4 {
		shard := edda.Shard{Index: i, Of: 4}
		var s server.InstanceList
		out, code := nodes["n2"].cli("ls", "--saga", "small", "--limit", "1000", "--shard", fmt.Sprint(i), "-o", "json", "--tenant", "default")
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != 0 || len(s.Instances) == 0 {
			t.Fatalf("shard %d: %d %s", i, code, out)
		}
		for _, in := range s.Instances {
			if !shard.Has(edda.Key{Tenant: "default", Saga: "small", Correlation: in.Key}) {
				t.Errorf("shard %d has %s", i, in.Key)
			}
		}
	}
}
