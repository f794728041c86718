package systemtest

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"edda"
	"edda/engine"
	"edda/manifests"
)

// embedded reads examples that the binary carries.
func embedded(t testing.TB, names ...string) (texts []string) {
	t.Helper()
	for _, name := range names {
		text, err := fs.ReadFile(manifests.Examples(), name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

func order(id string) string {
	return fmt.Sprintf(`{"order_id":%q,"customer_id":"C1","items":[{"sku":"a","qty":1,"price":7}]}`, id)
}

func payment(id string) string {
	return fmt.Sprintf(`{"order_id":%q,"payment_id":"P-%s","amount":7}`, id, id)
}

func TestOrderPaidInTimeIsShipped(t *testing.T) {
	bothWays(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		w.send("e1", "OrderPlaced", "O1", order("O1"))
		w.send("e2", "PaymentReceived", "O1", payment("O1"))
		w.ends("order", "O1", edda.StatusDone)
		w.idle()
		same(t, "calls", w.shop.effects("O1"), "reserve_stock", "ship")
		same(t, "commands", w.gateway.of("O1"), "Payment.Request", "Order.Complete")
		if got := field(w.instance("order", "O1").Result, "tracking"); got != "Z-O1" {
			t.Errorf("the result's tracking is %q", got)
		}
	})
}

// waitingCost is how many messages a second a saga that waits may cost its
// server: the looks at the ends of the streams, the lease, the heartbeats.
const waitingCost = 10

func TestOrderNotPaidInThirtyMinutesIsCancelled(t *testing.T) {
	inBubble(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		placed := time.Now()
		w.send("e1", "OrderPlaced", "O1", order("O1"))
		w.until("the order is taken", func() bool { return w.status("order", "O1") == edda.StatusRunning })
		sent := w.messages()
		w.pass(placed.Add(30*time.Minute - time.Second))
		if got := w.status("order", "O1"); got != edda.StatusRunning {
			t.Fatalf("a second before its time the order is %s", got)
		}
		if n := w.messages() - sent; n > waitingCost*30*60 {
			t.Errorf("half an hour took %d messages", n)
		}
		w.ends("order", "O1", edda.StatusFailed)
		in := w.instance("order", "O1")
		if late := in.Ended.Sub(in.Started); late != 30*time.Minute || in.Reason != "not_paid" {
			t.Errorf("ended after %v because %q", late, in.Reason)
		}
		if late := time.Since(in.Ended); late > 50*time.Millisecond {
			t.Errorf("the timer fired %v late", late)
		}
		w.idle()
		same(t, "commands", w.gateway.of("O1"), "Payment.Request", "Order.Cancel")
		w.pass(time.Now().Add(5 * time.Minute))
		same(t, "commands a while later", w.gateway.of("O1"), "Payment.Request", "Order.Cancel")
	})
}

func TestPaymentStoredBeforeTheDeadlineComesBeforeItAfterDowntime(t *testing.T) {
	inBubble(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		placed := time.Now()
		w.send("e1", "OrderPlaced", "O1", order("O1"))
		w.send("f1", "OrderPlaced", "O2", order("O2"))
		w.until("the orders are taken", func() bool { return w.status("order", "O1") != "" && w.status("order", "O2") != "" })
		w.idle()
		w.pass(placed.Add(5 * time.Minute))
		w.stop()
		w.pass(placed.Add(29 * time.Minute))
		w.send("e2", "PaymentReceived", "O1", payment("O1"))
		w.stopNATS()
		w.pass(placed.Add(40 * time.Minute))
		w.startNATS()
		w.start()
		w.ends("order", "O1", edda.StatusDone)
		w.ends("order", "O2", edda.StatusFailed)
		w.idle()
		same(t, "calls for the order in time", w.shop.effects("O1"), "reserve_stock", "ship")
		same(t, "commands of the order not paid", w.gateway.of("O2"), "Payment.Request", "Order.Cancel")
	})
}

