//go:build !race

package systemtest

import (
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/server"
)

const natsEffectSaga = `
saga: lot
key: event.id
on:
  Wanted:
    start: true
    do: [{seq: [{effect: reserve, with: {id: =key}}, {done: =step.reserve.result}]}]
---
effect: reserve
nats: {subject: stock.reserve, body: =payload}
timeout: 1m
`

// TestAKilledProcessAsksTheServiceAgainUnderTheSameKey: the service keeps the first request until
// after the kill.
func TestAKilledProcessAsksTheServiceAgainUnderTheSameKey(t *testing.T) {
	data, addr, address := t.TempDir(), freeAddr(t), freeAddr(t)
	manifest := write(t, t.TempDir(), "lot.yaml", natsEffectSaga)
	c := devAt(t, data, addr, address, manifest)
	nc, js := client(t, c.nats)
	var mu sync.Mutex // guards keys
	var keys []string
	if _, err := nc.QueueSubscribe("stock.reserve", "stock", func(m *nats.Msg) {
		mu.Lock()
		keys = append(keys, m.Header.Get("Idempotency-Key"))
		first := len(keys) == 1
		mu.Unlock()
		if !first {
			_ = m.Respond([]byte(`{"id":"R1"}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	requests := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(keys)
	}
	publish(t, js, message(0, "L1", "Wanted", `{"id":"L1"}`))
	until(t, "the service has the request", func() bool { return len(requests()) == 1 })
	c.kill()
	c = devAt(t, data, addr, address, manifest)
	until(t, "the saga is done", func() bool {
		return slices.ContainsFunc(c.instances("lot"), func(in server.InstanceSummary) bool { return in.Status == edda.StatusDone })
	})
	if all := requests(); len(all) != 2 || all[0] != all[1] || all[0] == "" {
		t.Errorf("the service got the requests %q", all)
	}
}
