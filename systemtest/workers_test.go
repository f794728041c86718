//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/server"
	"edda/stream/kv"
	"edda/stream/wire"
)

// The sizes of the test of many workers. The lease and the ack wait are shorter
// than in production, where waiting for them would take a minute.
const (
	workersOrders = 240
	workersPace   = 15 * time.Millisecond // between two orders: 3.6 s in all
	workersLease  = 2 * time.Second
	workersAck    = 2 * time.Second
	workersFrozen = workersLease + workersAck + 2*time.Second
	workersWithin = 60 * time.Second // for all to end
)

// workersSaga charges, which may be asked for again with the same key, and then
// mails, which may not.
const workersSaga = `saga: pay
version: 1
key: event.order_id
from: all
on:
  Asked:
    start: true
    do: [{seq: [{effect: charge, with: {order: =key}}, {effect: mail, with: {order: =key}}, {done: true}]}]
`

const workersEffects = `effect: charge
http: {method: POST, url: "%[1]s/charge", body: =payload}
result: =body
retry: {max: 20, backoff: 10ms..200ms}
---
effect: mail
http: {method: POST, url: "%[1]s/mail", body: =payload}
delivery: at_most_once
result: =body
`

// TestWorkersShareTheLoadThroughKillsAndFreezes runs two effect processes on one
// server. One is killed and starts again; the other is stopped for longer than
// the ack wait and the lease, and then goes on with what it held.
func TestWorkersShareTheLoadThroughKillsAndFreezes(t *testing.T) {
	nats, err := kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer nats.Close()
	shop := newShop()
	gate := slowShop(shop)
	site := httptest.NewServer(shop)
	defer site.Close()
	_, js := client(t, nats.URL())
	rememberWrites(t, js)

	w := &workers{t: t, nats: nats.URL(), manifest: write(t, t.TempDir(), "effects.yaml", fmt.Sprintf(workersEffects, site.URL))}
	w.config = write(t, t.TempDir(), "edda.yaml", fmt.Sprintf("effects: {allow: [127.0.0.1], lease: %v, ack_wait: %v}\n", workersLease, workersAck))
	w.sagas = w.run("saga", t.TempDir(), write(t, t.TempDir(), "pay.yaml", workersSaga))
	frozenData, killedData := t.TempDir(), t.TempDir()
	frozen, killed := w.run("effect", frozenData, w.manifest), w.run("effect", killedData, w.manifest)

	var producer sync.WaitGroup
	producer.Go(func() { w.produce(js) })
	busy := func(metric string, n float64) func() bool {
		return func() bool { return frozen.metric(metric) > n && killed.metric(metric) > n }
	}
	until(t, "both work", busy("edda_effect_calls_total", 20))
	gate.Lock()
	until(t, "both have calls under way", busy("edda_effect_in_flight", 5))
	killed.kill()
	signalled(t, frozen, syscall.SIGSTOP)
	gate.Unlock()
	thaw := time.After(workersFrozen)
	killed = w.run("effect", killedData, w.manifest)
	<-thaw
	signalled(t, frozen, syscall.SIGCONT)
	thawed := time.Now()
	producer.Wait()
	w.settle()
	t.Logf("all ended %v after the thaw", time.Since(thawed).Round(time.Millisecond))
	w.books(shop)
	w.ledger(js)
	w.results(js)
	for _, c := range []*child{frozen, killed, w.sagas} {
		if code := c.terminate(); code != 0 {
			t.Errorf("exit code %d: %s", code, c.err)
		}
	}
	if n := strings.Count(frozen.err.String(), "another worker"); n == 0 {
		t.Errorf("the frozen worker lost nothing: %s", frozen.err)
	}
}

// slowShop takes its time, and all of it while the gate is shut.
func slowShop(s *shop) (gate *sync.RWMutex) {
	gate = &sync.RWMutex{}
	late := func(call) int {
		<-time.After(time.Duration(20+rand.IntN(100)) * time.Millisecond)
		gate.RLock()
		defer gate.RUnlock()
		return http.StatusOK
	}
	s.answer("charge", late)
	s.answer("mail", late)
	return gate
}

// rememberWrites makes the ledger with a history.
func rememberWrites(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	ctx := context.Background()
	if _, err := kv.OpenLedger(ctx, js, kv.LedgerOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, "KV_"+kv.LedgerBucket)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgsPerSubject = 1000
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
}

