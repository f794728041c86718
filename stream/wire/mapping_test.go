package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"edda"
)

var storedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// mapping compiles the options for the source orders of the stream ORDERS.
func mapping(t *testing.T, o MappingOptions) Codec {
	t.Helper()
	o.Source, o.Stream, o.DefaultTenant = "orders", "ORDERS", "default"
	m, err := NewMapping(o)
	if err != nil {
		t.Fatal(err)
	}
	return Codec{Mappings: map[string]*Mapping{"ORDERS": m}}
}

func mappedOf(subject, body string, headers ...string) Message {
	m := Message{Subject: subject, Data: []byte(body), Header: nats.Header{}, Stream: "ORDERS", Seq: 17, Time: storedAt}
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	return m
}

func TestAMappingReadsPlainJSONAndCloudEvents(t *testing.T) {
	base := edda.Event{Kind: edda.KindEvent, ID: "ORDERS:17@1772366400000", Tenant: "default", Type: "created", AggregateType: "orders", Time: storedAt, Stream: "ORDERS", Seq: 17}
	with := func(change func(*edda.Event)) edda.Event {
		ev := base
		change(&ev)
		return ev
	}
	const structured = `{"specversion":"1.0","id":"7","source":"/hooks","type":"com.github.pull_request.opened","time":"2026-02-01T00:00:00Z","data":{"n":1}}`
	for name, c := range map[string]struct {
		options MappingOptions
		message Message
		want    edda.Event
	}{
		"defaults": {MappingOptions{}, mappedOf("shop.orders.created", ` {"a":1} `), with(func(ev *edda.Event) { ev.Payload = []byte(`{"a":1}`) })},
		"a Nats-Msg-Id": {MappingOptions{}, mappedOf("orders.created", `[1]`, "Nats-Msg-Id", "m 1", "traceparent", "00-x"),
			with(func(ev *edda.Event) { ev.ID, ev.Payload, ev.Trace = "ORDERS m 1", []byte(`[1]`), "00-x" })},
		"an empty body": {MappingOptions{}, mappedOf("orders.created", ""), base},
		"null":          {MappingOptions{}, mappedOf("orders.created", "null"), base},
		"one token":     {MappingOptions{}, mappedOf("created", "1"), with(func(ev *edda.Event) { ev.AggregateType, ev.Payload = "", []byte("1") })},
		"every key": {
			MappingOptions{ID: `=body.meta.id`, Type: `="com.shop." + tokens[2] + ".v2"`, AggregateType: "Order", AggregateID: `=tokens[1]`, Tenant: `=headers["X-Tenant"]`,
				Time: "=body.at", Correlation: "=body.n", Data: `={"body": body.data, "seq": seq, "time": time, "stream": stream, "subject": subject}`},
			mappedOf("orders.o-1.paid", `{"meta":{"id":"e1"},"at":"2026-02-01T01:00:00+01:00","n":12345678901,"data":{"x":1}}`, "X-Tenant", "acme"),
			with(func(ev *edda.Event) {
				ev.ID, ev.Type, ev.Version, ev.FullType, ev.AggregateType, ev.AggregateID = "ORDERS e1", "paid", 2, "com.shop.paid.v2", "Order", "o-1"
				ev.Tenant, ev.Timestamp, ev.Correlation = "acme", time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), "12345678901"
				ev.Payload = []byte(`{"body":{"x":1},"seq":17,"stream":"ORDERS","subject":"orders.o-1.paid","time":"2026-03-01T12:00:00.000Z"}`)
			}),
		},
		"a literal =": {MappingOptions{Type: "==odd"}, mappedOf("orders.created", "1"), with(func(ev *edda.Event) { ev.Type, ev.Payload = "=odd", []byte("1") })},
		"a full type that the subject has a part of": {MappingOptions{Type: "=body.t", AggregateType: "Order"}, mappedOf("orders.x", `{"t":"orders.paid"}`),
			with(func(ev *edda.Event) {
				ev.Type, ev.FullType, ev.AggregateType, ev.Payload = "paid", "orders.paid", "Order", []byte(`{"t":"orders.paid"}`)
			})},
		"a CloudEvent of another aggregate": {MappingOptions{AggregateType: "Order"}, mappedOf("orders.x", "1", "ce-specversion", "1.0", "ce-id", "7", "ce-source", "/x", "ce-type", "orders.paid"),
			with(func(ev *edda.Event) {
				ev.ID, ev.Type, ev.FullType, ev.AggregateType, ev.Payload = "/x 7", "paid", "orders.paid", "Order", []byte("1")
			})},
		"an unreadable time": {MappingOptions{Time: "=body"}, mappedOf("orders.created", `"yesterday"`), with(func(ev *edda.Event) { ev.Payload = []byte(`"yesterday"`) })},
		"a structured CloudEvent without a header": {MappingOptions{}, mappedOf("github.pull_request.2", structured), with(func(ev *edda.Event) {
			ev.ID, ev.Type, ev.FullType, ev.AggregateType = "/hooks 7", "opened", "com.github.pull_request.opened", "pull_request"
			ev.Timestamp, ev.Payload = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), []byte(`{"n":1}`)
		})},
		"a CloudEvent of another type": {MappingOptions{Type: "Heard"}, mappedOf("github.pull_request.2", structured), with(func(ev *edda.Event) {
			ev.ID, ev.Type, ev.AggregateType = "/hooks 7", "Heard", "pull_request"
			ev.Timestamp, ev.Payload = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), []byte(`{"n":1}`)
		})},
		"a binary CloudEvent, with keys of ours": {MappingOptions{AggregateID: "=body.n", Type: "=headers[\"ce-type\"]"},
			mappedOf("orders.x", `{"n":5}`, "ce-specversion", "1.0", "ce-id", "7", "ce-source", "/hooks", "ce-type", "orders.opened"), with(func(ev *edda.Event) {
				ev.ID, ev.Type, ev.AggregateID, ev.Payload = "/hooks 7", "opened", "5", []byte(`{"n":5}`)
			})},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, mapping(t, c.options).Event(c.message)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAMessageThatAMappingCannotReadSaysWhatItMustBe(t *testing.T) {
	for name, c := range map[string]struct {
		options      MappingOptions
		message      Message
		reason, text string
	}{
		"no JSON":                     {MappingOptions{}, mappedOf("orders.created", "hello"), edda.DeadUndecodable, `the body is not JSON`},
		"no JSON, and a key reads it": {MappingOptions{ID: "=body.id", Data: "=subject"}, mappedOf("orders.created", "hello"), edda.DeadUndecodable, `want a JSON value, such as {"order_id": "O1"}, or a CloudEvent`},
		"no id":                       {MappingOptions{ID: "=body.id"}, mappedOf("orders.created", "{}"), edda.DeadUndecodable, "id is empty: the message has nothing there"},
		"no type":                     {MappingOptions{Type: "=body.type"}, mappedOf("orders.created", "{}"), edda.DeadNoType, "type is empty"},
		"no tenant":                   {MappingOptions{Tenant: "=body.tenant"}, mappedOf("orders.created", "{}"), edda.DeadTenant, "tenant is empty"},
		"a map":                       {MappingOptions{AggregateID: "=body"}, mappedOf("orders.created", "{}"), edda.DeadUndecodable, "aggregate.id is a map: want a text or a number"},
		"a failure":                   {MappingOptions{Correlation: "=body + 1"}, mappedOf("orders.created", "{}"), edda.DeadUndecodable, "source orders: correlation_id: "},
		"a CloudEvent":                {MappingOptions{}, mappedOf("orders.created", "1", "ce-type", "x"), edda.DeadUndecodable, "the CloudEvent is not valid: "},
		"too large":                   {MappingOptions{}, mappedOf("orders.created", `"`+strings.Repeat("x", DefaultMaxPayload)+`"`), edda.DeadTooLarge, "allowed are"},
		"another tenant": {MappingOptions{}, mappedOf("orders.created", "1", "ce-specversion", "1.0", "ce-id", "7", "ce-source", "/x", "ce-type", "a", "ce-tenantid", "acme"),
			edda.DeadTenant, `the body says tenant "acme"`},
	} {
		t.Run(name, func(t *testing.T) {
			ev := mapping(t, c.options).Event(c.message)
			if ev.Malformed != c.reason || !strings.Contains(ev.Error, c.text) || !strings.Contains(ev.Error, "subject orders.created") {
				t.Errorf("%s: %s", ev.Malformed, ev.Error)
			}
			if ev.Stream != "ORDERS" || ev.Seq != 17 || ev.Tenant != "default" || ev.Subject != "orders.created" || len(ev.Payload) > 2*MaxRaw {
				t.Errorf("%s %d %s %s, an excerpt of %d bytes", ev.Stream, ev.Seq, ev.Tenant, ev.Subject, len(ev.Payload))
			}
		})
	}
}

