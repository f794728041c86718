package effects

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// large are commands of a tenant with a payload of so many bytes.
func large(tenant string, n, bytes int) []Command {
	out := tenants(tenant, n)
	for i := range out {
		out[i].Payload = json.RawMessage(fmt.Sprintf(`{"amount":25,"text":%q}`, strings.Repeat("x", bytes)))
	}
	return out
}

// buildHolding is a house whose worker may hold so many bytes.
func buildHolding(t *testing.T, bytes int, concurrency int, manifest string) (*house, *prometheus.Registry) {
	t.Helper()
	h := build(t)
	h.stop()
	reg := prometheus.NewRegistry()
	h.tune = func(o *Options) { o.HeldBytes, o.Concurrency, o.Metrics = bytes, concurrency, reg }
	h.restart(t, nil, manifest)
	return h, reg
}

// heldBytes is what the metric says.
func heldBytes(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "edda_effect_held_bytes" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no edda_effect_held_bytes")
	return 0
}

// TestCommandsAreFetchedWhileThereIsMemoryForThem and not beyond, until some have
// ended; then all of them are called.
func TestCommandsAreFetchedWhileThereIsMemoryForThem(t *testing.T) {
	const bound, each = 4 << 20, 500 << 10
	bubble(t, func(t *testing.T) {
		h, reg := buildHolding(t, bound, 32, plain)
		wait := make(chan struct{})
		h.bank.answers(holdUntil(wait))
		h.send(large("acme", 40, each)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		held, left := heldBytes(t, reg), len(h.left())
		if held < bound/2 || held > bound+2*each+2048 || 40-left != int(held)/(2*each) || h.bank.most != 40-left {
			t.Errorf("%.0f bytes are held, %d at once are called, %d are left in the stream of 40", held, h.bank.most, left)
		}
		close(wait)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(h.got()); n != 40 || heldBytes(t, reg) != 0 {
			t.Errorf("%d results, %.0f bytes are held", n, heldBytes(t, reg))
		}
		if lint, err := testutil.GatherAndLint(reg); err != nil || len(lint) > 0 {
			t.Errorf("lint %v %v", lint, err)
		}
	})
}

// TestACommandBeyondAllMemoryIsCalledAllTheSame, by itself.
func TestACommandBeyondAllMemoryIsCalledAllTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := buildHolding(t, 1<<20, 4, plain)
		h.send(large("acme", 3, 2<<20)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(h.got()); n != 3 || h.bank.most != 1 {
			t.Errorf("%d results, %d at once", n, h.bank.most)
		}
	})
}

// TestLargeCommandsOfOneTenantHideNobody where they wait for its limit.
func TestLargeCommandsOfOneTenantHideNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := buildHolding(t, 4<<20, 4, plain+"limit: {key: =tenant, rate: 1/m, burst: 1}\n")
		since := time.Now()
		h.send(append(large("acme", 60, 500<<10), tenants("globex", 1)...)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := h.bank.starts(since, "globex"); got != "0.0" {
			t.Errorf("globex began at %q behind a flood of large commands", got)
		}
	})
}
