//go:build !race

package systemtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/server"
)

// The crash test's size: at least five kills while events flow, in well under
// its bound.
const (
	crashOrders = 480
	crashKills  = 6
	crashWithin = 60 * time.Second // for the orders to end once the last was sent
	// crashInFlight is more than is between its call and its commit at a kill.
	crashInFlight = 16
)

// crashSaga reserves and charges, both with undo, then ships; unpaid orders end
// by a timer. %s is the shop.
const crashSaga = `saga: order
version: 1
key: event.order_id
from: all
state: {fired: 0}
on:
  OrderPlaced:
    start: true
    set: {order: =event.order_id}
    do: [{timer: pay_by, after: =event.patience}]
  PaymentReceived:
    do:
      - cancel: pay_by
      - seq:
          - {effect: reserve, with: {order: =key}, undo: {effect: release, with: {order: =key}}}
          - {effect: charge, with: {order: =key}, undo: {effect: refund, with: {order: =key}}}
          - {effect: ship, with: {order: =key}}
          - {command: Order.Complete, to: =key}
          - done: {tracking: =step.ship.result.tracking}
  timer.pay_by: {set: {fired: "=state.fired + 1"}, do: [{fail: not_paid}]}
  saga.failed: {do: [{command: Order.Cancel, to: =key, with: {reason: =saga.reason}}]}
`

const crashEffect = `---
effect: %[1]s
http: {method: POST, url: "%[2]s/%[1]s", body: =payload}
ok: status == 200
fail: status == 409
result: =body
timeout: 5s
retry: {max: 20, backoff: 10ms..200ms}
`

// sort is what is to become of an order.
type sort struct {
	name    string
	ends    edda.Status
	reason  string
	effects []string // calls with effect, in order
	command string
	paid    bool
}

// sorts take turns. How the messages are written differs too, by message.
var sorts = []sort{
	{"shipped", edda.StatusDone, "", []string{"reserve", "charge", "ship"}, "Complete", true},
	{"refused", edda.StatusUndone, "ship.failed", []string{"reserve", "charge", "ship", "refund", "release"}, "Cancel", true},
	{"unpaid", edda.StatusFailed, "not_paid", nil, "Cancel", false},
	{"doubled", edda.StatusDone, "", []string{"reserve", "charge", "ship"}, "Complete", true},
}

func sortOf(i int) sort      { return sorts[i%len(sorts)] }
func orderName(i int) string { return fmt.Sprintf("%s-%d", sortOf(i).name, i) }

func TestKilledAtRandomEveryOrderEndsAsItShould(t *testing.T) {
	beside(t)
	begin := time.Now()
	seed := crashSeed(t)
	shop := newShop()
	site := httptest.NewServer(shop)
	defer site.Close()
	randomShop(shop, seed)
	c := &crash{t: t, data: t.TempDir(), addr: freeAddr(t), nats: freeAddr(t), shop: shop, rnd: rand.New(rand.NewPCG(seed, 1))}
	c.manifest = write(t, t.TempDir(), "order.yaml", crashManifest(site.URL))
	c.child = c.start()
	var producer sync.WaitGroup
	producer.Go(func() { c.produce(rand.New(rand.NewPCG(seed, 2))) })
	for c.kills < crashKills {
		c.killOnce()
	}
	producer.Wait()
	t.Logf("everything was sent after %v", time.Since(begin).Round(time.Millisecond))
	c.settle(time.Now().Add(crashWithin))
	c.books()
	t.Logf("%d orders, %d kills, %d calls, %d of them again after an answer, %v", crashOrders, c.kills, len(shop.all()), c.again, time.Since(begin).Round(time.Millisecond))
}