// The default tenant must not see the body of a message that may be another tenant's.
func TestAMessageOfAnUnknownTenantIsFiledWithoutItsBody(t *testing.T) {
	large := `"` + strings.Repeat("x", DefaultMaxPayload) + `"`
	for name, c := range map[string]struct {
		tenant       string
		message      Message
		want, reason string
		body         bool
	}{
		"no tenant":                  {"=body.t", mappedOf("a.b", `{"secret":1}`), "default", edda.DeadTenant, false},
		"no JSON":                    {"=body.t", mappedOf("a.b", `secret`), "default", edda.DeadTenant, false},
		"too large to read":          {"=body", mappedOf("a.b", large), "default", edda.DeadTooLarge, false},
		"too large, by the subject":  {"=tokens[0]", mappedOf("acme.b", large), "acme", edda.DeadTooLarge, true},
		"unreadable, by the subject": {"=tokens[0]", mappedOf("acme.b", "secret"), "acme", edda.DeadUndecodable, true},
	} {
		ev := mapping(t, MappingOptions{Tenant: c.tenant}).Event(c.message)
		if ev.Tenant != c.want || ev.Malformed != c.reason || (len(ev.Payload) > 0) != c.body || ev.Subject == "" {
			t.Errorf("%s: %s of %q, an excerpt of %d bytes", name, ev.Malformed, ev.Tenant, len(ev.Payload))
		}
	}
}

