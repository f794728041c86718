package costbudget

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/effects/httpeffect"
	"edda/manifests"
	"edda/saga"
	"edda/stream/wire"
)

//go:embed order.yaml
var orderText string

// orderBytes is the size of an order's payload.
const orderBytes = 305

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// order is the payload of one, of orderBytes bytes.
func order(id string) []byte {
	head := fmt.Sprintf(`{"order_id":%q,"customer":"c-1042","items":[{"sku":"A-1","quantity":2,"price":1250},{"sku":"B-7","quantity":1,"price":499}],"currency":"EUR","address":"`, id)
	const tail = `"}`
	return []byte(head + strings.Repeat("x", orderBytes-len(head)-len(tail)) + tail)
}

// orderID scatters the keys of orders, as people's do.
func orderID(i int) string { return fmt.Sprintf("%016x", uint64(i+1)*0x9E3779B97F4A7C15) }

// placed is the message of an order, as a producer publishes it.
func placed(id string) wire.Message {
	return wire.Message{
		Subject: "tenant.acme.aggregate.Order." + id, Stream: "AGGREGATE_EVENTS", Seq: 7, Time: noon,
		Data: fmt.Appendf(nil, `{"event_id":"018f2c6e-7b1a-7000-8000-%.12s","tenant_id":"acme","aggregate_type":"Order","aggregate_id":%q,"event_type":"OrderPlaced","timestamp":"2026-01-01T00:00:00Z","payload":%s}`, id, id, order(id)),
	}
}

func parse(tb testing.TB) *manifests.File {
	tb.Helper()
	f, problems := manifests.Parse("order.yaml", []byte(strings.ReplaceAll(orderText, "ADDRESS", "http://effects.example")))
	if problems.Failed() {
		tb.Fatal(problems)
	}
	return f
}

func program(tb testing.TB) *saga.Set {
	tb.Helper()
	p, problems := saga.Compile(parse(tb).Sagas[0], saga.Options{})
	if problems.Failed() {
		tb.Fatal(problems)
	}
	set, err := saga.NewSet(p)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

func effect(tb testing.TB, name string) *effects.Effect {
	tb.Helper()
	for _, m := range parse(tb).Effects {
		e, problems := effects.Compile(m, map[string]effects.ProviderKind{"http": httpeffect.Kind()})
		if problems.Failed() {
			tb.Fatal(problems)
		}
		if e.Name() == name {
			return e
		}
	}
	tb.Fatalf("there is no effect %s", name)
	return nil
}

// story is one order from its placing to its end: the cell before each event,
// the event, and what it changed.
type story struct {
	cells  []edda.Cell
	events []edda.Event
	made   []edda.Transition
	last   edda.Cell
}

// tell applies an order and the results of its effects.
func tell(tb testing.TB, set *saga.Set, id string) story {
	tb.Helper()
	return tellOf(tb, set, id, placed(id))
}

// tellOf is tell of a message that places the order.
func tellOf(tb testing.TB, set *saga.Set, id string, m wire.Message) story {
	tb.Helper()
	var s story
	ev := wire.Codec{}.Event(m)
	for {
		s.cells, s.events = append(s.cells, s.last), append(s.events, ev)
		cell, made := set.Apply(s.last, target(tb, set, ev), ev)
		if len(made) != 1 || made[0].Fate != edda.FateHandled {
			tb.Fatalf("%s of %s was not handled: %+v", ev.Type, id, made)
		}
		s.last, s.made = cell, append(s.made, made[0])
		if cell.Instance.Status.Finished() {
			return s
		}
		ev = answered(tb, made[0].Work[0])
	}
}

// first is the transition that begins an order.
func first(tb testing.TB, set *saga.Set, id string) edda.Transition {
	tb.Helper()
	ev := wire.Codec{}.Event(placed(id))
	_, made := set.Apply(edda.Cell{}, target(tb, set, ev), ev)
	if len(made) != 1 || made[0].Fate != edda.FateHandled || len(made[0].Work) != 1 {
		tb.Fatalf("%s was not begun: %+v", id, made)
	}
	return made[0]
}

func target(tb testing.TB, set *saga.Set, ev edda.Event) saga.Target {
	tb.Helper()
	targets := set.Route(ev)
	if len(targets) != 1 {
		tb.Fatalf("%s goes to %d keys", ev.Type, len(targets))
	}
	return targets[0]
}

// answered is the result of an effect's command, through the wire.
func answered(tb testing.TB, w edda.Work) edda.Event {
	tb.Helper()
	m := resultMessage(tb, w)
	ev := wire.Codec{}.Event(m)
	if ev.Malformed != "" {
		tb.Fatal(ev.Error)
	}
	return ev
}

func resultMessage(tb testing.TB, w edda.Work) wire.Message {
	tb.Helper()
	m, err := wire.Codec{}.Result(resultOf(w))
	if err != nil {
		tb.Fatal(err)
	}
	return wire.Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: "EFFECT_RESULTS", Seq: 8, Time: w.Time.Add(time.Second)}
}

func resultOf(w edda.Work) effects.Result {
	metadata, _ := json.Marshal(map[string]any{"saga": w.From.Saga, "key": w.From.Correlation, "step": w.Step})
	return effects.Result{
		Tenant: w.From.Tenant, CommandID: w.ID, Effect: w.Name, Outcome: edda.Succeeded, Attempts: 1, Time: w.Time.Add(time.Second),
		Payload: json.RawMessage(`{"id":"018f2c6e-7b1a-7000-8000-000000000001","status":"accepted"}`), Metadata: metadata,
	}
}
