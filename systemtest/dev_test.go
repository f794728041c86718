//go:build !race

package systemtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/server"
)

func TestStopBySignalDrainsAndExitsZero(t *testing.T) {
	shop := newShop()
	site := httptest.NewServer(shop)
	defer site.Close()
	manifest, data := write(t, t.TempDir(), "order.yaml", crashManifest(site.URL)), t.TempDir()
	c := dev(t, data, manifest)
	_, js := client(t, c.nats)
	const n = 50
	for i := range n {
		for _, name := range []string{"OrderPlaced", "PaymentReceived"} {
			publish(t, js, message(0, orderName(4*i), name, `{"order_id":"`+orderName(4*i)+`","patience":"1h"}`))
		}
	}
	until(t, "calls are under way", func() bool { return len(shop.all()) > 0 })
	if code := c.terminate(); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.err)
	}
	before := len(shop.all())
	c = dev(t, data, manifest)
	until(t, "every order is done", func() bool {
		return len(slices.DeleteFunc(c.instances("order"), func(in server.InstanceSummary) bool { return in.Status != edda.StatusDone })) == n
	})
	if calls := len(shop.all()); calls != 3*n {
		t.Errorf("%d calls in all, %d before the stop; want %d: a stop cuts nothing off", calls, before, 3*n)
	}
}

func publish(t testing.TB, js jetstream.JetStream, m *nats.Msg) {
	t.Helper()
	if _, err := js.PublishMsg(context.Background(), m); err != nil {
		t.Fatal(err)
	}
}

func TestReloadOnChangeTakesGoodFilesAndRefusesBadOnes(t *testing.T) {
	dir := t.TempDir()
	manifest := write(t, dir, "small.yaml", smallSaga)
	c := dev(t, t.TempDir(), dir)
	second := strings.Replace(smallSaga, "version: 1", "version: 2", 1)
	write(t, dir, "small.yaml", strings.Replace(second, "event.k", "event.", 1))
	c.says("what ran before runs on")
	if info := c.info(); len(info.Sagas) != 1 || info.Sagas[0].Version != 1 {
		t.Errorf("after a bad file: %+v", info.Sagas)
	}
	_, js := client(t, c.nats)
	begin(t, js, "A")
	until(t, "the old one still works", func() bool { return len(c.instances("small")) == 1 })
	write(t, dir, "small.yaml", second)
	c.says("Reloaded")
	begin(t, js, "B")
	until(t, "the new one works", func() bool { return len(c.instances("small")) == 2 })
	for key, version := range map[string]int{"A": 1, "B": 2} {
		if v := c.describe("small", key).Instance.Version; v != version {
			t.Errorf("%s runs version %d, want %d", key, v, version)
		}
	}
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
}

func (c *child) info() (info server.Info) {
	c.t.Helper()
	c.get("/info", &info)
	return info
}

// begin starts an instance of the small saga.
func begin(t testing.TB, js jetstream.JetStream, key string) {
	t.Helper()
	publish(t, js, message(0, key, "Begin", `{"k":"`+key+`"}`))
}

func TestBadEventsBecomeDeadLettersThatSayWhich(t *testing.T) {
	c := dev(t, t.TempDir(), write(t, t.TempDir(), "small.yaml", smallSaga))
	_, js := client(t, c.nats)
	bad := func(body string) {
		t.Helper()
		publish(t, js, &nats.Msg{Subject: "tenant.default.aggregate.Order.X", Data: []byte(body)})
	}
	bad(`{not json`)
	bad(`{"event_id":"n1","payload":{"k":"A"}}`)
	bad(`{"event_id":"n2","event_type":"Begin","payload":{}}`)
	bad(`{"event_id":"n3","tenant_id":"other","event_type":"Begin","payload":{"k":"A"}}`)
	bad(`{"event_id":"n4","event_type":"Begin","payload":{"k":"A","text":"` + strings.Repeat("x", 2<<20) + `"}}`)
	begin(t, js, "A")
	until(t, "the good one got through", func() bool { return len(c.instances("small")) == 1 })
	out, code := c.cli("deadletter", "list")
	var reasons []string
	for line := range strings.Lines(out) {
		reasons = append(reasons, strings.Fields(line)[1])
	}
	slices.Sort(reasons)
	if same(t, "reasons", reasons, "REASON", edda.DeadNoKey, edda.DeadNoType, edda.DeadTenant, edda.DeadTooLarge, edda.DeadUndecodable); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if n := c.metric("edda_dead_letters_total"); n != 5 {
		t.Errorf("%v dead letters are counted", n)
	}
}

