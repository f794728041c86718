package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/internal/harness"
	"edda/internal/testkit"
	"edda/stream/kv"
)

// startNATS starts a server as an operator would have one.
func startNATS(t *testing.T, addr string) *kv.Embedded {
	t.Helper()
	e, err := kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// startRun starts edda run on a free port, which its log tells.
func startRun(t *testing.T, nats string, args ...string) *running {
	t.Helper()
	return startRunIn(t, nil, nats, args...)
}

// startRunIn starts it with variables.
func startRunIn(t *testing.T, env []string, nats string, args ...string) *running {
	t.Helper()
	r := &running{out: newScreen(), err: newScreen(), nats: nats, addr: freeAddr(t)}
	ctx, cancel := context.WithCancel(t.Context())
	term := &terminal{in: strings.NewReader(""), out: r.out, err: r.err, env: append([]string{"NATS_URL=" + nats}, env...)}
	code := make(chan int, 1)
	go func() {
		code <- term.run(ctx, append([]string{"run", "--addr", r.addr}, args...))
		fmt.Fprintln(r.err, "(ended)")
	}()
	var once sync.Once
	var last int
	r.stop = func() int {
		once.Do(func() { cancel(); last = <-code })
		return last
	}
	t.Cleanup(func() { r.stop() })
	return r
}

func freeAddr(t *testing.T) string {
	t.Helper()
	return testkit.Value[[]string](t)(harness.FreeAddrs(1))[0]
}

const started = `"msg":"started"`

func TestSagaAndEffectProcessesApart(t *testing.T) {
	shop := newShop(t)
	nats := startNATS(t, "127.0.0.1:0")
	sagas := startRun(t, nats.URL(), folder(t, map[string]string{"order.yaml": orderSaga}), "--role", "saga", "--data", t.TempDir())
	sagas.err.wait(t, started)
	config := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, config, "effects: {allow: [127.0.0.1]}\n")
	worker := startRun(t, nats.URL(), folder(t, map[string]string{"effects.yaml": shop.effects()}), "--role", "effect", "--config", config, "--data", t.TempDir())
	worker.err.wait(t, started)

	sagas.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1"}`)
	// edda run has no default tenant: it is named.
	if code, out := sagas.edda(t, "instance", "list"); code != 1 || !strings.Contains(out, "x-tenant-id") {
		t.Errorf("%d %s", code, out)
	}
	sagas.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "O1", "--tenant", "default")
	if code, out := worker.edda(t, "instance", "list", "--tenant", "default", "-o", "ids"); code != 0 || out != "" {
		t.Errorf("the effect process has instances: %d %s", code, out)
	}
	for _, r := range []*running{sagas, worker} {
		if code := r.stop(); code != 0 {
			t.Errorf("exit code %d\n%s", code, r.err)
		}
	}
}

func TestEffectsMayNotCallLoopbackInRun(t *testing.T) {
	shop := newShop(t)
	nats := startNATS(t, "127.0.0.1:0")
	dir := folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()})
	r := startRun(t, nats.URL(), dir, "--data", t.TempDir())
	r.err.wait(t, started)
	r.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1"}`)
	r.until(t, "ship.failed", "instance", "describe", "order", "O1", "--tenant", "default")
	if len(shop.keys) != 0 {
		t.Errorf("calls %v", shop.keys)
	}
}

