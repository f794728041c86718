//go:build !race

package systemtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit/natscluster"
	"edda/server"
	"edda/stream/kv"
)

// waitingSaga has timers, so that something is due after each move.
const waitingSaga = `saga: small
version: 1
key: event.k
on:
  Begin: {start: true, do: [{timer: wait, after: 1h}, {command: Small.Note, to: =key}]}
  End: {do: [{done: true}]}
`

// TestDataOfDevGoIntoAClusterAndBack: edda dev stops with events that it has not read. They, the instances and the
// positions go into a cluster, and come back from it: each event is handled once.
func TestDataOfDevGoIntoAClusterAndBack(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	servers := natscluster.Start(t)
	manifest := write(t, dir, "small.yaml", waitingSaga)
	data := filepath.Join(dir, "n1")
	local := dev(t, data, manifest)
	local.tenant = "default"
	_, js := client(t, local.nats)
	begin := func(js jetstream.JetStream, from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			k := fmt.Sprintf("K%03d", n)
			if err := publishSurely(js, message(n, k, "Begin", fmt.Sprintf(`{"k":%q}`, k))); err != nil {
				t.Fatal(err)
			}
		}
	}
	const orders = 300
	begin(js, 0, orders-50)
	until(t, "edda dev works", func() bool { return len(local.instances("small")) == orders-50 })
	if code := local.terminate(); code != 0 {
		t.Fatalf("edda dev ends with %d: %s", code, local.err)
	}
	publishUnread(t, data, func(js jetstream.JetStream) { begin(js, orders-50, orders) })

	refused := launch(t, "cluster", "init", "--cluster", "shop", "--node", "n1", "--nats-url", servers.URLs(), "--data", filepath.Join(dir, "none"), "--from-dev")
	if code := refused.code(); code != 1 || !strings.Contains(refused.err.String(), "has no streams of edda dev") {
		t.Errorf("a folder that is none: %d %s", code, refused.err)
	}
	into := launch(t, "cluster", "init", "--cluster", "shop", "--node", "n1", "--nats-url", servers.URLs(), "--data", data, "--from-dev")
	if code := into.code(); code != 0 || !strings.Contains(into.out.String(), "cluster shop keeps store") {
		t.Fatalf("into the cluster: %d %s%s", code, into.out, into.err)
	}
	n1 := launchNode(t, servers, dir, "n1", manifest)
	n2 := launchNode(t, servers, dir, "n2")
	many := servers.Connect(servers.URLs())
	untilIn(t, clusterWithin, "every event of edda dev is handled", func() bool {
		return n1.reads("/v1/instances?saga=small&limit=1", nil) && len(n1.instances("small")) == orders
	})
	begin(many, orders, orders+10)
	until(t, "the cluster works", func() bool { return len(n1.instances("small")) == orders+10 })
	untilIn(t, clusterWithin, "the store moves to n2", func() bool {
		_, code := n2.cli("cluster", "move", "--to", "n2")
		return code == 0
	})
	once(t, n2, many, orders+10)
	if out, code := n2.cli("audit", "list", "--process"); code != 0 || !strings.Contains(out, "the store moves from n1 to n2") {
		t.Errorf("the audit of the store that has moved: %d %s", code, out)
	}
	before := n2.instances("small")
	if code := n1.terminate(); code != 0 {
		t.Errorf("n1 ends with %d", code)
	}
	begin(many, orders+10, orders+20) // n1 has none of them
	until(t, "n2 works", func() bool { return len(n2.instances("small")) == orders+20 })
	if code := n2.terminate(); code != 0 {
		t.Errorf("n2 ends with %d", code)
	}

	leave := func(node string) *child {
		return launch(t, "cluster", "leave", "--node", node, "--nats-url", servers.URLs(), "--data", filepath.Join(dir, node), "--to-dev")
	}
	if early := leave("n1"); early.code() != 1 || !strings.Contains(early.err.String(), "take the node that owned the store last") {
		t.Errorf("a copy that has less than the log: %s", early.err)
	}
	old := filepath.Join(dir, "n2", "nats")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if hindered := leave("n2"); hindered.code() != 1 || !strings.Contains(hindered.err.String(), "has streams already") {
		t.Errorf("a folder with streams: %s", hindered.err)
	}
	if err := os.Remove(old); err != nil {
		t.Fatal(err)
	}
	back := leave("n2")
	if code := back.code(); code != 0 || !strings.Contains(back.out.String(), "is no copy of cluster shop any more") {
		t.Fatalf("back: %d %s%s", code, back.out, back.err)
	}
	late := launchNode(t, servers, dir, "n1", manifest)
	if code := late.code(); code != 1 || !strings.Contains(late.err.String(), "node n2 has taken the store out of cluster shop") {
		t.Errorf("another node starts afterwards: %d %s", code, late.err)
	}
	home := dev(t, filepath.Join(dir, "n2"), manifest)
	home.tenant = "default"
	_, js = client(t, home.nats)
	begin(js, orders+20, orders+30)
	until(t, "edda dev goes on", func() bool { return len(home.instances("small")) == orders+30 })
	once(t, home, js, orders+30)
	after := home.instances("small")
	for _, was := range before {
		if !slices.ContainsFunc(after, func(is server.InstanceSummary) bool { return is.Key == was.Key && is.Status == was.Status }) {
			t.Errorf("%v is not there any more", was)
		}
	}
}

// publishUnread starts the server of an edda dev that has stopped, so that it has events which no saga has read.
func publishUnread(t *testing.T, data string, publish func(jetstream.JetStream)) {
	t.Helper()
	e, err := kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: filepath.Join(data, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	conn, js, err := kv.Connect(kv.Connection{Server: e.Server()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	publish(js)
}

// once compares the commands with the instances: each instance has sent one.
func once(t *testing.T, c *child, js jetstream.JetStream, orders int) {
	t.Helper()
	until(t, "all commands are out", func() bool { return c.metric("edda_outbox_items") == 0 })
	s, err := js.Stream(t.Context(), "WORKFLOW_COMMANDS")
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]int{}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		sent[m.Header.Get("Nats-Msg-Id")]++
	}
	for id, n := range sent {
		if n != 1 {
			t.Errorf("command %s was sent %d times", id, n)
		}
	}
	if len(sent) != orders {
		t.Errorf("%d commands for %d instances", len(sent), orders)
	}
}
