//go:build memory && !race

package systemtest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/saga"
	"edda/stream/kv"
)

// What is promised: so much in the file and so much queued, in so much anonymous memory.
const (
	memoryInstances = 1_000_000
	memoryQueued    = 50_000 // for each destination: effects, the gateway, Redis
	memoryBacklog   = 50_000 // events that wait in the stream meanwhile
	memoryMost      = 300 << 20
	memoryWithin    = 5 * time.Minute
)

const memorySaga = `saga: order
version: 1
key: event.order_id
from: all
deadline: 720h
state: {items: [], notes: 0}
on:
  Placed:
    start: true
    set: {items: =event.items, address: =event.address}
    do:
      - {effect: charge, with: {order: =key, amount: =event.amount}}
      - {command: Stock.Reserve, to: =key, with: {items: =event.items}}
      - {timer: remind, after: 240h}
  Noted: {set: {notes: =state.notes + 1}}
  charge.ok: {}
  timer.remind: {}
`

const memoryEffect = `effect: charge
http: {method: POST, url: "http://%s/charge", body: =payload}
retry: {max: 1000, backoff: 100ms..2s}
breaker: {name: pay, failures: 5, open: 2s}
limit: {key: =tenant, concurrent: 32}
`

var filled = flag.String("filled", "", "a data folder that was filled before, to begin with a copy of it")