func TestAVersionNeverChangesInRun(t *testing.T) {
	nats := startNATS(t, "127.0.0.1:0")
	data := t.TempDir()
	r := startRun(t, nats.URL(), folder(t, map[string]string{"order.yaml": orderSaga}), "--data", data)
	r.err.wait(t, started)
	r.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1","total":1}`)
	r.until(t, "running", "instance", "describe", "order", "O1", "--tenant", "default")
	r.stop()

	other := strings.Replace(orderSaga, "total: =event.total", "sum: =event.total", 1)
	r = startRun(t, nats.URL(), folder(t, map[string]string{"order.yaml": other}), "--data", data)
	r.err.wait(t, `\(ended\)`)
	if code := r.stop(); code != 1 || !strings.Contains(r.err.String(), "a version never changes, give this one version 2") {
		t.Fatalf("%d %s", code, r.err)
	}

	// Under a number of its own it runs beside the one that O1 began with.
	dir := folder(t, map[string]string{"order.yaml": strings.Replace(other, "saga: order", "saga: order\nversion: 2", 1)})
	r = startRun(t, nats.URL(), dir, "--data", data)
	r.err.wait(t, started)
	if code, out := r.edda(t, "instance", "signal", "order", "O1", "finish", "--tenant", "default"); code != 0 || !strings.Contains(out, "now done") {
		t.Errorf("%d %s", code, out)
	}
	r.edda(t, "send", "Order.OrderPlaced", "--id", "O2", "--data", `{"order_id":"O2","total":1}`)
	r.until(t, "order, version 2", "instance", "describe", "order", "O2", "--tenant", "default")
}

func TestASecondSagaProcessIsRefused(t *testing.T) {
	nats := startNATS(t, "127.0.0.1:0")
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	first := startRun(t, nats.URL(), dir, "--data", t.TempDir())
	first.err.wait(t, started)
	second := startRun(t, nats.URL(), dir, "--data", t.TempDir())
	second.err.wait(t, `\(ended\)`)
	if code := second.stop(); code != 1 || !strings.Contains(second.err.String(), "serves these tenants") {
		t.Errorf("%d %s", code, second.err)
	}
	// Once the first is gone in order, the next need not wait.
	if code := first.stop(); code != 0 {
		t.Fatalf("%d %s", code, first.err)
	}
	third := startRun(t, nats.URL(), dir, "--data", t.TempDir(), "--adopt-empty")
	third.err.wait(t, started)
}

func TestRunWaitsForNATSAndSaysSo(t *testing.T) {
	addr := freeAddr(t)
	r := startRun(t, "nats://"+addr, folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir())
	probe(t, r, "/live", http.StatusOK)
	probe(t, r, "/ready", http.StatusServiceUnavailable)
	probe(t, r, "/health", http.StatusServiceUnavailable)
	if code, out := r.edda(t, "health"); code != exitFailed || !strings.Contains(out, "jetstream down: not reached yet") || !strings.Contains(out, "storage up") {
		t.Errorf("edda health: %d\n%s", code, out)
	}
	startNATS(t, addr)
	r.err.wait(t, started)
	probe(t, r, "/ready", http.StatusOK)
	probe(t, r, "/health", http.StatusOK)
	if code, out := r.edda(t, "health"); code != exitDone || !strings.Contains(out, "jetstream up\n") {
		t.Errorf("edda health: %d\n%s", code, out)
	}
	if code, out := r.edda(t, "health", "--addr", freeAddr(t)); code != exitFailed || !strings.Contains(out, "no Edda answers") {
		t.Errorf("edda health of nothing: %d\n%s", code, out)
	}
}

func TestProbesAreAnsweredOnAnAddressOfTheirOwn(t *testing.T) {
	r := startRun(t, "nats://127.0.0.1:1", folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir(), "--probe-addr", ":0")
	r.addr = "127.0.0.1:" + r.err.wait(t, `"probe_addr":"\[::\]:(\d+)"`)[1]
	probe(t, r, "/live", http.StatusOK)
	probe(t, r, "/ready", http.StatusServiceUnavailable)
	probe(t, r, "/info", http.StatusNotFound)
}

func TestAStopWhileWaitingForNATSIsNoFailure(t *testing.T) {
	r := startRun(t, "nats://"+freeAddr(t), folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir())
	probe(t, r, "/live", http.StatusOK)
	if code := r.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, r.err)
	}
}

// probe waits until the process answers with the status.
func probe(t *testing.T, r *running, path string, want int) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get("http://" + r.addr + path)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == want {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not %d (%v)\n%s", path, want, err, r.err)
		}
	}
}

