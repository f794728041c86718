//go:build !race

package systemtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
)

// tortureSagas use everything that can be lost or doubled: effects in a row and
// at once, undo, timers, also such as repeat, asks that nobody answers and that somebody
// does, parked, held and late events, commands, facts, a child.
// What becomes of an order depends on its events alone, never on how fast their
// effects are answered: so that every run of the same events ends the same. A gift is
// called once at most: nobody may ever know whether it was, and it ends the same all the same.
// The beat that was missed comes all the same, so that what it sets off has the same ids.
// A visit is kept for 2 s: longer than a producer takes to send again. The two
// versions of the tally differ in what they count, and in nothing that goes out.
var tortureSagas = `saga: order
version: 1
key: event.order_id
from: all
state: {fired: 0, notes: 0}
on:
  OrderPlaced:
    start: true
    set: {order: =event.order_id}
    do:
      - {timer: pay_by, after: =event.patience}
      - {command: Order.Acknowledge, to: =key}
      - {event: Opened, with: {order: =key}}
  PaymentReceived:
    park: 1000h
    do:
      - cancel: pay_by
      - seq:
          - {effect: reserve, with: {order: =key}, undo: {effect: release, with: {order: =key}}}
          - {effect: charge, with: {order: =key}, undo: {effect: refund, with: {order: =key}}}
          - {effect: ship, with: {order: =key}}
          - {command: Order.Complete, to: =key}
          - done: {tracking: =step.ship.result.tracking}
  PaymentReturned: {park: 2s}
  NoteAdded: {when: event.loud, set: {notes: "=state.notes + 1"}}
  Weighed: {set: {weight: "=event.weight / 2"}}
  OrderWithdrawn: {do: [{done: withdrawn}]}
  timer.pay_by: {set: {fired: "=state.fired + 1"}, do: [{fail: not_paid}]}
  saga.failed: {do: [{command: Order.Cancel, to: =key, with: {reason: =saga.reason}}]}
---
saga: nudge
version: 1
key: event.order_id
from: all
state: {n: 0}
on:
  NudgeAsked: {start: true, do: [{timer: nudge, after: 300ms}]}
  timer.nudge:
    set: {n: "=state.n + 1"}
    do:
      - {command: Order.Nudge, to: =key, with: {n: =state.n}}
      - {timer: nudge, after: 300ms, if: state.n < 3}
      - {done: =state.n, if: state.n >= 3}
---
saga: beat
version: 1
key: event.order_id
from: all
state: {n: 0}
on:
  BeatAsked: {start: true, do: [{timer: beat, every: 200ms, catchup: all}]}
  timer.beat:
    set: {n: "=state.n + 1"}
    do:
      - {command: Order.Beat, to: =key, with: {n: =state.n}}
      - {done: =state.n, if: state.n >= 3}
---
saga: approval
version: 1
key: event.order_id
from: all
on:
  ApprovalAsked: {start: true, do: [{ask: clerk, to: =key, due: 300ms, with: {choices: [yes, no]}}]}
  clerk.timeout: {do: [{command: Order.Escalate, to: =key}, {ask: boss, to: =key, with: {choices: [yes, no]}}]}
  boss.yes: {do: [{command: Order.Approve, to: =key}, {done: =step.boss.result.choice}]}
---
saga: basket
version: 1
key: event.order_id
from: all
on:
  BasketFilled:
    start: true
    do:
      - seq:
          - {each: event.items, as: item, id: picks, do: [{effect: pick, id: pick, with: {order: =key, item: =item}}]}
          - {start: parcel, id: box, key: 'key + "-box"', with: {order_id: =key}}
          - {command: Order.Complete, to: =key}
          - done: {box: =step.box.result.box}
---
saga: parcel
version: 1
key: event.order_id
from: all
on:
  ParcelAsked: {start: true, do: [{seq: [{effect: pack, with: {order: =key}}, {done: {box: =key}}]}]}
---
saga: packing
version: 1
key: event.order_id
from: all
on:
  PackingAsked: {start: true, do: [{timer: pack, after: 150ms}]}
  timer.pack:
    do:
      - seq:
          - {effect: reserve, with: {order: =key}, undo: {effect: release, with: {order: =key}}}
          - {effect: charge, with: {order: =key}, undo: {effect: refund, with: {order: =key}}}
          - {effect: ship, with: {order: =key}}
          - {command: Order.Complete, to: =key}
          - done: {tracking: =step.ship.result.tracking}
---
saga: gift
version: 1
key: event.order_id
from: all
on:
  GiftAsked: {start: true, do: [{effect: gift, with: {order: =key}}]}
  gift.ok: {do: [{done: seen}]}
  gift.failed: {do: [{done: seen}]}
  gift.timeout: {do: [{done: seen}]}
---
saga: visit
version: 1
key: event.order_id
from: all
retention: {done: 2s}
on:
  VisitPaid: {start: true, do: [{command: Order.Greet, to: =key}, {done: seen}]}
` + fmt.Sprintf(tallySaga, 1) + fmt.Sprintf(tallySaga, 2)

