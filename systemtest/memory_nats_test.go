//go:build memory && !race

package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/saga"
	"edda/stream/kv"
	"edda/stream/wire"
)

const (
	// Three facts of each of so many instances are queued, and a timer of each fires
	// while NATS is away and says a fourth.
	factInstances = 25_000
	factsQueued   = 3 * factInstances
	// factsLeft are those that must still wait when NATS is gone: some go out while
	// the process starts.
	factsLeft = 50_000
	// natsAway is less than the duplicate window: what was stored and not
	// acknowledged is known again.
	natsAway = 15 * time.Second
)

const factSaga = `saga: order
version: 1
key: event.order_id
from: all
state: {}
on:
  Placed:
    start: true
    do:
      - {event: Placed1, with: {order: =key}}
      - {event: Placed2, with: {order: =key}}
      - {event: Placed3, with: {order: =key}}
      - {timer: late, after: 1s}
  timer.late: {do: [{event: Late, with: {order: =key}}, {done: true}]}
`

// TestMemoryWithNATSAway queues rows for JetStream itself, takes NATS away as soon
// as the process has started, and brings it back. Meanwhile nothing comes in but the
// timers that were due already, the memory has its bound, and then each fact is in
// the stream once.
func TestMemoryWithNATSAway(t *testing.T) {
	dir, data, addr, at := t.TempDir(), t.TempDir(), freeAddr(t), freeAddr(t)
	begin := func() *kv.Embedded {
		nats, err := kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: dir, Addr: at})
		if err != nil {
			t.Fatal(err)
		}
		return nats
	}
	server := begin()
	prefillWith(t, filepath.Join(data, "store"), factSaga, factInstances, func(set *saga.Set, i int) []edda.Transition {
		k := memoryKey(i)
		ev := edda.Event{Kind: edda.KindEvent, ID: "placed-" + k.Correlation, Tenant: k.Tenant, Type: "Placed", AggregateType: "Order", AggregateID: k.Correlation,
			Time: time.Now().UTC(), Payload: fmt.Appendf(nil, `{"order_id":%q}`, k.Correlation)}
		_, trs := set.Apply(edda.Cell{Key: k}, set.Route(ev)[0], ev)
		return trs
	})
	c := launchWith(t, nil, "run", "--role", "saga", "--nats-url", server.URL(), "--addr", addr, "--data", data, write(t, t.TempDir(), "order.yaml", factSaga))
	c.addr, c.nats = addr, server.URL()
	untilIn(t, memoryWithin, "it starts", func() bool { return strings.Contains(c.err.String()+c.out.String(), `"msg":"started"`) })
	server.Close()
	m := watch(t, c)
	away := time.Now()
	untilIn(t, natsAway, "what was under way ends, and the relay meets no NATS", func() bool { return c.metric("edda_outbox_destination_down") > 0 })
	rows := c.metric("edda_outbox_rows")
	if rows < factsLeft {
		t.Fatalf("%v rows are left when NATS is gone, want %d at least", rows, factsLeft)
	}
	// It may come in all the same, once NATS is back: the answer says so.
	if code := c.post("/v1/events", `{"event_id":"new","aggregate_type":"Order","aggregate_id":"new","event_type":"Placed","payload":{"order_id":"new"}}`); code < 500 {
		t.Errorf("an event by HTTP: %d, want a refusal while NATS is away", code)
	}
	time.Sleep(natsAway - time.Since(away))
	// Timers that were due before NATS went still fire, and no more than these.
	if now, timers := c.metric("edda_outbox_rows"), c.metric("edda_transitions_total"); now > factsQueued+factInstances || timers > factInstances {
		t.Errorf("%v rows and %v transitions: something else than %d timers came in", now, timers, factInstances)
	}
	m.phase(fmt.Sprintf("NATS away, %.0f rows queued", rows))
	server = begin()
	defer func() { server.Close() }()
	untilIn(t, memoryWithin, "all of it goes out", func() bool {
		time.Sleep(200 * time.Millisecond)
		return c.metric("edda_outbox_rows") == 0 && c.metric("edda_instances") >= factInstances && c.running() == 0
	})
	m.phase("NATS back, all gone out")
	_, js := client(t, server.URL())
	wantOnce(t, js, factsQueued+factInstances)
	if code := c.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// wantOnce reads the stream of facts from its beginning.
func wantOnce(t *testing.T, js jetstream.JetStream, want int) {
	t.Helper()
	s, err := js.Stream(t.Context(), wire.WorkflowEvents)
	if err != nil {
		t.Fatal(err)
	}
	cons, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	seen, twice := map[string]bool{}, 0
	for last := s.CachedInfo().State.LastSeq; ; {
		msg, err := cons.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		id := msg.Headers().Get(nats.MsgIdHdr)
		if !strings.HasSuffix(msg.Subject(), ".new") {
			if seen[id] {
				twice++
			}
			seen[id] = true
		}
		if md, err := msg.Metadata(); err != nil || md.Sequence.Stream >= last {
			break
		}
	}
	if len(seen) != want || twice > 0 {
		t.Errorf("%d facts are in the stream, %d of them twice, want %d once", len(seen), twice, want)
	}
	t.Logf("%d facts in the stream, none twice", len(seen))
}

// running counts the instances that have not ended.
func (c *child) running() (n float64) {
	for line := range strings.Lines(c.metricsText()) {
		if strings.HasPrefix(line, "edda_instances{") && !strings.Contains(line, `status="done"`) {
			n++
		}
	}
	return n
}

func (c *child) metricsText() string {
	body, _ := c.fetch("/metrics")
	return string(body)
}

func (c *child) post(path, body string) int {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+c.addr+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("x-tenant-id", "t0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
