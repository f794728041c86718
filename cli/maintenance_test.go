package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/internal/testkit"
	"edda/node"
	"edda/server"
	"edda/store"
	"edda/store/wal"
)

// held runs a verb on a data folder, without being told an address.
func held(t *testing.T, args ...string) (int, string) {
	t.Helper()
	out := newScreen()
	term := &terminal{in: strings.NewReader(""), out: out, err: out, env: []string{"USER=ann"}}
	code := term.run(t.Context(), args)
	return code, out.String()
}

// TestVerbsOnAStoreThatAProcessHolds finds the process by itself.
func TestVerbsOnAStoreThatAProcessHolds(t *testing.T) {
	data := t.TempDir()
	dev := startDev(t, "--data", data, folder(t, map[string]string{"wait.yaml": waitSaga}))
	dev.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1"}`, "--nats", dev.nats)
	dev.until(t, "running", "instance", "list")

	expect := func(code int, want []string, args ...string) string {
		t.Helper()
		got, out := held(t, append(args, "--data", data)...)
		for _, w := range append(want, "a process holds "+filepath.Join(data, "store", store.FileName)+": asking it, at http://"+dev.addr) {
			if !strings.Contains(out, w) {
				t.Errorf("%v: %q is not in %s", args, w, out)
			}
		}
		if got != code {
			t.Errorf("%v: exit code %d: %s", args, got, out)
		}
		return out
	}
	expect(0, []string{"would be removed", "instances     0"}, "gc", "--dry-run")
	expect(0, []string{"removed"}, "gc", "--why", "room")
	expect(0, []string{"0 findings", "1 instances wait for nothing", "wait  O1"}, "doctor")
	expect(0, []string{`"O1 running"`}, "eval", `key + " " + saga.status`, "--instance", "wait/O1")
	expect(0, []string{"of which commits waited"}, "compact", "--why", "tidy")
	file := filepath.Join(t.TempDir(), "b.db")
	expect(0, []string{"sha256 "}, "backup", file)
	if code, out := held(t, "restore", file, "--data", data, "--force"); code != 1 || !strings.Contains(out, "another process holds") {
		t.Errorf("%d %s", code, out)
	}
	// By address alone, as from another machine.
	code, out := dev.edda(t, "doctor", "-o", "json")
	var d server.Doctor
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 || d.IdleTotal != 1 || d.Idle[0].Key != (edda.Key{Tenant: "default", Saga: "wait", Correlation: "O1"}) {
		t.Errorf("%d %v %s", code, err, out)
	}
	code, out = dev.edda(t, "audit", "list", "--process")
	for _, verb := range []string{"gc", "compact", "backup", "doctor"} {
		if code != 0 || !strings.Contains(out, verb) {
			t.Errorf("the audit of the process lacks %s: %d\n%s", verb, code, out)
		}
	}
	if code, out := dev.edda(t, "audit", "list"); code != 0 || strings.Contains(out, "doctor") {
		t.Errorf("acts on the process in a tenant's audit: %d\n%s", code, out)
	}
	dev.until(t, "running", "instance", "list") // it works on the compacted file
	if code := dev.stop(); code != 0 {
		t.Fatalf("%d %s", code, dev.err)
	}
	if _, err := os.Stat(filepath.Join(data, "store", "edda.addr")); err == nil {
		t.Error("it still says where it listens")
	}
	if code, out := held(t, "doctor", "--data", data); code != 0 || strings.Contains(out, "holds") || !strings.Contains(out, "0 findings") {
		t.Errorf("%d %s", code, out)
	}
	audited(t, data)
	restored := t.TempDir()
	if code, out := held(t, "restore", file, "--data", restored); code != 0 || !strings.Contains(out, "all sound") {
		t.Errorf("%d %s", code, out)
	}
}

const waitSaga = "saga: wait\nversion: 1\nkey: event.order_id\non:\n  OrderPlaced: {start: true}\n  OrderPaid: {do: [done: {}]}\n"