func TestUndoRunsInReverseOrderAroundAFailure(t *testing.T) {
	bothWays(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		w.shop.answer("ship", func(call) int { return http.StatusConflict })
		tries := 0
		w.shop.answer("release_stock", func(call) int { // one call at a time
			if tries++; tries < 3 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		w.send("e1", "OrderPlaced", "O1", order("O1"))
		w.send("e2", "PaymentReceived", "O1", payment("O1"))
		w.ends("order", "O1", edda.StatusUndone)
		w.idle()
		var names []string
		for _, c := range w.shop.all() {
			names = append(names, c.Effect)
		}
		same(t, "calls", names, "reserve_stock", "ship", "release_stock", "release_stock", "release_stock", "refund")
		same(t, "commands", w.gateway.of("O1"), "Payment.Request", "Order.Cancel")
		keys := map[string]bool{}
		for _, c := range w.shop.all() {
			keys[c.Effect+" "+c.Key] = true
		}
		if len(keys) != 4 {
			t.Errorf("%d idempotency keys for 4 effects: %v", len(keys), keys)
		}
	})
}

// poisonous fails on the event Bad, and counts Good.
const poisonous = `saga: counter
version: 1
key: event.k
state: {n: 0}
on:
  Good: {start: true, restart: true, set: {n: "=state.n + 1"}}
  Add: {set: {n: "=state.n + 1"}}
  Bad: {set: {n: "=event.n + 1 / event.text"}}
`

func TestPoisonHoldsItsKeyWhileOthersGoOn(t *testing.T) {
	inBubble(t, []string{poisonous}, func(w *world) {
		for _, k := range []string{"a", "b"} {
			w.send(k+"1", "Good", k, `{"k":"`+k+`"}`)
		}
		w.send("a2", "Bad", "a", `{"k":"a","n":1,"text":"x"}`)
		for _, k := range []string{"a", "b"} {
			w.send(k+"3", "Add", k, `{"k":"`+k+`"}`)
		}
		w.until("the other key is through", func() bool { return len(w.fates("b3")) > 0 })
		same(t, "the other key's event", w.fates("b3"), edda.FateHandled)
		same(t, "the poison", w.fates("a2"), edda.FateDead)
		same(t, "what comes behind it", w.fates("a3"), edda.FateHeld)
		if got := w.instance("counter", "a"); got.Held == "" || field(got.State, "n") != "1" {
			t.Errorf("held %q with n %s", got.Held, field(got.State, "n"))
		}
		// An operator drops the poison; what it held back is applied.
		out := w.act(edda.Event{Kind: edda.KindOperator, ID: "op1", Type: edda.VerbDrop, Key: edda.Key{Tenant: tenant, Saga: "counter", Correlation: "a"}})
		if out.Fate != edda.FateHandled {
			t.Errorf("drop: %+v", out)
		}
		if got := w.instance("counter", "a"); got.Held != "" || field(got.State, "n") != "2" {
			t.Errorf("after the drop: held %q with n %s", got.Held, field(got.State, "n"))
		}
	})
}

// act sends a message as the API does: it returns what became of it.
func (w *world) act(ev edda.Event) engine.EventResult {
	w.t.Helper()
	ev.Tenant = tenant
	out, err := w.running.engine.Await(context.Background(), tenant, ev.ID, func(ctx context.Context) error {
		_, err := w.running.publisher.Send(ctx, ev)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func TestDuplicateIsRecognisedByItsEventID(t *testing.T) {
	inBubble(t, []string{poisonous}, func(w *world) {
		w.send("g1", "Good", "a", `{"k":"a"}`)
		w.send("g2", "Add", "a", `{"k":"a"}`)
		w.send("g2", "Add", "a", `{"k":"a"}`)
		w.until("all came", func() bool { return len(w.fates("g2")) == 2 })
		same(t, "fates", w.fates("g2"), edda.FateHandled, edda.FateDuplicate)
		w.stop()
		w.start() // the instance remembers across restarts
		w.send("g2", "Add", "a", `{"k":"a"}`)
		w.until("the third came", func() bool { return len(w.fates("g2")) == 3 })
		same(t, "fates", w.fates("g2"), edda.FateHandled, edda.FateDuplicate, edda.FateDuplicate)
		if n := field(w.instance("counter", "a").State, "n"); n != "2" {
			t.Errorf("n is %s", n)
		}
	})
}

// family: a parent starts a child, which asks the shop; a signal hurries it.
const family = `saga: parent
version: 1
key: event.k
on:
  Begin: {start: true, do: [{start: child, key: "key + '-c'", with: {order: =key}}]}
  child.ok: {do: [{done: =event}]}
  child.failed: {do: [{fail: =event.reason}]}
---
saga: child
version: 1
state: {}
on:
  Born: {start: true, set: {order: =event.order}}
  signal.hurry: {do: [{effect: work, with: {order: =state.order}}]}
  work.ok: {do: [{done: {tracking: =event.tracking}}]}
---
effect: work
http: {method: POST, url: "http://shop.example/work", body: =payload}
result: =body
`

func TestChildSagaEndsItsParentAfterASignal(t *testing.T) {
	bothWays(t, []string{family}, func(w *world) {
		w.send("p1", "Begin", "K", `{"k":"K"}`)
		w.until("the child lives", func() bool { return w.status("child", "K-c") == edda.StatusRunning })
		out := w.act(edda.Event{Kind: edda.KindSignal, ID: "s1", Type: "hurry", Key: edda.Key{Tenant: tenant, Saga: "child", Correlation: "K-c"}})
		if out.Fate != edda.FateHandled || len(out.Outputs) != 1 || out.Outputs[0].Name != "work" {
			t.Errorf("the signal: %+v", out)
		}
		w.ends("parent", "K", edda.StatusDone)
		if got := field(w.instance("parent", "K").Result, "tracking"); got != "Z-K" {
			t.Errorf("the parent's result has tracking %q", got)
		}
		out = w.act(edda.Event{Kind: edda.KindSignal, ID: "s2", Type: "hurry", Key: edda.Key{Tenant: tenant, Saga: "child", Correlation: "nobody"}})
		if out.Fate != edda.FateDead || out.Dead == nil || out.Dead.Reason != edda.DeadNoInstance {
			t.Errorf("a signal for nobody: %+v", out)
		}
		w.idle()
	})
}

// often starts an instance every five minutes.
const often = `saga: sweep
version: 1
key: event.due
schedule: {often: {every: 5m, tenants: [acme], with: {order: S}}}
on:
  schedule.often: {start: true, do: [{seq: [{effect: work, with: {order: =event.order}}, {done: true}]}]}
---
effect: work
http: {method: POST, url: "http://shop.example/work", body: =payload}
`

func TestScheduleStartsEachDueTimeOnceAcrossRestarts(t *testing.T) {
	inBubble(t, []string{often}, func(w *world) {
		begin := time.Now()
		w.pass(begin.Add(11 * time.Minute))
		w.idle()
		first := len(w.shop.effects("S"))
		if first != 2 {
			t.Fatalf("%d starts in eleven minutes; %s", first, w.story())
		}
		w.stop()
		w.start()
		w.pass(time.Now().Add(time.Minute))
		if n := len(w.shop.effects("S")); n != first {
			t.Errorf("the restart started %d more", n-first)
		}
		w.stop()
		w.pass(begin.Add(32 * time.Minute)) // four are missed: catchup is last
		w.start()
		w.until("the missed one ran", func() bool { return len(w.shop.effects("S")) > first })
		w.idle()
		w.pass(time.Now().Add(time.Minute))
		if n := len(w.shop.effects("S")); n != first+1 {
			t.Errorf("%d starts after the downtime, want 1", n-first)
		}
	})
}

func TestDrainLeavesNothingInFlight(t *testing.T) {
	bothWays(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		const n = 200
		for i := range n {
			id := fmt.Sprintf("O%d", i)
			w.send("e"+id, "OrderPlaced", id, order(id))
			w.send("p"+id, "PaymentReceived", id, payment(id))
		}
		w.until("it is busy", func() bool { return len(w.shop.all()) > 0 })
		w.stop() // fails the test where a part does not stop in its time
		w.start()
		for i := range n {
			w.ends("order", fmt.Sprintf("O%d", i), edda.StatusDone)
		}
		w.idle()
		w.books(n)
	})
}

// books checks that every order was reserved, shipped and completed once.
func (w *world) books(n int) {
	w.t.Helper()
	keys := map[string]int{}
	for _, c := range w.shop.all() {
		keys[c.Effect+" "+c.Key]++
	}
	for k, times := range keys {
		if times != 1 {
			w.t.Errorf("%s was called %d times", k, times)
		}
	}
	for i := range n {
		id := fmt.Sprintf("O%d", i)
		same(w.t, "calls of "+id, w.shop.effects(id), "reserve_stock", "ship")
		same(w.t, "commands of "+id, w.gateway.of(id), "Payment.Request", "Order.Complete")
	}
}

func TestRestartInTheMiddleDoesNothingTwice(t *testing.T) {
	bothWays(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		const n = 60
		for i := range n {
			id := fmt.Sprintf("O%d", i)
			w.send("e"+id, "OrderPlaced", id, order(id))
			w.send("p"+id, "PaymentReceived", id, payment(id))
			if i%20 == 10 { // wherever it is: in the engine, the outbox, a call
				w.stop()
				w.stopNATS()
				w.startNATS()
				w.start()
			}
		}
		for i := range n {
			w.ends("order", fmt.Sprintf("O%d", i), edda.StatusDone)
		}
		w.idle()
		w.books(n)
		if errs := w.running.db.Check(context.Background()); len(errs) > 0 {
			t.Errorf("the store contradicts itself: %v", errs)
		}
	})
}

func TestAnswerDecidesALoan(t *testing.T) {
	text := `saga: loan
version: 1
key: event.k
on:
  Asked: {start: true, do: [{ask: approve, to: clerks, due: 20m, with: {choices: [yes, no]}}]}
  approve.yes: {do: [{done: granted}]}
  approve.no: {do: [{fail: declined}]}
  approve.timeout: {do: [{fail: nobody}]}
`
	text = strings.ReplaceAll(strings.ReplaceAll(text, "yes, no", `"yes", "no"`), "approve.no:", `"approve.no":`)
	inBubble(t, []string{text}, func(w *world) {
		for _, k := range []string{"A", "B", "C"} {
			w.send("l"+k, "Asked", k, `{"k":"`+k+`"}`)
		}
		w.until("all wait", func() bool { return w.status("loan", "C") == edda.StatusRunning })
		for k, choice := range map[string]string{"A": "yes", "B": "no"} {
			w.act(edda.Event{Kind: edda.KindAnswer, ID: "a" + k, Type: choice, Step: "approve", By: "ann", Key: edda.Key{Tenant: tenant, Saga: "loan", Correlation: k}})
		}
		w.pass(time.Now().Add(20*time.Minute + time.Second))
		w.ends("loan", "A", edda.StatusDone)
		w.ends("loan", "B", edda.StatusFailed)
		w.ends("loan", "C", edda.StatusFailed)
		reasons := []string{w.instance("loan", "B").Reason, w.instance("loan", "C").Reason}
		same(t, "reasons", reasons, "declined", "nobody")
	})
}

func TestMalformedMessagesBecomeDeadLettersAndTheStreamGoesOn(t *testing.T) {
	inBubble(t, []string{poisonous}, func(w *world) {
		subject := "tenant.acme.aggregate.Order.X"
		w.publish(subject, `{not json`)
		w.publish(subject, `{"event_id":"x2","payload":{"k":"a"}}`)
		w.publish(subject, `{"event_id":"x3","tenant_id":"other","event_type":"Good","payload":{"k":"a"}}`)
		w.publish(subject, `{"event_id":"x4","event_type":"Good","payload":{"k":""}}`)
		w.send("g1", "Good", "a", `{"k":"a"}`)
		w.until("the good one is through", func() bool { return len(w.fates("g1")) == 1 })
		letters, err := w.running.db.DeadLetters("", 10)
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, l := range letters {
			reasons = append(reasons, l.Reason)
		}
		slices.Sort(reasons)
		same(t, "reasons", reasons, edda.DeadNoKey, edda.DeadNoType, edda.DeadTenant, edda.DeadUndecodable)
	})
}

// messages is how many the server has received from everybody.
func (w *world) messages() int64 {
	w.t.Helper()
	v, err := w.nats.Server().(*server.Server).Varz(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return v.InMsgs
}

func TestACommandThatComesAgainIsNotCalledAgain(t *testing.T) {
	bothWays(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		w.send("e1", "OrderPlaced", "O1", order("O1"))
		w.send("e2", "PaymentReceived", "O1", payment("O1"))
		w.ends("order", "O1", edda.StatusDone)
		w.idle()
		ship := w.resultOf("ship")
		results := w.last("WORKFLOW_EVENTS")
		w.pass(time.Now().Add(time.Minute)) // the stream's duplicate window is over
		w.publish("tenant.acme.effect.ship."+ship.ID, fmt.Sprintf(`{"command_id":%q,"effect_name":"ship","payload":{},"metadata":%s}`, ship.ID, ship.Metadata))
		w.until("its result is told again", func() bool { return w.last("WORKFLOW_EVENTS") > results })
		w.pass(time.Now().Add(10 * time.Second))
		same(t, "calls", w.shop.effects("O1"), "reserve_stock", "ship")
		same(t, "commands", w.gateway.of("O1"), "Payment.Request", "Order.Complete")
	})
}

// last is a stream's last sequence.
func (w *world) last(name string) uint64 {
	w.t.Helper()
	s, err := w.js.Stream(context.Background(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}