// TestMemory fills a store and runs the binary on it while every destination is
// down, and then while what was queued goes out and the backlog comes in. It is
// not among the ordinary tests: "make memory" runs it.
func TestMemory(t *testing.T) {
	nats, err := kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer nats.Close()
	shop, gateway, data, addr := freeAddr(t), freeAddr(t), t.TempDir(), freeAddr(t)
	began := time.Now()
	if *filled != "" {
		if err := os.CopyFS(data, os.DirFS(*filled)); err != nil {
			t.Fatal(err)
		}
	} else {
		prefillWith(t, filepath.Join(data, "store"), memorySaga, memoryInstances, longPlaced)
	}
	t.Logf("%d instances in the file after %v", memoryInstances, time.Since(began).Round(time.Second))
	_, js := client(t, nats.URL())

	args := []string{"run", "--role", "combined", "--nats-url", nats.URL(), "--addr", addr, "--data", data,
		"--gateway", "http://" + gateway, "--redis-addr", freeAddr(t), "--config", write(t, t.TempDir(), "edda.yaml", "effects: {allow: [127.0.0.1]}\n"),
		write(t, t.TempDir(), "order.yaml", memorySaga), write(t, t.TempDir(), "charge.yaml", fmt.Sprintf(memoryEffect, shop))}
	run := func(env ...string) (*child, *meter) {
		c := launchWith(t, env, args...)
		c.addr, c.nats = addr, nats.URL()
		untilIn(t, memoryWithin, "it starts", func() bool { return strings.Contains(c.err.String()+c.out.String(), `"msg":"started"`) })
		return c, watch(t, c)
	}
	c, m := run()
	m.phase("started, all destinations down")
	backlog(t, js)
	time.Sleep(20 * time.Second) // as much as comes in does
	m.phase("a backlog in the stream")
	if c.metric("edda_intake_paused") == 0 || c.metric("edda_outbox_rows") < 3*memoryQueued {
		t.Errorf("%v pauses with %v rows queued", c.metric("edda_intake_paused"), c.metric("edda_outbox_rows"))
	}
	c.tenant = "t0"
	for range 3 {
		c.fetch("/v1/instances?status=stuck&limit=1000")
		c.fetch("/v1/instances?limit=1000")
	}
	m.phase("every instance was looked at")
	serve(t, shop)
	serve(t, gateway)
	c.tenant = ""
	untilIn(t, memoryWithin, "what was queued goes out, but for Redis", func() bool {
		time.Sleep(time.Second)
		return c.metric("edda_outbox_rows") <= memoryQueued && c.metric("edda_events_total") >= memoryQueued
	})
	m.phase("effects and gateway up, and done")
	if code := c.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c, m = run(fmt.Sprintf("EDDA_OUTBOX_MAX=%d", 2*memoryQueued)) // Redis stays down
	untilIn(t, memoryWithin, "the backlog comes in", func() bool {
		time.Sleep(time.Second)
		return c.metric("edda_events_total") >= memoryBacklog
	})
	m.phase("outbox.max raised, backlog handled")
	if code := c.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// serve answers at an address from now on.
func serve(t *testing.T, addr string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	s.Listener.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
}

func memoryKey(i int) edda.Key {
	return edda.Key{Tenant: fmt.Sprintf("t%d", i%10), Saga: "order", Correlation: fmt.Sprintf("O%07d", i)}
}

// prefillWith writes so many instances as the engine would, each by its first
// transitions, with the work of theirs still to go out.
func prefillWith(t *testing.T, dir, text string, instances int, first func(*saga.Set, int) []edda.Transition) {
	t.Helper()
	set := testkit.Set(t, text)
	if err := testkit.Fill(t.Context(), dir, instances, func(i int) []edda.Transition { return first(set, i) }); err != nil {
		t.Fatal(err)
	}
}

// longPlaced is the first transition of an instance; what some of them emitted has gone out.
func longPlaced(set *saga.Set, i int) []edda.Transition {
	k := memoryKey(i)
	ev := edda.Event{Kind: edda.KindEvent, ID: "placed-" + k.Correlation, Tenant: k.Tenant, Type: "Placed", AggregateType: "Order", AggregateID: k.Correlation,
		Time: time.Now().UTC(), Payload: []byte(fmt.Sprintf(`{"order_id":%q,"amount":%d,"address":"Street %d, 1000 Town","items":[{"sku":"S-%d","count":2},{"sku":"S-%d","count":1}]}`,
			k.Correlation, i, i, i, i+1))}
	_, trs := set.Apply(edda.Cell{Key: k}, set.Route(ev)[0], ev)
	const share = memoryInstances / memoryQueued
	if i%share != 0 {
		trs[0].Work = nil // it went out long ago
		return trs
	}
	trs[0].Work = append(trs[0].Work, edda.Work{ID: "message-" + k.Correlation, Kind: edda.WorkMessage, From: k, Name: "message", Time: ev.Time,
		Payload: []byte(`{"context_id":1,"caller_id":2,"message":"placed"}`)})
	return trs
}

// backlog publishes events for instances all over the file.
func backlog(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for n := range memoryBacklog {
		k := memoryKey(rand.IntN(memoryInstances))
		body := fmt.Sprintf(`{"event_id":"noted-%d","event_type":"Noted","payload":{"order_id":%q}}`, n, k.Correlation)
		if _, err := js.PublishAsync(fmt.Sprintf("tenant.%s.aggregate.Order.%s", k.Tenant, k.Correlation), []byte(body)); err != nil {
			t.Fatal(err)
		}
		if n%4000 == 3999 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
}

// meter measures a process's anonymous memory every tenth of a second, until the process
// ends. Pages of the mapped file do not count: the system takes them back when it needs them.
type meter struct {
	t    *testing.T
	pid  int
	most atomic.Int64
}

func watch(t *testing.T, c *child) *meter {
	m := &meter{t: t, pid: c.PID()}
	m.most.Store(m.status()["RssAnon"])
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			now, ok := m.status()["RssAnon"]
			if !ok {
				return // the process has ended
			}
			m.most.Store(max(m.most.Load(), now))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return m
}

// status is empty once the process has ended.
func (m *meter) status() map[string]int64 {
	out := map[string]int64{}
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		if kb, ok := strings.CutSuffix(strings.TrimSpace(value), " kB"); ok {
			n, _ := strconv.ParseInt(kb, 10, 64)
			out[name] = n << 10
		}
	}
	return out
}

// phase logs what the process takes now, and compares the most so far with the bound.
func (m *meter) phase(name string) {
	m.t.Helper()
	s, most := m.status(), m.most.Load()
	m.t.Logf("%-32s RssAnon %d MiB, most so far %d (RssFile %d)", name, s["RssAnon"]>>20, most>>20, s["RssFile"]>>20)
	if most == 0 || most > memoryMost {
		m.t.Errorf("%d MiB of anonymous memory, want at most %d", most>>20, memoryMost>>20)
	}
}