// crashSeed is the same in every run unless EDDA_CRASH_SEED says another.
func crashSeed(t *testing.T) uint64 {
	seed := uint64(1)
	if text := os.Getenv("EDDA_CRASH_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("EDDA_CRASH_SEED=%d", seed)
	return seed
}

func crashManifest(url string) string {
	text := crashSaga
	for _, e := range []string{"reserve", "charge", "ship", "refund", "release"} {
		text += fmt.Sprintf(crashEffect, e, url)
	}
	return text
}

// randomShop answers late, sometimes with a 503, and refuses to ship what is to
// be refused.
func randomShop(s *shop, seed uint64) {
	var mu sync.Mutex // guards rnd
	rnd := rand.New(rand.NewPCG(seed, 3))
	answer := func(c call) int {
		mu.Lock()
		late, busy := time.Duration(rnd.IntN(20))*time.Millisecond, rnd.IntN(20) == 0
		mu.Unlock()
		<-time.After(late)
		switch {
		case busy:
			return http.StatusServiceUnavailable
		case c.Effect == "ship" && len(c.Order) > 7 && c.Order[:7] == "refused":
			return http.StatusConflict
		}
		return http.StatusOK
	}
	for _, e := range []string{"reserve", "charge", "ship", "refund", "release"} {
		s.answer(e, answer)
	}
}

// crash is one run of the crash test.
type crash struct {
	t                          *testing.T
	data, addr, nats, manifest string
	shop                       *shop
	rnd                        *rand.Rand
	child                      *child
	kills, again               int
}

func (c *crash) start() *child {
	return devAt(c.t, c.data, c.addr, c.nats, c.manifest)
}

// killOnce lets it work for a random time, kills it and starts it again.
func (c *crash) killOnce() {
	<-time.After(time.Duration(200+c.rnd.IntN(2000)) * time.Millisecond)
	c.child.kill()
	c.kills++
	begin := time.Now()
	c.child = c.start()
	c.t.Logf("kill %d; it works again after %v", c.kills, time.Since(begin).Round(time.Millisecond))
}

// produce publishes everything through a plain client that outlives the server.
func (c *crash) produce(rnd *rand.Rand) {
	conn, err := nats.Connect("nats://"+c.nats, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		c.t.Error(err)
		return
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		c.t.Error(err)
		return
	}
	pace := time.NewTicker(8 * time.Millisecond)
	defer pace.Stop()
	for i := range crashOrders {
		for _, m := range messages(i, rnd) {
			<-pace.C
			if err := publishSurely(js, m); err != nil {
				c.t.Error(err)
				return
			}
		}
	}
}

// publishSurely repeats a message until the stream has it. What was stored
// though its ack was lost is then there twice: the event's id tells.
func publishSurely(js jetstream.JetStream, m *nats.Msg) error { return publishWithin(soon, js, m) }

func publishWithin(within time.Duration, js jetstream.JetStream, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := js.PublishMsg(try, m)
		stop()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("publish on %s: %w", m.Subject, err)
		}
	}
}

// messages are what one order sends: some twice, written in three ways.
func messages(i int, rnd *rand.Rand) (out []*nats.Msg) {
	s, id := sortOf(i), orderName(i)
	patience := "1h"
	if !s.paid {
		patience = fmt.Sprintf("%dms", 500+rnd.IntN(2500))
	}
	out = append(out, message(i, id, "OrderPlaced", fmt.Sprintf(`{"order_id":%q,"patience":%q}`, id, patience)))
	if s.paid {
		out = append(out, message(i/len(sorts), id, "PaymentReceived", fmt.Sprintf(`{"order_id":%q}`, id)))
	}
	if s.name == "doubled" {
		out = append(out, out...)
	}
	return out
}

func message(way int, id, name, payload string) *nats.Msg {
	return messageOf(way, id, id+"-"+name, name, payload)
}

// messageOf writes an event of an order in one of three ways.
func messageOf(way int, id, event, name, payload string) *nats.Msg {
	m := nats.NewMsg("tenant.default.aggregate.Order." + id)
	switch way % 3 {
	case 0:
		m.Data = fmt.Appendf(nil, `{"event_id":%q,"tenant_id":"default","aggregate_type":"Order","aggregate_id":%q,"event_type":%q,"payload":%s}`, event, id, name, payload)
	case 1:
		m.Header.Set("Content-Type", "application/cloudevents+json")
		m.Data = fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/shop","type":"com.shop.%s","datacontenttype":"application/json","data":%s}`, event, name, payload)
	case 2:
		for k, v := range map[string]string{"specversion": "1.0", "id": event, "source": "/shop", "type": "com.shop." + name} {
			m.Header.Set("ce-"+k, v)
		}
		m.Header.Set("Content-Type", "application/json")
		m.Data = []byte(payload)
	}
	return m
}

// settle waits until every order has ended and nothing is left to do.
func (c *crash) settle(deadline time.Time) {
	c.t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for ; ; <-look.C {
		open := c.open()
		left := c.child.metric("edda_outbox_items")
		if len(open) == 0 && left == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%d orders have not ended, %v outbox rows are left: %s\n%s", len(open), left, c.why(open), c.child.err)
		}
	}
}

