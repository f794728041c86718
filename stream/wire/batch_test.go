package wire

import (
	"fmt"
	"strings"
	"testing"

	"edda"
)

const (
	batchType = ceBatch + "+json"
	paid      = `{"specversion":"1.0","id":"7","source":"/shop","type":"com.shop.Order.Paid","subject":"O7","data":{"n":1}}`
)

// seen is a short form of an event.
func seen(ev edda.Event) string {
	if ev.Malformed != "" {
		return fmt.Sprintf("%s %s: %s %s %s", ev.Number(), ev.ID, ev.Malformed, ev.Error, ev.Payload)
	}
	return fmt.Sprintf("%s %s %s.%s %s %s", ev.Number(), ev.ID, ev.AggregateType, ev.Type, ev.AggregateID, ev.Payload)
}

func TestABatchIsReadAsItsMembers(t *testing.T) {
	const subject = "tenant.acme.aggregate.Order.O1"
	own := func(body string, headers ...string) Message {
		m := message(subject, body, append(headers, headerContentType, batchType)...)
		m.Stream, m.Seq, m.Time = AggregateEvents, 5, storedAt
		return m
	}
	others := func(body string, headers ...string) Message {
		return mappedOf("shop.orders.O1", body, append(headers, headerContentType, batchType)...)
	}
	for name, c := range map[string]struct {
		codec   Codec
		message Message
		want    []string
	}{
		"one": {Codec{}, own("[" + paid + "]"), []string{`5:1 /shop 7 Order.Paid O1 {"n":1}`}},
		"in order, by their own ids": {Codec{}, own("["+paid+","+strings.Replace(paid, `"7"`, `"3"`, 1)+"]", "Nats-Msg-Id", "m"), []string{
			`5:1 /shop 7 Order.Paid O1 {"n":1}`, `5:2 /shop 3 Order.Paid O1 {"n":1}`}},
		"bad members among them": {Codec{}, own(`[1,` + paid + `,{"specversion":"1.0"}, ` + strings.Replace(paid, `"data"`, `"tenantid":"other","data"`, 1) + `]`), []string{
			`5:1 AGGREGATE_EVENTS:5:1: undecodable subject ` + subject + `: the CloudEvent cannot be read: specversion: `,
			`5:2 /shop 7 Order.Paid O1 {"n":1}`,
			`5:3 AGGREGATE_EVENTS:5:3: no-type subject ` + subject + `: the CloudEvent has no type "{\"specversion\":\"1.0\"}"`,
			`5:4 AGGREGATE_EVENTS:5:4: tenant subject ` + subject + `: the body says tenant "other", the subject "acme" `}},
		"a bad member of a message with an id": {Codec{}, own(`[1]`, "Nats-Msg-Id", subject+" m"), []string{`5:1 m:1: undecodable `}},
		"a stream of others":                   {mapping(t, MappingOptions{}), others("[" + paid + "]"), []string{`17:1 /shop 7 orders.Paid  {"n":1}`}},
		"a bad member in a stream of others":   {mapping(t, MappingOptions{}), others("[" + paid + ",1]"), []string{`17:1 /shop 7 `, `17:2 ORDERS:17:2@1772366400000: undecodable `}},
		"attributes from the body and the subject": {mapping(t, MappingOptions{ID: "=body.data.n", AggregateID: "=body.subject", AggregateType: "=tokens[1]"}),
			others("[" + paid + "," + strings.Replace(paid, `"n":1`, `"n":2`, 1) + "]"), []string{`17:1 ORDERS 1 orders.Paid O7 {"n":1}`, `17:2 ORDERS 2 orders.Paid O7 {"n":2}`}},
		"an id that all members share": {mapping(t, MappingOptions{ID: `=headers["Nats-Msg-Id"]`}), others("["+paid+","+paid+"]", "Nats-Msg-Id", "m"), []string{
			`17:1 ORDERS m:1 `, `17:2 ORDERS m:2 `}},
		"none":               {Codec{}, own(" [] "), []string{`5 AGGREGATE_EVENTS:5: undecodable subject ` + subject + `: the batch has no CloudEvents: `}},
		"no list":            {Codec{}, own(paid), []string{`5 AGGREGATE_EVENTS:5: undecodable subject ` + subject + `: the batch is not a list of CloudEvents: its body is a JSON object`}},
		"no JSON":            {Codec{}, own("[1"), []string{`5 AGGREGATE_EVENTS:5: undecodable subject ` + subject + `: the batch is not a list of CloudEvents: unexpected end`}},
		"null":               {Codec{}, own("null"), []string{`5 AGGREGATE_EVENTS:5: undecodable subject ` + subject + `: the batch is null: `}},
		"too many":           {Codec{}, own("[" + strings.Repeat("1,", MaxMembers) + "1]"), []string{`5 AGGREGATE_EVENTS:5: too-large subject ` + subject + `: the batch has 1001 CloudEvents, allowed are 1000: `}},
		"too large":          {Codec{MaxPayload: 20}, own("[" + paid + "]"), []string{`5 AGGREGATE_EVENTS:5: too-large subject ` + subject + `: the body has `}},
		"no list, of others": {mapping(t, MappingOptions{}), others("{}"), []string{`17 ORDERS:17@1772366400000: undecodable subject shop.orders.O1: source orders: the batch is not a list`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.codec.Split(c.message)
			if len(got) != len(c.want) {
				t.Fatalf("%d events, want %d", len(got), len(c.want))
			}
			for i, m := range got {
				ev := c.codec.Event(m)
				if !strings.HasPrefix(seen(ev), c.want[i]) {
					t.Errorf("got  %s\nwant %s", seen(ev), c.want[i])
				}
				if ev.Stream != c.message.Stream || !ev.Time.Equal(storedAt) || ev.More {
					t.Errorf("%+v", ev)
				}
			}
		})
	}
}

