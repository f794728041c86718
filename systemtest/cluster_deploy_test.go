//go:build !race

package systemtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"edda/internal/testkit/natscluster"
	"edda/server"
	"edda/store"
)

// launchNode starts a node of the cluster "shop", with its data in a folder of its name.
func launchNode(t *testing.T, servers *natscluster.Cluster, dir, name string, more ...string) *child {
	t.Helper()
	addr := freeAddr(t)
	c := launchWith(t, []string{"EDDA_EFFECTS_SECRETS=" + filepath.Join(dir, "secrets-"+name)}, append([]string{
		"run", "--role", "saga,effect", "--cluster", "shop", "--node", name, "--nats-url", servers.URLs(), "--data", filepath.Join(dir, name), "--addr", addr}, more...)...)
	c.addr, c.nats, c.tenant = addr, servers.URLs(), "default"
	return c
}

// tellingSaga is the next version of [smallSaga], with an effect that needs a secret.
var tellingSaga = strings.Replace(smallSaga, "version: 1", "version: 2", 1) + `
---
effect: tell
http: {method: POST, url: "https://example.org/tell", headers: {Authorization: "=secret.TELL_KEY"}}
`

// TestTheManifestsOfAClusterAreThoseOfItsStore: a revision comes by any node, a wrong one changes nothing, whoever owns
// the store runs the newest one, and a node that could not run it does not take over. The tenants of a reload are those of
// the next owner, too.
func TestTheManifestsOfAClusterAreThoseOfItsStore(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	servers := natscluster.Start(t)
	first := write(t, dir, "small.yaml", smallSaga)
	config := write(t, dir, "edda.yaml", "tenants: [default]\n")
	nodes := map[string]*child{"n2": launchNode(t, servers, dir, "n2")}
	nodes["n2"].says("this node cannot begin it without manifests")
	nodes["n1"] = launchNode(t, servers, dir, "n1", "--config", config, first)
	nodes["n3"] = launchNode(t, servers, dir, "n3", "--config", config)
	status := func(by string) (s server.ClusterStatus, of map[string]server.ClusterNode) {
		of = map[string]server.ClusterNode{}
		nodes[by].reads("/cluster", &s)
		for _, n := range s.Nodes {
			of[n.Node] = n
		}
		return s, of
	}
	// runs waits until a node owns the store, which the others follow, and all run a revision.
	runs := func(by, owner string, revision uint64, standbys ...string) {
		t.Helper()
		untilIn(t, clusterWithin, fmt.Sprintf("%s owns the store with revision %d", owner, revision), func() bool {
			s, of := status(by)
			for _, name := range append(standbys, owner) {
				if n := of[name]; n.Revision != revision || n.State != server.NodeAlive || n.Problem != "" || name != owner && n.Role != server.NodeStandby {
					return false
				}
			}
			return s.Owner == owner
		})
	}
	runs("n2", "n1", 1, "n2", "n3")

	deploy := func(by, text string, more ...string) *child {
		path := write(t, dir, "next.yaml", text)
		return launch(t, append([]string{"cluster", "deploy", path, "--addr", nodes[by].addr}, more...)...)
	}
	wrong := deploy("n2", strings.Replace(smallSaga, "go_on.off", "go_of", 1))
	if code := wrong.code(); code != 1 || !strings.Contains(wrong.err.String(), "next.yaml:") || !strings.Contains(wrong.err.String(), "nothing changed") {
		t.Errorf("a wrong manifest: %d %s", code, wrong.err)
	}
	lacking := deploy("n2", tellingSaga)
	if code := lacking.code(); code != 1 || !strings.Contains(lacking.err.String(), "TELL_KEY") {
		t.Errorf("a secret that the owner has not: %d %s", code, lacking.err)
	}
	runs("n2", "n1", 1, "n2", "n3")

	give := func(name string) {
		write(t, filepath.Join(dir, "secrets-"+name), "TELL_KEY", "s3cret")
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if err := os.Mkdir(filepath.Join(dir, "secrets-"+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	give("n1")
	give("n3")
	right := deploy("n2", tellingSaga, "--why", "somebody is to be told")
	if code := right.code(); code != 0 || !strings.Contains(right.out.String(), "revision 2 runs") {
		t.Fatalf("%d %s%s", code, right.out, right.err)
	}
	runs("n2", "n1", 2, "n3")
	untilIn(t, clusterWithin, "n2 says what it lacks", func() bool {
		_, of := status("n3")
		return strings.Contains(of["n2"].Problem, "TELL_KEY") && of["n2"].Role != server.NodeStandby
	})

	write(t, dir, "edda.yaml", "tenants: {\n")
	if err := nodes["n3"].Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	nodes["n3"].says("SIGHUP: not everything was taken in")
	write(t, dir, "edda.yaml", "tenants: [default, beta]\n")
	reload := launch(t, "reload", "--addr", nodes["n2"].addr)
	if code := reload.code(); code != 0 || !strings.Contains(reload.out.String(), "tenants beta, default") {
		t.Errorf("the reload: %d %s%s", code, reload.out, reload.err)
	}
	nodes["n1"].kill()
	runs("n2", "n3", 2)
	// version waits until a node that owns the store has loaded version 2 of the saga.
	version := func(by string) {
		t.Helper()
		untilIn(t, clusterWithin, by+" runs version 2", func() bool {
			var info server.Info
			return nodes[by].reads("/info", &info) &&
				slices.ContainsFunc(info.Sagas, func(s server.SagaInfo) bool { return s.Newest && s.Version == 2 })
		})
	}
	version("n3")
	nodes["n3"].tenant = "beta"
	until(t, "an event of tenant beta is taken", func() bool {
		return eventTaken(nodes["n3"], `{"aggregate_type":"Small","aggregate_id":"B1","event_type":"Begin","event_id":"b1","payload":{"k":"B1"}}`)
	})
	until(t, "tenant beta is served", func() bool { return len(nodes["n3"].instances("small")) == 1 })
	nodes["n3"].kill()
	untilIn(t, clusterWithin, "n3 is dead", func() bool {
		_, of := status("n2")
		return of["n3"].State == server.NodeDead
	})
	if s, of := status("n2"); s.Owner != "" || !strings.Contains(of["n2"].Problem, "TELL_KEY") {
		t.Errorf("a node that lacks a secret took over: %+v", s)
	}
	give("n2")
	runs("n2", "n2", 2)
	version("n2")

	nodes["n1"] = launchNode(t, servers, dir, "n1", first)
	runs("n1", "n2", 2, "n1")
	nodes["n1"].says("the files that this node names are not the manifests of the cluster")
	same := deploy("n1", tellingSaga)
	if code := same.code(); code != 0 || !strings.Contains(same.out.String(), "revision 2 runs already") {
		t.Errorf("%d %s%s", code, same.out, same.err)
	}
	for _, name := range []string{"n1", "n2"} {
		if code := nodes[name].terminate(); code != 0 {
			t.Errorf("%s ends with %d", name, code)
		}
	}

	// A new node begins no second cluster where the bucket alone is lost.
	if err := servers.Connect(servers.URLs()).DeleteKeyValue(t.Context(), "EDDA_CLUSTER_shop"); err != nil {
		t.Fatal(err)
	}
	fresh := launchNode(t, servers, dir, "n4", first)
	fresh.says("has lost its bucket, and its log ends at transaction")
	if fresh.terminate(); store.Exists(filepath.Join(dir, "n4", "store")) {
		t.Error("it made a store")
	}
	relog := launch(t, "cluster", "relog", "--cluster", "shop", "--node", "n2", "--nats-url", servers.URLs(), "--data", filepath.Join(dir, "n2"))
	if code := relog.code(); code != 0 || !strings.Contains(relog.out.String(), "its log is whole and stays as it is") {
		t.Fatalf("relog makes the bucket again: %d %s", code, relog.err)
	}
	nodes["n2"] = launchNode(t, servers, dir, "n2")
	runs("n2", "n2", 2)
	nodes["n1"] = launchNode(t, servers, dir, "n1", first)
	runs("n1", "n2", 2, "n1")
}
