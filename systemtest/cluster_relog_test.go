//go:build !race

package systemtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/server"
)

// TestAClusterOutlivesTheLossOfJetStream: all three NATS servers lose their files while the nodes are killed. The nodes
// refuse to begin anything by themselves, and say how far each copy is. The log is begun again with the longest copy, and
// every instance is there.
func TestAClusterOutlivesTheLossOfJetStream(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	servers := natscluster.Start(t)
	manifest := write(t, dir, "small.yaml", smallSaga)
	names := []string{"n1", "n2"}
	manifests := map[string][]string{"n1": {manifest}} // n2 could not found a cluster, and has a copy
	nodes := map[string]*child{}
	for _, name := range names {
		nodes[name] = launchNode(t, servers, dir, name, manifests[name]...)
		untilIn(t, clusterWithin, name+" is ready", func() bool { return nodes[name].reads("/ready", nil) })
	}
	js := servers.Connect(servers.URLs())
	const orders = 20
	for n := range orders {
		k := fmt.Sprintf("K%d", n)
		if err := publishSurely(js, message(n, k, "Begin", fmt.Sprintf(`{"k":%q}`, k))); err != nil {
			t.Fatal(err)
		}
	}
	var last string
	defer func() {
		if t.Failed() {
			t.Log("the last list of n2: " + last)
		}
	}()
	until(t, "all instances are there", func() bool { // an owner that has just begun may refuse the list
		var all server.InstanceList
		body, status, err := nodes["n2"].try("/v1/instances?saga=small&limit=1000")
		last = fmt.Sprintf("%d %v %s", status, err, body)
		return err == nil && status == 200 && json.Unmarshal(body, &all) == nil && len(all.Instances) == orders
	})
	before := nodes["n1"].instances("small")

	for _, name := range names {
		nodes[name].kill()
	}
	for _, server := range []string{"n1", "n2", "n3"} {
		servers.Wipe(server)
	}
	for _, server := range []string{"n1", "n2", "n3"} {
		servers.Restart(server)
	}

	longest, most := "", -1
	said := regexp.MustCompile(`lost its bucket, and the copy in folder \S+ ends at transaction (\d+)`)
	for _, name := range names {
		nodes[name] = launchNode(t, servers, dir, name, manifests[name]...)
	}
	for _, name := range names {
		c := nodes[name]
		untilIn(t, clusterWithin, name+" gives up", func() bool { return testkit.Closed(c.Ended()) })
		found := said.FindStringSubmatch(c.err.String())
		if found == nil || c.code() != 1 || !strings.Contains(c.err.String(), "edda cluster relog --cluster shop --node "+name+" --data "+filepath.Join(dir, name)) {
			t.Fatalf("%s ends with %d and does not say what to do: %s", name, c.code(), c.err)
		}
		if n, _ := strconv.Atoi(found[1]); n > most {
			longest, most = name, n
		}
	}
	relog := launch(t, "cluster", "relog", "--cluster", "shop", "--node", longest, "--nats-url", servers.URLs(), "--data", filepath.Join(dir, longest))
	untilIn(t, clusterWithin, "the log begins again", func() bool { return testkit.Closed(relog.Ended()) }) // it believes in the loss after 15 s
	if code := relog.code(); code != 0 || !strings.Contains(relog.out.String(), "behind transaction "+strconv.Itoa(most)) {
		t.Fatalf("relog: %d %s%s", code, relog.out, relog.err)
	}
	for _, name := range names {
		nodes[name] = launchNode(t, servers, dir, name, append(manifests[name], "--accept-stream-loss")...) // the events that no saga had taken are gone with JetStream
	}
	for _, name := range names {
		untilIn(t, clusterWithin, name+" is ready", func() bool { return nodes[name].reads("/ready", nil) })
	}
	untilIn(t, clusterWithin, "somebody owns the store", func() bool { return nodes["n2"].reads("/v1/instances?saga=small&limit=1", nil) })
	after := nodes["n1"].instances("small")
	if !slices.EqualFunc(before, after, func(a, b server.InstanceSummary) bool { return a.Key == b.Key && a.Status == b.Status }) {
		t.Errorf("before %v, and after %v", before, after)
	}
	if err := publishSurely(js, message(orders, "last", "Begin", `{"k":"last"}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "the cluster works", func() bool { return len(nodes["n2"].instances("small")) == orders+1 })
	for _, name := range names {
		if code := nodes[name].terminate(); code != 0 {
			t.Errorf("%s ends with %d", name, code)
		}
	}
}

// TestALogThatLosesItsEndIsNotGoneOnWithout what it had acknowledged: a power cut of all NATS servers takes the end of the
// log, which the copy of the last owner has and that of the other node has not. Neither node takes over, and the other one
// does not begin the log again. With the copy of the last owner nothing is lost.
func TestALogThatLosesItsEndIsNotGoneOnWithout(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	servers := natscluster.Start(t)
	manifest := write(t, dir, "small.yaml", smallSaga)
	js := servers.Connect(servers.URLs())
	sent := 0
	order := func(node *child) { // in a transaction of its own
		t.Helper()
		k := fmt.Sprintf("K%d", sent)
		if err := publishSurely(js, message(sent, k, "Begin", fmt.Sprintf(`{"k":%q}`, k))); err != nil {
			t.Fatal(err)
		}
		sent++
		untilIn(t, clusterWithin, "the instances are there", func() bool {
			var all server.InstanceList
			body, status, err := node.try("/v1/instances?saga=small&limit=1000")
			return err == nil && status == 200 && json.Unmarshal(body, &all) == nil && len(all.Instances) == sent
		})
	}
	n1 := launchNode(t, servers, dir, "n1", manifest)
	untilIn(t, clusterWithin, "n1 is ready", func() bool { return n1.reads("/ready", nil) })
	n2 := launchNode(t, servers, dir, "n2")
	untilIn(t, clusterWithin, "n2 is ready", func() bool { return n2.reads("/ready", nil) })
	order(n2)
	n2.kill()
	back := servers.Remember()
	for range 3 { // an owner that was killed may be one ahead of the log
		order(n1)
	}
	n1.kill()
	back()

	n1 = launchNode(t, servers, dir, "n1", manifest)
	untilIn(t, clusterWithin, "n1 doubts the log", func() bool {
		return strings.Contains(n1.err.String(), "the records of cluster shop, whose copy here ends at")
	})
	n2 = launchNode(t, servers, dir, "n2")
	ends := regexp.MustCompile(`lost its records, and the copy in folder \S+ ends at transaction (\d+)`)
	var last []int
	for _, c := range []*child{n1, n2} {
		untilIn(t, clusterWithin, "a node gives up", func() bool { return testkit.Closed(c.Ended()) })
		found := ends.FindStringSubmatch(c.err.String())
		if found == nil || c.code() != 1 {
			t.Fatalf("a node ends with %d and does not say what to do: %s", c.code(), c.err)
		}
		n, _ := strconv.Atoi(found[1])
		last = append(last, n)
	}
	if last[0] <= last[1] || !strings.Contains(n2.err.String(), "node n1 had record "+strconv.Itoa(last[0])) && !strings.Contains(n2.err.String(), "node n1 had record "+strconv.Itoa(last[0]-1)) {
		t.Fatalf("the copies end at %v, and n2 says: %s", last, n2.err)
	}
	relog := func(node string) *child {
		t.Helper()
		c := launch(t, "cluster", "relog", "--cluster", "shop", "--node", node, "--nats-url", servers.URLs(), "--data", filepath.Join(dir, node))
		untilIn(t, clusterWithin, "relog ends", func() bool { return testkit.Closed(c.Ended()) })
		return c
	}
	if c := relog("n2"); c.code() != 1 || !strings.Contains(c.err.String(), "lacks what node n1 has") || !strings.Contains(c.err.String(), "--drop-log") {
		t.Fatalf("relog of the shorter copy: %d %s%s", c.code(), c.out, c.err)
	}
	if c := relog("n1"); c.code() != 0 || !strings.Contains(c.out.String(), "behind transaction "+strconv.Itoa(last[0])) {
		t.Fatalf("relog: %d %s%s", c.code(), c.out, c.err)
	}
	n1 = launchNode(t, servers, dir, "n1", manifest, "--accept-stream-loss")
	untilIn(t, clusterWithin, "n1 is ready", func() bool { return n1.reads("/ready", nil) })
	n2 = launchNode(t, servers, dir, "n2")
	untilIn(t, clusterWithin, "n2 is ready", func() bool { return n2.reads("/ready", nil) })
	order(n2)
	for _, c := range []*child{n2, n1} {
		if code := c.terminate(); code != 0 {
			t.Errorf("a node ends with %d: %s", code, c.err)
		}
	}
}
