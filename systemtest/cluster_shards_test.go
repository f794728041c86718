//go:build !race

package systemtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"edda"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/replay"
	"edda/server"
)

// shardedSagas start children whose keys are in other shards, call effects, arm timers and begin by the clock. CALLS is
// where the effects are called.
const shardedSagas = `saga: order
version: 1
key: event.k
on:
  Begin:
    start: true
    do:
      - seq:
          - {effect: reserve, with: {k: =key}}
          - {start: parcel, id: parcel, key: "'parcel-' + key", with: {k: =key}}
          - {event: Ended, with: {k: =key}}
          - done: =step.parcel.result
  signal.note: {do: [{set: {noted: true}}]}
---
saga: parcel
version: 1
on:
  Wanted: {start: true, do: [{timer: pack, after: 100ms}]}
  timer.pack:
    do:
      - seq:
          - {effect: ship, with: {k: =key}}
          - done: =key
---
saga: listener
version: 1
key: "'heard-' + event.k"
on:
  order.Ended: {start: true, do: [{done: true}]}
---
saga: clock
version: 1
key: event.due
schedule:
  every: {every: 1s, tenants: [default]}
on:
  schedule.every: {start: true, do: [{done: true}]}
---
effect: reserve
http: {method: POST, url: "CALLS/reserve", body: =payload}
ok: status == 200
---
effect: ship
http: {method: POST, url: "CALLS/ship", body: =payload}
ok: status == 200
`

// callCounter is a service that counts its calls by idempotency key.
type callCounter struct {
	*httptest.Server
	mu    sync.Mutex // guards calls
	calls map[string]int
}