// audited looks for what was done, in the store itself.
func audited(t *testing.T, data string) {
	t.Helper()
	db, err := store.Open(filepath.Join(data, "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	audits, err := db.Audits(100)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, a := range audits {
		reasons[a.Verb] = a.By + " " + a.Reason
	}
	for verb, want := range map[string]string{"gc": "ann room", "compact": "ann tidy", "backup": "ann ", "doctor": "ann "} {
		if reasons[verb] != want {
			t.Errorf("%s: %q, want %q", verb, reasons[verb], want)
		}
	}
}

// TestAFindingIsExitCodeOne damages one row of a good store.
func TestAFindingIsExitCodeOne(t *testing.T) {
	data := t.TempDir()
	if code, out := held(t, "restore", "../store/testdata/format-v4.db", "--data", data); code != 0 {
		t.Fatal(out)
	}
	path := filepath.Join(data, "store", store.FileName)
	raw, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Update(func(tx *bolt.Tx) error {
		if err := tx.DeleteBucket([]byte("due")); err != nil {
			return err
		}
		_, err := tx.CreateBucket([]byte("due"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out := held(t, "doctor", "--data", data); code != 1 || !strings.Contains(out, "wrong: instance acme/order/O1: no due row at") {
		t.Errorf("%d %s", code, out)
	}
}

// TestACopyOfAClusterIsNotWrittenAlone: its node would have to copy the whole store anew. It is checked, and a
// restored store is no copy any more.
func TestACopyOfAClusterIsNotWrittenAlone(t *testing.T) {
	data := t.TempDir()
	dir, file := filepath.Join(data, "store"), filepath.Join(t.TempDir(), "backup")
	restore := func() {
		if code, out := held(t, "restore", "../store/testdata/format-v4.db", "--data", data, "--force"); code != 0 {
			t.Fatal(out)
		}
	}
	at := func() wal.Point {
		r, err := store.OpenReplica(dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		return r.Point()
	}
	restore()
	if err := store.MarkReplicated(dir, []byte(`{"cluster":"shop"}`)); err != nil {
		t.Fatal(err)
	}
	before := at()
	for _, args := range [][]string{{"gc"}, {"compact"}, {"backup", file}} {
		if code, out := held(t, append(args, "--data", data)...); code != 1 || !strings.Contains(out, "is one of the copies that a cluster keeps") {
			t.Errorf("%s: %d %s", args, code, out)
		}
	}
	if code, out := held(t, "doctor", "--data", data); code != 0 {
		t.Errorf("doctor: %d %s", code, out)
	}
	if is := at(); is != before {
		t.Errorf("it is at %+v, and was at %+v", is, before)
	}
	restore()
	if code, out := held(t, "compact", "--data", data); code != 0 {
		t.Errorf("a restored store: %d %s", code, out)
	}
}

// TestAProcessThatIsAloneOnAShardAnswersForIt: it took itself for shard 0, and refused the commands on its own folder.
func TestAProcessThatIsAloneOnAShardAnswersForIt(t *testing.T) {
	data := t.TempDir()
	share := edda.Share{Cluster: "shop", Shard: edda.Shard{Index: 1, Of: 2}}
	testkit.Must(t, testkit.Value[*store.DB](t)(store.Open(filepath.Join(data, "store"), store.Options{Share: share})).Close())
	dev := startDev(t, "--data", data, folder(t, map[string]string{"wait.yaml": waitSaga}))
	if code, out := held(t, "gc", "--data", data); code != 0 || !strings.Contains(out, "asking it, at http://"+dev.addr) {
		t.Errorf("%d %s", code, out)
	}
	if code, out := held(t, "gc", "--data", data, "--addr", dev.addr, "--shard", "0"); code == 0 || !strings.Contains(out, "shard 1") {
		t.Errorf("of shard 0: %d %s", code, out)
	}
}

func TestAProcessThatIsNotThereIsNotAsked(t *testing.T) {
	data := t.TempDir()
	dir := filepath.Join(data, "store")
	db, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if code, out := held(t, "gc", "--data", data); code != 1 || !strings.Contains(out, "does not say where it listens: name its address with --addr") {
		t.Errorf("%d %s", code, out)
	}
	dev := startDev(t, "--data", t.TempDir(), folder(t, map[string]string{"wait.yaml": waitSaga}))
	text, err := json.Marshal(node.Holder{Addr: dev.addr, Store: db.ID()})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "edda.addr"), string(text))
	if code, out := held(t, "gc", "--data", data); code != 1 || !strings.Contains(out, "has another store") {
		t.Errorf("%d %s", code, out)
	}
	text, err = json.Marshal(node.Holder{Addr: dev.addr, Store: db.ID(), Shard: edda.Shard{Index: 1, Of: 2}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "edda.addr"), string(text))
	if code, out := held(t, "gc", "--data", data, "--shard", "0"); code != exitUsage || !strings.Contains(out, "is that of shard 1: leave out --shard 0") {
		t.Errorf("%d %s", code, out)
	}
}