// tallySaga waits a while behind the last event of its order, so that what becomes
// of that does not depend on how soon it was sent. %[1]d is the version.
const tallySaga = `---
saga: tally
version: %[1]d
key: event.order_id
from: all
state: {n: 0, added: 0, fired: 0}
on:
  TallyOpened: {start: true, do: [{command: Order.Open, to: =key}]}
  TallyAdded:
    set: {n: "=state.n + %[1]d * event.n", added: "=state.added + 1"}
    do: [{timer: close, after: 3s, if: state.added == 2}]
  timer.close:
    set: {fired: "=state.fired + 1"}
    do: [{seq: [{effect: count, with: {order: =key}}, {command: Order.Close, to: =key}, {done: {n: =state.n}}]}]
`

// tortureEffect gives up only long after every outage of a run.
const tortureEffect = `---
effect: %[1]s
http: {method: POST, url: "%[2]s/%[1]s", body: =payload}
ok: status == 200
fail: status == 409
result: =body
timeout: 5s
retry: {max: 1000, backoff: 10ms..500ms}
`

var tortureEffects = []string{"reserve", "charge", "ship", "refund", "release", "pick", "pack", "count", atMostOnce}

// atMostOnce is the effect that is claimed before it is called, and never called again.
const atMostOnce = "gift"

func tortureManifest(url string) string {
	text := tortureSagas
	for _, e := range tortureEffects {
		text += fmt.Sprintf(tortureEffect, e, url)
		if e == atMostOnce {
			text += "delivery: at_most_once\n"
		}
	}
	return text
}

// said is one event that an order sends, and what is to become of it.
type said struct {
	name    string
	payload string // a JSON object without its braces; %s is the patience
	fate    edda.Fate
}

// lot is what an order is to meet.
type lot struct {
	name     string
	saga     string
	says     []said
	twice    bool
	ends     edda.Status // empty: there is no instance
	reason   string
	effects  []string // calls that have an effect
	mixed    bool     // in any order
	perhaps  bool     // or none
	commands []string // to the order's aggregate, in order
	gone     bool     // outlives its retention
}

// Events that several lots send.
var (
	placed = said{"OrderPlaced", `"patience":"1000h"`, edda.FateHandled}
	hasty  = said{"OrderPlaced", `"patience":"%s"`, edda.FateHandled}
	paid   = said{"PaymentReceived", `"amount":1`, edda.FateHandled}
	noted  = said{"NoteAdded", `"loud":true`, edda.FateHandled}
	added  = said{"TallyAdded", `"n":5`, edda.FateHandled}
	// weighed holds its key until an operator has mended it, and unread is a message
	// of which nobody can read more than where it goes.
	weighed = said{"Weighed", `"weight":"heavy"`, edda.FateDead}
	mended  = said{"Weighed", `"weight":"heavy"`, edda.FateHandled}
	unread  = said{"PaymentReceived", "", edda.FateHandled}
)

var (
	delivered = []string{"reserve", "charge", "ship"}
	completed = []string{"Acknowledge", "Complete"}
)