// open lists the orders that have not ended.
func (c *crash) open() (out []string) {
	ended := map[string]bool{}
	for _, in := range c.child.instances("order") {
		ended[in.Key] = in.Status.Finished()
	}
	for i := range crashOrders {
		if id := orderName(i); !ended[id] {
			out = append(out, id)
		}
	}
	return out
}

// why says what the first of them wait for.
func (c *crash) why(open []string) (out string) {
	for _, id := range open[:min(len(open), 5)] {
		body, _ := c.child.fetch("/v1/instances/order/" + id)
		out += "\n" + id + ": " + string(body)
	}
	return out
}

// books compares what happened with what should have.
func (c *crash) books() {
	c.t.Helper()
	byName := map[string]server.InstanceSummary{}
	for _, in := range c.child.instances("order") {
		byName[in.Key] = in
	}
	effects, commands := c.effects(), c.commands()
	for i := range crashOrders {
		s, id := sortOf(i), orderName(i)
		in := byName[id]
		if in.Status != s.ends || in.Reason != s.reason || in.Generation != 1 || in.Incidents != 0 {
			c.t.Errorf("%s ended %s because %q, want %s because %q", id, in.Status, in.Reason, s.ends, s.reason)
		}
		same(c.t, "effects of "+id, effects[id], s.effects...)
		same(c.t, "commands of "+id, commands[id], s.command)
		c.history(i)
	}
	var letters server.DeadLetterList
	if c.child.get("/v1/deadletters", &letters); len(letters.DeadLetters) != 0 {
		c.t.Errorf("%d dead letters, the first %+v", len(letters.DeadLetters), letters.DeadLetters[0])
	}
}

// effects lists, by order, what had an effect: the shop heeds the idempotency
// key. It counts the calls that came again after a definite answer, which only
// a kill between the call and its commit excuses.
func (c *crash) effects() map[string][]string {
	out, seen := map[string][]string{}, map[string]bool{}
	for _, call := range c.shop.all() {
		k := call.Effect + " " + call.Key
		switch {
		case call.Status == http.StatusServiceUnavailable: // no effect: to be called again
		case seen[k]:
			c.again++
		default:
			seen[k] = true
			out[call.Order] = append(out[call.Order], call.Effect)
		}
	}
	if c.again > crashKills*crashInFlight {
		c.t.Errorf("%d calls were made again after a definite answer: more than the kills excuse", c.again)
	}
	return out
}

// commands reads, by order, what went out to the aggregates, by its id.
func (c *crash) commands() map[string][]string {
	conn, err := nats.Connect(c.child.nats)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string][]string{}
	for _, m := range readAll(c.t, js, "WORKFLOW_COMMANDS", "tenant.default.command.>") {
		var body struct {
			ID          string `json:"command_id"`
			AggregateID string `json:"aggregate_id"`
			Payload     string `json:"payload_json"`
		}
		decode(c.t, m.Data(), &body)
		out[body.AggregateID] = append(out[body.AggregateID], body.ID+" "+field([]byte(body.Payload), "command"))
	}
	for id, list := range out { // the same id twice is the same command
		slices.Sort(list)
		list = slices.Compact(list)
		for i := range list {
			_, list[i], _ = strings.Cut(list[i], " ")
		}
		out[id] = list
	}
	return out
}

// history looks that timers fired once and that duplicates were recognised.
func (c *crash) history(i int) {
	c.t.Helper()
	s, id := sortOf(i), orderName(i)
	v := c.child.describe("order", id)
	fates := map[string]int{}
	for _, r := range v.History {
		fates[string(r.Event.Kind)+"."+r.Event.Type+" "+string(r.Fate)]++
	}
	want := map[string]int{"event.OrderPlaced handled": 1}
	if s.paid {
		want["event.PaymentReceived handled"] = 1
	} else {
		want["timer.pay_by handled"] = 1
	}
	got := maps.Clone(fates)
	maps.DeleteFunc(got, func(k string, _ int) bool { _, wanted := want[k]; return !wanted })
	if !maps.Equal(got, want) {
		c.t.Errorf("%s: %v, want %v", id, fates, want)
	}
	if s.name == "doubled" && (fates["event.OrderPlaced duplicate"] < 1 || fates["event.PaymentReceived duplicate"] < 1) {
		c.t.Errorf("%s: its doubles were not recognised: %v", id, fates)
	}
	if fired := field(v.Instance.State, "fired"); !s.paid && fired != "1" {
		c.t.Errorf("%s: its timer fired %s times", id, fired)
	}
}