func TestAMistakeInAMappingNamesItsKeyAndTheMend(t *testing.T) {
	for name, c := range map[string]struct {
		options MappingOptions
		want    []string
	}{
		"a forgotten =":     {MappingOptions{Type: "tokens[1]"}, []string{"sources.orders.type: ", "write =tokens[1] for its value"}},
		"a name alone":      {MappingOptions{Time: "time"}, []string{"sources.orders.time: ", "write =time"}},
		"${}":               {MappingOptions{ID: "x-${seq}"}, []string{"sources.orders.id: ", "${…} is not read here"}},
		"an unknown name":   {MappingOptions{ID: "=header.id"}, []string{"sources.orders.id: ", "header", "headers"}},
		"two mistakes":      {MappingOptions{ID: "=(", Tenant: "=payload.x"}, []string{"sources.orders.id: ", "\nsources.orders.tenant: "}},
		"literal data":      {MappingOptions{Data: "x"}, []string{"sources.orders.data: want an expression"}},
		"a blank":           {MappingOptions{Subjects: []string{"a.b "}}, []string{`sources.orders.subjects: "a.b " is no filter`}},
		"> in the middle":   {MappingOptions{Subjects: []string{"a.>.b"}}, []string{`"a.>.b" is no filter`}},
		"a part of a token": {MappingOptions{Subjects: []string{"a.b*"}}, []string{`"a.b*" is no filter`}},
		"an empty token":    {MappingOptions{Subjects: []string{"a..b"}}, []string{`"a..b" is no filter`}},
		"overlap":           {MappingOptions{Subjects: []string{"a.>", "a.b"}}, []string{"sources.orders.subjects: a.> and a.b overlap"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Source = "orders"
			_, err := NewMapping(c.options)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

func TestGuessReadsTheSubjectsAndTheBodies(t *testing.T) {
	list := func(subjectsAndBodies ...string) (out []Message) {
		for i := 0; i < len(subjectsAndBodies); i += 2 {
			out = append(out, mappedOf(subjectsAndBodies[i], subjectsAndBodies[i+1]))
		}
		return out
	}
	for name, c := range map[string]struct {
		messages []Message
		want     MappingOptions
	}{
		"nothing":          {nil, MappingOptions{}},
		"type at the end":  {list("shop.orders.created", "{}", "shop.orders.paid", "{}"), MappingOptions{}},
		"id at the end":    {list("shop.orders.created.o1", "{}", "shop.orders.paid.o2", "{}"), MappingOptions{Type: "=tokens[2]", AggregateType: "=tokens[1]", AggregateID: "=tokens[3]"}},
		"id in the middle": {list("orders.17.created", "{}"), MappingOptions{AggregateType: "=tokens[0]", AggregateID: "=tokens[1]"}},
		"type in the body": {list("orders.17", `{"type":"paid","data":{"a":1},"event_id":"e1","at":1}`), MappingOptions{AggregateType: "=tokens[0]", AggregateID: "=tokens[1]", Type: "=body.type", Data: "=body.data", ID: "=body.event_id"}},
		"one word":         {list("orders.17", `{}`), MappingOptions{Type: "=tokens[0]", AggregateID: "=tokens[1]"}},
		"other members":    {list("orders.paid", `{"id":"1","timestamp":"2026-01-01T00:00:00Z","correlation_id":"c"}`), MappingOptions{Time: "=body.timestamp", Correlation: "=body.correlation_id"}},
		"a bad message":    {append(list("orders.paid", `{"event_id":"1"}`), mappedOf("orders.paid", "oops")), MappingOptions{ID: "=body.event_id"}},
		"all with ids":     {[]Message{mappedOf("orders.paid", `{"event_id":"1"}`, "Nats-Msg-Id", "1")}, MappingOptions{}},
		"CloudEvents":      {[]Message{mappedOf("orders.1", `{"type":"x"}`, "ce-specversion", "1.0", "ce-type", "x")}, MappingOptions{}},
	} {
		if diff := cmp.Diff(c.want, Guess(c.messages)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOverlap(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"a.b", "a.b"}: true, {"a.*", "a.b"}: true, {"a.>", "a.b.c"}: true, {"*.b", "a.*"}: true, {">", "a"}: true,
		{"a.b", "a.c"}: false, {"a.>", "a"}: false, {"a.b", "a.b.c"}: false, {"a.*.c", "b.>"}: false,
	} {
		for _, p := range [][2]string{pair, {pair[1], pair[0]}} {
			if got := Overlap(p[0], p[1]); got != want {
				t.Error(fmt.Sprint(p, " ", got))
			}
		}
	}
}