// lots take turns.
var lots = []lot{
	{name: "shipped", saga: "order", says: []said{placed, paid}, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "refused", saga: "order", says: []said{placed, paid}, ends: edda.StatusUndone, reason: "ship.failed",
		effects: []string{"reserve", "charge", "ship", "refund", "release"}, commands: []string{"Acknowledge", "Cancel"}},
	{name: "unpaid", saga: "order", says: []said{hasty}, ends: edda.StatusFailed, reason: "not_paid", commands: []string{"Acknowledge", "Cancel"}},
	{name: "doubled", saga: "order", says: []said{placed, paid}, twice: true, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "early", saga: "order", says: []said{paid, placed}, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "orphan", saga: "order", says: []said{{"PaymentReturned", `"amount":1`, edda.FateDead}}},
	{name: "noted", saga: "order", says: []said{placed, {"NoteAdded", `"loud":false`, edda.FateGuarded}, noted, paid}, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "withdrawn", saga: "order", says: []said{placed, {"OrderWithdrawn", `"why":"no"`, edda.FateHandled}, {paid.name, paid.payload, edda.FateLate}},
		ends: edda.StatusDone, commands: []string{"Acknowledge"}},
	{name: "admired", saga: "order", says: []said{placed, {"OrderAdmired", `"by":"me"`, edda.FateIgnored}, paid}, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "heavy", saga: "order", says: []said{placed, weighed, noted, paid}, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "nudged", saga: "nudge", says: []said{{"NudgeAsked", `"n":0`, edda.FateHandled}}, ends: edda.StatusDone, commands: []string{"Nudge", "Nudge", "Nudge"}},
	{name: "beaten", saga: "beat", says: []said{{"BeatAsked", `"n":0`, edda.FateHandled}}, ends: edda.StatusDone, commands: []string{"Beat", "Beat", "Beat"}},
	{name: "asked", saga: "approval", says: []said{{"ApprovalAsked", `"n":0`, edda.FateHandled}}, ends: edda.StatusDone, commands: []string{"Escalate", "Approve"}},
	{name: "filled", saga: "basket", says: []said{{"BasketFilled", `"items":[1,2,3]`, edda.FateHandled}}, ends: edda.StatusDone,
		effects: []string{"pack", "pick", "pick", "pick"}, mixed: true, commands: []string{"Complete"}},
	{name: "mended", saga: "order", says: []said{placed, mended, noted, paid}, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "garbled", saga: "order", says: []said{placed, unread}, ends: edda.StatusDone, effects: delivered, commands: completed},
	{name: "visited", saga: "visit", says: []said{{"VisitPaid", `"n":0`, edda.FateHandled}}, ends: edda.StatusDone, commands: []string{"Greet"}, gone: true},
	{name: "tallied", saga: "tally", says: []said{{"TallyOpened", `"n":0`, edda.FateHandled}, added, added}, ends: edda.StatusDone,
		effects: []string{"count"}, commands: []string{"Open", "Close"}},
	{name: "given", saga: "gift", says: []said{{"GiftAsked", `"n":0`, edda.FateHandled}}, ends: edda.StatusDone, effects: []string{atMostOnce}, perhaps: true},
	{name: "packed", saga: "packing", says: []said{{"PackingAsked", `"n":0`, edda.FateHandled}}, ends: edda.StatusDone, effects: delivered, commands: []string{"Complete"}},
}

func lotOf(i int) lot { return lots[i%len(lots)] }

// lotNamed is the lot of an order.
func lotNamed(order string) lot {
	name, _, _ := strings.Cut(order, "-")
	i := slices.IndexFunc(lots, func(l lot) bool { return l.name == name })
	if i < 0 {
		return lot{saga: "order"}
	}
	return lots[i]
}

func tortureName(i int) string { return fmt.Sprintf("%s-%d", lotOf(i).name, i) }

// shopStream is a stream that the shop had before: every third round of lots is published there, as
// plain JSON, which shopSource reads.
const (
	shopStream = "SHOP"
	shopSource = `sources: {shop: {stream: SHOP, id: "=body.event", type: "=body.name", aggregate: {type: Order, id: "=tokens[1]"}, data: "=body.payload"}}` + "\n"
)

var shopSubjects = []string{"shop.>"}

// shopMessage writes an event of an order as the shop does.
func shopMessage(id, event, name, payload string) *nats.Msg {
	return &nats.Msg{Subject: "shop." + id, Data: fmt.Appendf(nil, `{"event":%q,"name":%q,"payload":%s}`, event, name, payload)}
}

// eventID names the n-th event of an order.
func eventID(order string, n int) string { return fmt.Sprintf("%s-%d", order, n) }

// batched tells whether an order's events are members of a batch: those of every third round of lots.
func batched(i int) bool { return i/len(lots)%3 == 1 && !slices.Contains(lotOf(i).says, unread) }

// memberOf writes an event of an order as a CloudEvent that says whose it is.
func memberOf(id, event, name, payload string) *nats.Msg {
	m := messageOf(1, id, event, name, payload)
	m.Data = bytes.Replace(m.Data, []byte(`"data":`), fmt.Appendf(nil, `"aggregateid":%q,"data":`, id), 1)
	return m
}

// batchOf is the message with the events of several orders.
func batchOf(members []*nats.Msg) *nats.Msg {
	m := nats.NewMsg("tenant.default.aggregate.Order.several")
	m.Header.Set("Content-Type", "application/cloudevents-batch+json")
	list := make([][]byte, len(members))
	for i, member := range members {
		list[i] = member.Data
	}
	m.Data = slices.Concat([]byte("["), bytes.Join(list, []byte(",")), []byte("]"))
	return m
}