func TestAReloadMovesToOtherTenants(t *testing.T) {
	shop := newShop(t)
	nats := startNATS(t, "127.0.0.1:0")
	dir := folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()})
	config := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, config, "tenants: [acme]\neffects: {allow: [127.0.0.1]}\n")
	r := startRun(t, nats.URL(), dir, "--config", config, "--data", t.TempDir())
	r.err.wait(t, started)
	other := startRun(t, nats.URL(), dir, "--tenants", "gamma", "--data", t.TempDir())
	other.err.wait(t, started)
	order := func(tenant, id string) {
		t.Helper()
		if code, out := r.edda(t, "send", "Order.OrderPlaced", "--id", id, "--tenant", tenant, "--data", `{"order_id":"`+id+`"}`); code != 0 {
			t.Fatal(out)
		}
	}
	order("beta", "early") // nobody serves it yet
	order("acme", "O1")
	r.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "O1", "--tenant", "acme")

	// One of them is another process's: nothing changes.
	write(t, config, "tenants: [beta, gamma]\neffects: {allow: [127.0.0.1]}\n")
	if code, out := r.edda(t, "reload"); code != 1 || !strings.Contains(out, "serves these tenants") {
		t.Fatalf("%d %s", code, out)
	}
	order("acme", "O2")
	r.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "O2", "--tenant", "acme")

	write(t, config, "tenants: [beta]\neffects: {allow: [127.0.0.1]}\ndata: elsewhere\ngateway: {url: http://127.0.0.1:1}\n")
	if code, out := r.edda(t, "reload"); code != 0 || !strings.Contains(out, "gateway changed in the configuration: it takes effect at the next start") {
		t.Fatalf("%d %s", code, out)
	}
	order("beta", "O3")
	r.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "O3", "--tenant", "beta")
	order("acme", "O4")
	order("beta", "O5") // behind it in the stream
	r.until(t, "running", "instance", "describe", "order", "O5", "--tenant", "beta")
	for tenant, id := range map[string]string{"acme": "O4", "beta": "early"} {
		if code, out := r.edda(t, "instance", "describe", "order", id, "--tenant", tenant); code != 1 || !strings.Contains(out, "no instance") {
			t.Errorf("%s: %d %s", id, code, out)
		}
	}
	// What was begun for a tenant that is gone can still be ended.
	if code, out := r.edda(t, "instance", "describe", "order", "O1", "--tenant", "acme"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
}

func TestAnAddressInUseNamesTheVariableItCameFrom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, dir := l.Addr().String(), folder(t, map[string]string{"order.yaml": orderSaga})
	run := []string{"run", dir, "--data", t.TempDir(), "--nats-url", "nats://127.0.0.1:1"}
	const choose = "; is another Edda running? Choose another --addr"
	for _, c := range []struct {
		name, want string
		env, args  []string
	}{
		{"variable", choose + "; EDDA_ADDR names " + taken + "\n", []string{"EDDA_ADDR=" + taken}, run},
		{"probes", choose + " or --probe-addr; EDDA_PROBE_ADDR names " + taken + "\n", []string{"EDDA_PROBE_ADDR=" + taken}, append(slices.Clone(run), "--addr", "127.0.0.1:0")},
		{"flag", choose + "\n", []string{"EDDA_ADDR=127.0.0.1:1"}, append(slices.Clone(run), "--addr", taken)},
		{"dev", choose + "; EDDA_ADDR names " + taken + "\n", []string{"EDDA_ADDR=" + taken}, []string{"dev", dir, "--data", t.TempDir(), "--nats-addr", "127.0.0.1:0"}},
		{"dev with a flag", choose + "\n", []string{"EDDA_ADDR=127.0.0.1:1"}, []string{"dev", dir, "--data", t.TempDir(), "--nats-addr", "127.0.0.1:0", "--addr", taken}},
	} {
		if code, _, said := shell(t, c.env, c.args...); code != 1 || !strings.HasSuffix(said, "address already in use"+c.want) {
			t.Errorf("%s: %d %s", c.name, code, said)
		}
	}
}