func countCalls(t *testing.T) *callCounter {
	c := &callCounter{calls: map[string]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[r.URL.Path+" "+r.Header.Get("Idempotency-Key")]++
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(c.Close)
	return c
}

// distinct is the number of keys.
func (c *callCounter) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// eventTaken reports whether a node has taken an event.
func eventTaken(c *child, event string) bool {
	req, err := http.NewRequest(http.MethodPost, "http://"+c.addr+"/v1/events", strings.NewReader(event))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("x-tenant-id", c.tenant)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// TestAClusterOfSeveralShards: any node takes any call, each key is in one shard, what shards send one another arrives
// once, owners spread over the nodes, and a dead node's shards go on.
func TestAClusterOfSeveralShards(t *testing.T) {
	beside(t)
	const shards = 4
	dir := t.TempDir()
	servers, calls := natscluster.Start(t), countCalls(t)
	manifest := write(t, dir, "sagas.yaml", strings.ReplaceAll(shardedSagas, "CALLS", calls.URL))
	config := write(t, dir, "edda.yaml", "effects: {allow: [127.0.0.1]}\n")
	nodes := map[string]*child{"n1": launchNode(t, servers, dir, "n1", "--shards", fmt.Sprint(shards), "--config", config, manifest)}
	for _, name := range []string{"n2", "n3"} {
		nodes[name] = launchNode(t, servers, dir, name, "--config", config)
	}
	status := func(by string) (s server.ClusterStatus) {
		nodes[by].reads("/cluster", &s)
		return s
	}
	// spread waits until each shard has an owner, which each of the nodes is for as many as the others or one more.
	spread := func(by string, names ...string) {
		t.Helper()
		untilIn(t, clusterWithin, fmt.Sprintf("%d shards are spread over %v", shards, names), func() bool {
			s := status(by)
			owned, copies := map[string]int{}, 0
			for _, p := range s.Shards {
				owned[p.Owner]++
				for _, n := range p.Nodes {
					if n.State == server.NodeAlive && n.Role == server.NodeStandby {
						copies++
					}
				}
			}
			least, most := shards, 0
			for _, name := range names {
				least, most = min(least, owned[name]), max(most, owned[name])
			}
			return len(owned) == len(names) && most-least <= 1 && copies == shards*(len(names)-1)
		})
	}
	last := 0
	// order begins orders at the nodes in turn, and waits until all of them and what follows have ended, at each node's word.
	order := func(n int, names ...string) {
		t.Helper()
		for range n {
			k := fmt.Sprintf("K%03d", last)
			body := fmt.Sprintf(`{"aggregate_type":"Order","aggregate_id":%q,"event_type":"Begin","event_id":"e-%s","payload":{"k":%q}}`, k, k, k)
			until(t, "event "+k+" is taken", func() bool { return eventTaken(nodes[names[last%len(names)]], body) })
			last++
		}
		for _, saga := range []string{"order", "parcel", "listener"} {
			for _, name := range names {
				untilIn(t, clusterWithin, fmt.Sprintf("%s says that %d of %s are done", name, last, saga), func() bool {
					var all server.InstanceList // a shard without an owner has the list refused
					return nodes[name].reads("/v1/instances?limit=1000&saga="+saga, &all) && len(all.Instances) == last &&
						!slices.ContainsFunc(all.Instances, func(i server.InstanceSummary) bool { return i.Status != edda.StatusDone })
				})
			}
		}
	}
	order(20, "n1") // while the shards begin, one after the other
	spread("n3", "n1", "n2", "n3")
	order(60, "n1", "n2", "n3")
	if got := calls.distinct(); got != 2*last {
		t.Errorf("%d calls, want %d", got, 2*last)
	}

	t.Run("each key is in its shard alone", func(t *testing.T) {
		var ticks []string
		for i := range shards {
			shard := edda.Shard{Index: i, Of: shards}
			for _, saga := range []string{"order", "parcel", "listener", "clock"} {
				out, code := nodes["n2"].cli("ls", "--saga", saga, "--limit", "1000", "--shard", fmt.Sprint(i), "-o", "json", "--tenant", "default")
				var list server.InstanceList
				if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
					t.Fatalf("%d %s", code, out)
				}
				for _, in := range list.Instances {
					if k := (edda.Key{Tenant: "default", Saga: saga, Correlation: in.Key}); !shard.Has(k) {
						t.Errorf("shard %d has %s", i, k)
					}
					if saga == "clock" {
						ticks = append(ticks, in.Key)
					}
				}
			}
		}
		if slices.Sort(ticks); len(ticks) == 0 || len(slices.Compact(slices.Clone(ticks))) != len(ticks) {
			t.Errorf("the clock began %v", ticks)
		}
	})
	t.Run("calls find their shard", func(t *testing.T) {
		for k := range 8 {
			key := fmt.Sprintf("K%03d", k)
			for _, name := range []string{"n1", "n2", "n3"} {
				if v := nodes[name].describe("order", key); v.Instance == nil || string(v.Instance.Result) != fmt.Sprintf("%q", "parcel-"+key) {
					t.Errorf("%s shows %+v", name, v.Instance)
				}
			}
			if out, code := nodes["n3"].cli("instance", "signal", "order", key, "note", "--tenant", "default"); code == 0 || !strings.Contains(out, "too late") {
				t.Errorf("a signal to an order that has ended: %d %s", code, out)
			}
		}
		until(t, "an event without a key is taken", func() bool {
			return eventTaken(nodes["n1"], `{"aggregate_type":"Order","aggregate_id":"bad","event_id":"bad","event_type":"Begin","payload":{}}`)
		})
		var letters server.DeadLetterList
		until(t, "the event is one dead letter", func() bool {
			nodes["n2"].get("/v1/deadletters", &letters)
			return len(letters.DeadLetters) == 1
		})
		id := letters.DeadLetters[0].ID
		if out, code := nodes["n3"].cli("deadletter", "drop", id, "--tenant", "default", "--why", "a test", "--yes"); code != 0 {
			t.Errorf("drop: %d %s", code, out)
		}
		nodes["n1"].get("/v1/deadletters", &letters)
		if len(letters.DeadLetters) != 0 {
			t.Errorf("dead letters are left: %+v", letters.DeadLetters)
		}
	})
	t.Run("a saga is replayed in all shards", func(t *testing.T) {
		for _, saga := range []string{"order", "parcel", "listener"} {
			out, code := nodes["n3"].cli("replay", saga, "--dry-run", "-o", "json", "--tenant", "default")
			var r replay.Report
			if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Progress.Same != last || r.Progress.Extra != 0 {
				t.Errorf("%s: %d %s", saga, code, out)
			}
		}
		out, code := nodes["n1"].cli("replay", "order", "--emit", "new", "--yes", "--why", "a test", "-o", "json", "--tenant", "default")
		var r replay.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Progress.Same != last || r.Progress.Sent != 0 {
			t.Fatalf("%d %s", code, out)
		}
		var known server.ReplayList
		nodes["n2"].get("/admin/replay", &known)
		if !slices.ContainsFunc(known.Replays, func(k replay.Report) bool { return k.ID == r.ID && k.Progress.Same == last && k.Shards == shards }) {
			t.Errorf("n2 knows %+v", known.Replays)
		}
	})
	t.Run("upkeep goes through all shards", func(t *testing.T) {
		copied := filepath.Join(dir, "copied")
		for _, words := range [][]string{{"doctor"}, {"gc", "--why", "a test"}, {"compact", "--why", "a test"}, {"backup", copied}} {
			out, code := nodes["n2"].cli(words...)
			for i := range shards {
				if code != 0 || !strings.Contains(out, fmt.Sprintf("shard %d\n", i)) {
					t.Fatalf("%v: %d %s", words, code, out)
				}
			}
		}
		if files, err := filepath.Glob(filepath.Join(copied, "shard-*.db")); err != nil || len(files) != shards {
			t.Errorf("the backup has %v, %v", files, err)
		}
		for _, s := range status("n1").Shards { // a folder names its process and its shard
			out, code := nodes["n2"].cli("doctor", "--data", filepath.Join(dir, s.Owner, fmt.Sprintf("shard-%d", s.Shard)))
			if code != 0 || !strings.Contains(out, "asking it") || strings.Count(out, "0 findings") != 1 {
				t.Errorf("doctor of the folder of shard %d: %d %s", s.Shard, code, out)
			}
		}
	})
	t.Run("manifests go to each shard", func(t *testing.T) {
		sagas := strings.ReplaceAll(strings.Replace(shardedSagas, "saga: order\nversion: 1", "saga: order\nversion: 2", 1), "CALLS", calls.URL)
		skewed := strings.NewReplacer("{event: Ended,", "{event: Closed,", "order.Ended", "order.Closed", "saga: listener\nversion: 1", "saga: listener\nversion: 2").Replace(sagas)
		if out, code := nodes["n2"].cli("cluster", "deploy", write(t, dir, "skewed.yaml", skewed)); code == 0 || !strings.Contains(out, "Deploy listener first, and then order") {
			t.Errorf("a revision that a shard may emit past another: %d %s", code, out)
		}
		next := write(t, dir, "next.yaml", sagas)
		if out, code := nodes["n2"].cli("cluster", "deploy", next, "--check"); code != 0 || !strings.Contains(out, "revision 1 runs") {
			t.Errorf("a check: %d %s", code, out)
		}
		for i := range shards { // the check has come to each of them
			if out, code := nodes["n2"].cli("cluster", "manifests", "--shard", fmt.Sprint(i)); code != 0 || !strings.Contains(out, "revision 1, by") {
				t.Errorf("shard %d after a check: %d %s", i, code, out)
			}
		}
		if out, code := nodes["n2"].cli("cluster", "deploy", next, "--why", "a test"); code != 0 {
			t.Fatalf("deploy: %d %s", code, out)
		}
		until(t, "each node runs revision 2 in each shard", func() bool {
			s := status("n3")
			return len(s.Shards) == shards && !slices.ContainsFunc(s.Shards, func(p server.ClusterShard) bool {
				return len(p.Nodes) != 3 || slices.ContainsFunc(p.Nodes, func(n server.ClusterNode) bool { return n.Revision != 2 })
			})
		})
	})

	nodes["n1"].kill()
	order(30, "n2", "n3")
	spread("n2", "n2", "n3")
	testkit.Must(t, os.RemoveAll(filepath.Join(dir, "n1", "shard-1"))) // the folders of the others say that there are four
	nodes["n1"] = launchNode(t, servers, dir, "n1", "--config", config)
	spread("n1", "n1", "n2", "n3")
	order(10, "n1", "n2", "n3")
	if got := calls.distinct(); got != 2*last {
		t.Errorf("%d calls, want %d", got, 2*last)
	}

	other := launchNode(t, servers, dir, "n4", "--shards", "2", "--config", config, manifest)
	if code := other.code(); code != 1 || !strings.Contains(other.err.String(), "cluster shop has 4 shards") {
		t.Errorf("a node that was told another number: %d %s", code, other.err)
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if code := nodes[name].terminate(); code != 0 {
			t.Errorf("%s ends with %d: %s", name, code, nodes[name].err)
		}
	}
}

// TestANodeMayBeASpare: with two copies on three nodes each shard has an owner, a standby and a spare, which forwards calls.
// When a node is gone for good the spares take copies.
func TestANodeMayBeASpare(t *testing.T) {
	beside(t)
	const shards = 2
	dir := t.TempDir()
	servers := natscluster.Start(t)
	manifest := write(t, dir, "small.yaml", smallSaga)
	config := write(t, dir, "edda.yaml", "cluster: {copies: 2}\n")
	nodes := map[string]*child{"n1": launchNode(t, servers, dir, "n1", "--shards", fmt.Sprint(shards), "--config", config, manifest)}
	for _, name := range []string{"n2", "n3"} {
		nodes[name] = launchNode(t, servers, dir, name, "--config", config)
	}
	// placed waits until each shard has an owner, a standby and so many spares that live, and different owners.
	placed := func(by string, spares int) (s server.ClusterStatus) {
		t.Helper()
		untilIn(t, 2*clusterWithin, fmt.Sprintf("each shard has an owner, a standby and %d spares", spares), func() bool {
			if s = (server.ClusterStatus{}); !nodes[by].reads("/cluster", &s) || len(s.Shards) != shards {
				return false
			}
			for _, p := range s.Shards {
				roles := map[string]int{}
				for _, n := range p.Nodes {
					if n.State == server.NodeAlive {
						roles[n.Role]++
					}
				}
				if roles[server.NodeOwner] != 1 || roles[server.NodeStandby] != 1 || roles[server.NodeSpare] != spares || len(roles) > 3 {
					return false
				}
			}
			return s.Shards[0].Owner != s.Shards[1].Owner
		})
		return s
	}
	s := placed("n2", 1)
	begin := func(k, by string) {
		t.Helper()
		until(t, k+" begins", func() bool {
			return eventTaken(nodes[by], fmt.Sprintf(`{"aggregate_type":"Order","aggregate_id":%q,"event_id":%q,"event_type":"Begin","payload":{"k":%q}}`, k, k, k))
		})
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			untilIn(t, clusterWithin, name+" shows "+k, func() bool { return nodes[name].reads("/v1/instances/small/"+k, nil) })
		}
	}
	for i := range 6 {
		begin(fmt.Sprint("A", i), []string{"n1", "n2", "n3"}[i%3])
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if _, code, err := nodes[name].try("/ready"); err != nil || code != 200 {
			t.Errorf("%s is not ready: %d %v", name, code, err)
		}
	}
	gone := s.Shards[0].Owner
	nodes[gone].kill()
	delete(nodes, gone)
	left := slices.Sorted(maps.Keys(nodes))
	placed(left[0], 0)
	for i := range 6 {
		begin(fmt.Sprint("B", i), left[i%2])
	}
}