func TestACommandLineForEverythingAnOperatorDoes(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sick.Load() && r.URL.Path == "/undo_it" {
			w.WriteHeader(http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusOK)
	}))
	defer site.Close()
	text := smallSaga + `---
saga: job
version: 1
key: event.k
state: {hurried: 0}
on:
  Start: {start: true, do: [{effect: do_it, with: {k: =key}, undo: {effect: undo_it, with: {k: =key}}}]}
  signal.hurry: {set: {hurried: "=state.hurried + 1"}}
`
	for _, name := range []string{"do_it", "undo_it"} {
		text += "---\neffect: " + name + "\nhttp: {method: POST, url: \"" + site.URL + "/" + name + "\", body: =payload}\nok: status == 200\nfail: status == 409\n"
	}
	c := dev(t, t.TempDir(), write(t, t.TempDir(), "all.yaml", text))
	run := func(want int, args ...string) string {
		t.Helper()
		out, code := c.cli(args...)
		if code != want {
			t.Errorf("edda %s: exit code %d, want %d: %s", strings.Join(args, " "), code, want, out)
		}
		return out
	}
	status := func(saga, key string, want edda.Status) {
		t.Helper()
		until(t, saga+" "+key+" is "+string(want), func() bool {
			v, code := c.fetch("/v1/instances/" + saga + "/" + key)
			return code == http.StatusOK && strings.Contains(string(v), `"status":"`+string(want)+`"`) && c.describe(saga, key).Instance.Status == want
		})
	}
	for _, k := range []string{"A", "B", "C", "D", "E"} {
		run(0, "send", "Order.Begin", "--id", k, "--data", `{"k":"`+k+`"}`)
	}
	for _, k := range []string{"J", "K"} {
		run(0, "send", "Order.Start", "--id", k, "--data", `{"k":"`+k+`"}`)
	}
	for _, k := range []string{"A", "B", "C", "D", "E"} {
		status("small", k, edda.StatusRunning)
	}
	for _, k := range []string{"J", "K"} {
		until(t, "its step is ok", func() bool {
			body, code := c.fetch("/v1/instances/job/" + k)
			return code == http.StatusOK && strings.Contains(string(body), `"status":"ok"`)
		})
	}
	if out := run(0, "instance", "list"); strings.Count(out, "running") != 7 {
		t.Errorf("list:\n%s", out)
	}
	if out := run(0, "instance", "describe", "small", "A"); !strings.Contains(out, "go_on") {
		t.Errorf("describe does not say what it waits for:\n%s", out)
	}
	run(0, "instance", "answer", "small", "A", "go_on", "on")
	status("small", "A", edda.StatusDone)
	run(0, "instance", "answer", "small", "B", "go_on", "off")
	status("small", "B", edda.StatusFailed)
	run(0, "instance", "cancel", "small", "C", "--yes", "--why", "a test")
	status("small", "C", edda.StatusFailed)
	run(0, "instance", "terminate", "small", "D", "--yes", "--why", "a test")
	status("small", "D", edda.StatusFailed)
	run(0, "instance", "signal", "job", "J", "hurry")
	if n := field(c.describe("job", "J").Instance.State, "hurried"); n != "1" {
		t.Errorf("after the signal hurried is %s", n)
	}
	run(1, "instance", "signal", "job", "nobody", "hurry")
	for _, k := range []string{"J", "K"} {
		run(0, "instance", "cancel", "job", k, "--yes", "--why", "a test")
		status("job", k, edda.StatusStuck)
	}
	sick.Store(false)
	run(0, "instance", "retry", "job", "J", "do_it.undo", "--why", "a test")
	status("job", "J", edda.StatusUndone)
	run(0, "instance", "skip", "job", "K", "do_it.undo", "--yes", "--why", "a test")
	status("job", "K", edda.StatusFailed)
	if in := c.describe("job", "K").Instance; !slices.Equal(in.Incomplete, []string{"do_it"}) {
		t.Errorf("after the skip incomplete is %v", in.Incomplete)
	}
	run(1, "instance", "cancel", "small", "A", "--yes", "--why", "a test") // it has ended
	run(2, "instance", "cancel", "small", "--why", "a test")
	run(2, "instance", "cancel", "small", "A", "--yes") // no reason
}

func TestOneIdleOrderReachesItsEffectUnderTenMillisecondsInTheBinary(t *testing.T) {
	shop, called := newShop(), make(chan time.Time, 1)
	shop.answer("reserve", func(call) int { called <- time.Now(); return http.StatusOK })
	site := httptest.NewServer(shop)
	defer site.Close()
	c := dev(t, t.TempDir(), write(t, t.TempDir(), "order.yaml", crashManifest(site.URL)))
	_, js := client(t, c.nats)
	promised(t, "event to the effect's call", func(i int) time.Duration {
		id := orderName(4 * i)
		publish(t, js, message(0, id, "OrderPlaced", `{"order_id":"`+id+`","patience":"1h"}`))
		begin := time.Now()
		publish(t, js, message(0, id, "PaymentReceived", `{"order_id":"`+id+`"}`))
		var took time.Duration
		select {
		case at := <-called:
			took = at.Sub(begin)
		case <-time.After(soon):
			t.Fatalf("%s was not reserved", id)
		}
		until(t, id+" is done", func() bool { return c.describe("order", id).Instance.Status == edda.StatusDone })
		return took
	})
}