// TestOnlyAMessageOfEventsIsABatch: a signal may be called anything, and keeps its message to itself.
func TestOnlyAMessageOfEventsIsABatch(t *testing.T) {
	for _, m := range []Message{
		message("tenant.acme.workflow.order.O1", "[1,2]", headerContentType, batchType),
		message("tenant.acme.effect_result.ship.c1", "[1,2]", headerContentType, batchType),
		message("nonsense", "[1,2]", headerContentType, batchType),
		message("tenant.acme.aggregate.Order.O1", "[1,2]", headerContentType, "application/json"),
		message("tenant.acme.aggregate.Order.O1", "[1,2]"),
	} {
		if n := len(Codec{}.Members(m)); n != 0 {
			t.Errorf("%s has %d members", m.Subject, n)
		}
	}
	fact := message("tenant.acme.workflow_event.order.O1", "["+paid+"]", headerContentType, batchType)
	if list := (Codec{}).Members(fact); len(list) != 1 || (Codec{}).Event(list[0]).ID != "7" {
		t.Errorf("a batch of facts has %d members", len(list))
	}
}

// TestAMemberKeepsTheHeadersOfItsBatch: a mapping may read the tenant there, and a trace is there.
func TestAMemberKeepsTheHeadersOfItsBatch(t *testing.T) {
	m := mappedOf("shop.orders.O1", "["+paid+"]", "Content-Type", batchType, "X-Tenant", "acme", "traceparent", "00-x")
	c := mapping(t, MappingOptions{Tenant: `=headers["X-Tenant"]`, Correlation: `=headers["content-type"]`})
	ev := c.Event(c.Split(m)[0])
	if ev.Tenant != "acme" || ev.Trace != "00-x" || ev.Correlation != "application/cloudevents+json" {
		t.Errorf("%+v", ev)
	}
	if m.Header.Get("Content-Type") != batchType {
		t.Error("the message itself was changed")
	}
}

// TestAMessageThatIsNoBatchCostsNothingMore than a look at its headers.
func TestAMessageThatIsNoBatchCostsNothingMore(t *testing.T) {
	m := message("tenant.acme.aggregate.Order.O1", readableEvent, "Nats-Msg-Id", "1")
	if n := testing.AllocsPerRun(100, func() {
		if (Codec{}).Members(m) != nil {
			t.Error("it has members")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

const readableEvent = `{"event_id":"e1","event_type":"Paid"}`