func signalled(t *testing.T, c *child, s syscall.Signal) {
	t.Helper()
	if err := c.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// workers is one run of the test.
type workers struct {
	t                      *testing.T
	nats, manifest, config string
	sagas                  *child
}

// run starts a process of a role and waits until it works.
func (w *workers) run(role, data, manifest string) *child {
	w.t.Helper()
	addr := freeAddr(w.t)
	c := launch(w.t, "run", "--config", w.config, "--role", role, "--nats-url", w.nats, "--addr", addr, "--data", data, manifest)
	c.addr, c.nats, c.tenant = addr, w.nats, "default"
	c.says(`"msg":"started"`)
	return c
}

func workersOrder(i int) string { return fmt.Sprintf("O%d", i) }

func (w *workers) produce(js jetstream.JetStream) {
	pace := time.NewTicker(workersPace)
	defer pace.Stop()
	for i := range workersOrders {
		<-pace.C
		id := workersOrder(i)
		if err := publishSurely(js, message(0, id, "Asked", fmt.Sprintf(`{"order_id":%q}`, id))); err != nil {
			w.t.Error(err)
			return
		}
	}
}

// settle waits until every saga has ended.
func (w *workers) settle() {
	w.t.Helper()
	look := time.NewTicker(200 * time.Millisecond) // each look lists everything
	defer look.Stop()
	untilIn(w.t, workersWithin, "all end", func() bool {
		<-look.C
		ended := 0
		for _, in := range w.sagas.instances("pay") {
			if in.Status.Finished() {
				ended++
			}
		}
		return ended == workersOrders
	})
}

// books holds what the shop saw against what the sagas were told.
func (w *workers) books(s *shop) {
	w.t.Helper()
	keys := map[string]map[string]int{} // calls, by effect and order, by key
	for _, c := range s.all() {
		name := c.Effect + " " + c.Order
		if keys[name] == nil {
			keys[name] = map[string]int{}
		}
		keys[name][c.Key]++
	}
	again, unknown := 0, 0
	for i := range workersOrders {
		id := workersOrder(i)
		for _, effect := range []string{"charge", "mail"} {
			calls := keys[effect+" "+id]
			if len(calls) > 1 {
				w.t.Errorf("%s of %s was called with several keys: %v", effect, id, calls)
			}
			for n := range maps.Values(calls) {
				again += n - 1
				if n > 1 && effect == "mail" {
					w.t.Errorf("the mail of %s was sent %d times", id, n)
				}
			}
		}
		v := w.sagas.describe("pay", id)
		unknown += w.outcome(id, v, len(keys["mail "+id]))
	}
	w.t.Logf("%d orders, %d charges asked for again, %d mails of which nobody knows", workersOrders, again, unknown)
}

// outcome checks that a saga was told one result of each effect, and returns 1
// where nobody knows whether the mail went out.
func (w *workers) outcome(id string, v server.InstanceView, mails int) (unknown int) {
	w.t.Helper()
	handled := map[string]int{}
	for _, r := range v.History {
		if r.Event.Kind == edda.KindResult && r.Fate == edda.FateHandled {
			handled[r.Event.Type]++
		}
	}
	same(w.t, "results of "+id, slices.Sorted(maps.Values(handled)), 1, 1)
	switch status := v.Instance.Status; {
	case status == edda.StatusDone && mails == 1:
		return 0
	case status == edda.StatusFailed && v.Instance.Reason == "mail.timeout":
		return 1
	default:
		w.t.Errorf("%s is %s because %q after %d mails", id, status, v.Instance.Reason, mails)
		return 0
	}
}

// results looks that whatever was published for a command says the same.
func (w *workers) results(js jetstream.JetStream) {
	w.t.Helper()
	said := map[string]string{}
	for _, m := range readAll(w.t, js, wire.WorkflowEvents, "tenant.default.effect_result.>") {
		var r struct {
			Outcome string          `json:"result_type"`
			Payload json.RawMessage `json:"payload"`
		}
		decode(w.t, m.Data(), &r)
		now := r.Outcome + " " + string(r.Payload)
		if was, ok := said[m.Subject()]; ok && was != now {
			w.t.Errorf("%s: %s, and %s", m.Subject(), was, now)
		}
		said[m.Subject()] = now
	}
	if len(said) != 2*workersOrders {
		w.t.Errorf("%d results, want %d", len(said), 2*workersOrders)
	}
}

// entry is a write in the ledger.
type entry struct {
	edda.Claim
	Released bool
	at       time.Time
}

// ledger reads every write in order: nobody takes over what was written within a
// lease, unless it was released or its owner died here, and a result stays.
func (w *workers) ledger(js jetstream.JetStream) {
	w.t.Helper()
	last, taken := map[string]entry{}, 0
	for _, m := range readAll(w.t, js, "KV_"+kv.LedgerBucket, ">") {
		md, err := m.Metadata()
		if err != nil {
			w.t.Fatal(err)
		}
		now := entry{at: md.Timestamp}
		decode(w.t, m.Data(), &now)
		if was, ok := last[now.CommandID]; ok && w.takeover(was, now) {
			taken++
		}
		last[now.CommandID] = now
	}
	results := 0
	for _, e := range last {
		if e.Done {
			results++
		}
	}
	if results != 2*workersOrders || len(last) != results {
		w.t.Errorf("%d commands in the ledger, %d with a result, want %d", len(last), results, 2*workersOrders)
	}
	if taken == 0 {
		w.t.Error("no claim was taken over: the test tests nothing")
	}
	w.t.Logf("%d claims were taken over", taken)
}

func (w *workers) takeover(was, now entry) bool {
	w.t.Helper()
	if was.Owner == now.Owner {
		return false
	}
	unwritten := now.at.Sub(was.at)
	homeWas, _, _ := strings.Cut(was.Owner, "/")
	homeNow, _, _ := strings.Cut(now.Owner, "/")
	switch {
	case was.Done:
		w.t.Errorf("the result of %s was overwritten: %+v by %+v", was.CommandID, was, now)
	case homeWas != homeNow && !was.Released && unwritten < workersLease:
		w.t.Errorf("%s was taken over after %v: %+v by %+v", was.CommandID, unwritten, was, now)
	}
	return true
}