// ordered are the messages of one order.
func ordered(i int, rnd *rand.Rand) (out []*nats.Msg) {
	l, id := lotOf(i), tortureName(i)
	for n, s := range l.says {
		fields := s.payload
		if strings.Contains(fields, "%s") {
			fields = fmt.Sprintf(fields, time.Duration(300+rnd.IntN(2000))*time.Millisecond)
		}
		payload := fmt.Sprintf(`{"order_id":%q,%s}`, id, fields)
		m := messageOf(i/len(lots)+n, id, eventID(id, n), s.name, payload)
		if i/len(lots)%3 == 2 && !slices.Contains(l.says, unread) { // all of an order, whose events keep their order
			m = shopMessage(id, eventID(id, n), s.name, payload)
		}
		if batched(i) {
			m = memberOf(id, eventID(id, n), s.name, payload)
		}
		if s == unread {
			m = messageOf(0, id, "", "", "{")
		}
		if out = append(out, m); l.twice {
			out = append(out, m)
		}
	}
	return out
}

// producer publishes orders as they are released, through a client of its own
// that outlives the server.
type producer struct {
	t        testing.TB
	js       jetstream.JetStream
	rnd      *rand.Rand
	released chan int // how many orders more; closed when there are no more
	pace     time.Duration
	within   time.Duration // for the stream to take a message
	done     sync.WaitGroup
	sent     int // orders; read after done
	messages int
}

func produce(t testing.TB, url string, rnd *rand.Rand, pace time.Duration) *producer {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return produceTo(t, js, rnd, pace, soon)
}

func produceTo(t testing.TB, js jetstream.JetStream, rnd *rand.Rand, pace, within time.Duration) *producer {
	p := &producer{t: t, js: js, rnd: rnd, released: make(chan int, 1024), pace: pace, within: within}
	p.done.Go(p.run)
	return p
}

func (p *producer) run() {
	pace := time.NewTicker(p.pace)
	defer pace.Stop()
	for n := range p.released {
		var members []*nats.Msg
		for range n {
			messages := ordered(p.sent, p.rnd)
			if batched(p.sent) {
				members, messages = append(members, messages...), nil
			}
			for _, m := range messages {
				<-pace.C
				if !p.publish(m) {
					return
				}
			}
			p.sent++
		}
		if len(members) > 0 && !p.publish(batchOf(members)) {
			return
		}
	}
}

// publish tells whether the stream has the message.
func (p *producer) publish(m *nats.Msg) bool {
	if err := publishWithin(p.within, p.js, m); err != nil {
		p.t.Error(err)
		return false
	}
	p.messages++
	return true
}

// finish waits until everything that was released is sent.
func (p *producer) finish() {
	close(p.released)
	p.done.Wait()
}

// mall is the world that effects call: a shop that answers late, sometimes with a 503, refuses to
// ship what is to be refused, and may be shut for a while.
type mall struct {
	mu   sync.RWMutex // guards shop
	shop *tortureShop
}

// tortureShop is one run's.
type tortureShop struct {
	*shop
	mu    sync.Mutex // guards what follows
	rnd   *rand.Rand
	shut  bool
	began map[string][]time.Time // of every call, by idempotency key
}

func newTortureShop(seed uint64) *tortureShop {
	s := &tortureShop{shop: newShop(), rnd: rand.New(rand.NewPCG(seed, 3)), began: map[string][]time.Time{}}
	for _, e := range tortureEffects {
		s.answer(e, s.status)
	}
	return s
}

func (s *tortureShop) status(c call) int {
	s.mu.Lock()
	s.began[c.Key] = append(s.began[c.Key], time.Now())
	late, busy := time.Duration(s.rnd.IntN(20))*time.Millisecond, s.rnd.IntN(20) == 0 || s.shut
	s.mu.Unlock()
	<-time.After(late)
	switch {
	case busy:
		return http.StatusServiceUnavailable
	case c.Effect == "ship" && strings.HasPrefix(c.Order, "refused"):
		return http.StatusConflict
	}
	return http.StatusOK
}

// close lets every call fail until it is opened again.
func (s *tortureShop) close(shut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = shut
}

// ServeHTTP is the present run's shop.
func (m *mall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.RLock()
	s := m.shop
	m.mu.RUnlock()
	s.ServeHTTP(w, r)
}

func (m *mall) open(s *tortureShop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shop = s
}

// callsOf lists, by order, the effects that happened, in order: the shop heeds
// the idempotency key. Again counts calls that came after a definite answer.
func (s *tortureShop) callsOf() (out map[string][]string, again int) {
	out, seen := map[string][]string{}, map[string]bool{}
	for _, c := range s.all() {
		k := c.Effect + " " + c.Key
		switch {
		case c.Status == http.StatusServiceUnavailable: // no effect: to be called again
		case seen[k]:
			again++
		default:
			seen[k] = true
			order := strings.TrimSuffix(c.Order, "-box")
			out[order] = append(out[order], c.Effect)
		}
	}
	return out, again
}

// wants compares two lists, where any order will do sorted.
func (l lot) wants(got []string) bool {
	if l.mixed {
		got = slices.Sorted(slices.Values(got))
	}
	return slices.Equal(got, l.effects) || l.perhaps && len(got) == 0
}
