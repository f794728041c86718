package wire

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"edda"
)

const orders = "tenant.acme.aggregate.Order.O1"

func message(subject, body string, headers ...string) Message {
	m := Message{Subject: subject, Data: []byte(body), Stream: "S", Seq: 7, Time: noon, Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	return m
}

func TestMalformedMessages(t *testing.T) {
	tests := map[string]struct {
		m      Message
		reason string
		says   string
	}{
		"not json":            {message(orders, `{"a":`), edda.DeadUndecodable, "not an envelope"},
		"empty":               {message(orders, " "), edda.DeadUndecodable, "empty"},
		"a list":              {message(orders, `[1]`), edda.DeadUndecodable, "not an envelope"},
		"null":                {message(orders, `null`), edda.DeadUndecodable, "not a JSON object"},
		"two values":          {message(orders, `{} {}`), edda.DeadUndecodable, "not an envelope"},
		"no type":             {message(orders, `{"event_id":"e"}`), edda.DeadNoType, `no event_type: want {"event_type": …, "payload": …} or a CloudEvent; see docs/NATS.md`},
		"type is an object":   {message(orders, `{"event_type":{}}`), edda.DeadUndecodable, "not a text"},
		"another tenant":      {message(orders, `{"event_type":"X","tenant_id":"beta"}`), edda.DeadTenant, `"beta"`},
		"tenant before type":  {message(orders, `{"tenant_id":"beta"}`), edda.DeadTenant, `"acme"`},
		"too large":           {message(orders, `{"event_type":"X","payload":"`+strings.Repeat("x", 200)+`"}`), edda.DeadTooLarge, "allowed are 200"},
		"foreign subject":     {message("other.subject", `{}`), edda.DeadUndecodable, "does not begin with a tenant"},
		"an effect command":   {message("tenant.acme.effect.charge.1", `{}`), edda.DeadUndecodable, "not an input"},
		"signal without name": {message("tenant.acme.workflow.order.O1", `{}`), edda.DeadNoType, "no name"},
		"unknown kind":        {message("tenant.acme.workflow.order.O1", `{"kind":"x","name":"y"}`), edda.DeadUndecodable, `"x" is not a kind`},
		"unknown verb":        {message("tenant.acme.workflow.order.O1", `{"kind":"operator","name":"y"}`), edda.DeadUndecodable, `"y" is not a verb`},
		"operator, no verb":   {message("tenant.acme.workflow.order.O1", `{"kind":"operator"}`), edda.DeadNoType, "no name"},
		"answer without step": {message("tenant.acme.workflow.order.O1", `{"kind":"answer","name":"yes"}`), edda.DeadUndecodable, "metadata.step"},
		"end without command": {message("tenant.acme.workflow.order.O1", `{"kind":"end"}`), edda.DeadUndecodable, "command_id"},
		"end without outcome": {message("tenant.acme.workflow.order.O1", `{"kind":"end","metadata":{"command_id":"c"}}`), edda.DeadUndecodable, "outcome"},
		"signal, tenant":      {message("tenant.acme.workflow.order.O1", `{"name":"x","tenant_id":"beta"}`), edda.DeadTenant, `"beta"`},
		"no result type":      {message("tenant.acme.effect_result.charge.c", `{}`), edda.DeadUndecodable, "outcome"},
		"other command":       {message("tenant.acme.effect_result.charge.c", `{"command_id":"d","result_type":"Failed"}`), edda.DeadUndecodable, `"d"`},
		"result, tenant":      {message("tenant.acme.effect_result.charge.c", `{"tenant_id":"b","result_type":"Failed"}`), edda.DeadTenant, `"b"`},
		"metadata is a list":  {message("tenant.acme.effect_result.charge.c", `{"metadata":[],"result_type":"Failed"}`), edda.DeadUndecodable, "metadata"},
		"batch":               {message(orders, `[]`, "content-type", "application/cloudevents-batch+json"), edda.DeadUndecodable, "batch"},
		"cloud, no type":      {message(orders, `{"specversion":"1.0","id":"1","source":"s"}`), edda.DeadNoType, "no type"},
		"cloud, no id":        {message(orders, `{"specversion":"1.0","type":"T","source":"s"}`), edda.DeadUndecodable, "id"},
		"cloud, version":      {message(orders, `{"specversion":"0.3","type":"T","source":"s","id":"1"}`), edda.DeadUndecodable, "not 1.0"},
		"cloud, tenant":       {message(orders, `{"specversion":"1.0","type":"T","source":"s","id":"1","tenantid":"b"}`), edda.DeadTenant, `"b"`},
		"cloud, not json":     {message(orders, `x`, "ce-specversion", "1.0", "ce-id", "1", "ce-type", "T", "ce-source", "s"), edda.DeadUndecodable, "not JSON"},
		"cloud, text":         {message(orders, `1`, "ce-specversion", "1.0", "ce-id", "1", "ce-type", "T", "ce-source", "s", "content-type", "text/plain"), edda.DeadUndecodable, "text/plain"},
		"cloud, binary, type": {message(orders, `1`, "ce-specversion", "1.0", "ce-id", "1", "ce-source", "s"), edda.DeadNoType, "no type"},
		"cloud, bad version":  {message(orders, `1`, "ce-specversion", "2.0", "ce-id", "1", "ce-type", "T", "ce-source", "s"), edda.DeadUndecodable, "specversion"},
		"cloud, bad header":   {message(orders, `1`, "ce-specversion", "1.0", "ce-id", "%C0%A0", "ce-type", "T", "ce-source", "s"), edda.DeadUndecodable, "UTF-8"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := Codec{MaxPayload: 200}
			ev := c.Event(test.m)
			if ev.Malformed != test.reason || !strings.Contains(ev.Error, test.says) || !strings.Contains(ev.Error, test.m.Subject) {
				t.Errorf("got %q: %s", ev.Malformed, ev.Error)
			}
			if ev.Stream != "S" || ev.Seq != 7 || !ev.Time.Equal(noon) || ev.ID != "S:7" || ev.Kind == "" {
				t.Errorf("it is not addressed: %+v", ev)
			}
			var raw string
			if err := json.Unmarshal(ev.Payload, &raw); err != nil || !strings.HasPrefix(string(test.m.Data), raw) {
				t.Errorf("the payload does not show the message: %s, %v", ev.Payload, err)
			}
		})
	}
}

func TestMalformedMessagesHaveTheirKey(t *testing.T) {
	ev := Codec{}.Event(message("tenant.acme.workflow.order.O%201", `{`))
	if ev.Key != parent || ev.Tenant != "acme" {
		t.Errorf("got %+v", ev)
	}
	ev = Codec{}.Event(message("tenant.acme.effect_result.charge.c-9", `{`))
	if ev.CommandID != "c-9" || ev.Kind != edda.KindResult {
		t.Errorf("got %+v", ev)
	}
}

func TestTheExcerptOfALargeMessageIsBounded(t *testing.T) {
	ev := Codec{}.Event(message(orders, strings.Repeat("ä", 1<<20)))
	if len(ev.Payload) > MaxRaw+100 || !json.Valid(ev.Payload) {
		t.Errorf("%d bytes are kept", len(ev.Payload))
	}
}

func TestEventIDs(t *testing.T) {
	cloud := `{"specversion":"1.0","id":"1 2","source":"/shop","type":"T"}`
	tests := map[string]struct {
		m    Message
		want string
	}{
		"the envelope's":   {message(orders, `{"event_id":"e1","event_type":"X"}`, "Nats-Msg-Id", "m1"), "e1"},
		"a number":         {message(orders, `{"event_id":17,"event_type":"X"}`), "17"},
		"the message's":    {message(orders, `{"event_type":"X"}`, "Nats-Msg-Id", "m1"), "m1"},
		"the position":     {message(orders, `{"event_type":"X"}`), "S:7"},
		"source and id":    {message(orders, cloud, "Nats-Msg-Id", "m1"), "/shop 1 2"},
		"the signal's":     {message("tenant.acme.workflow.order.O1", `{"signal_id":"s1","name":"x"}`, "Nats-Msg-Id", "m1"), "s1"},
		"no signal's":      {message("tenant.acme.workflow.order.O1", `{"name":"x"}`), "S:7"},
		"a result's":       {message("tenant.acme.effect_result.f.c", `{"result_type":"Failed"}`, "Nats-Msg-Id", "m1"), "m1"},
		"a foreign result": {message("tenant.acme.effect_result.f.c", `{"result_type":"Failed"}`), "S:7"},
	}
	for name, test := range tests {
		if ev := (Codec{}).Event(test.m); ev.ID != test.want || ev.Malformed != "" {
			t.Errorf("%s: got %q, want %q (%s)", name, ev.ID, test.want, ev.Error)
		}
	}
}

func TestNativeEventsTakeMissingFieldsFromTheSubject(t *testing.T) {
	ev := Codec{}.Event(message("tenant.acme.aggregate.Order.O%201", `{"event_type":"OrderPlaced","payload":{"n":9007199254740993}}`))
	diff(t, ev, edda.Event{
		Kind: edda.KindEvent, ID: "S:7", Tenant: "acme", Type: "OrderPlaced", AggregateType: "Order", AggregateID: "O 1",
		Time: noon, Stream: "S", Seq: 7, Payload: json.RawMessage(`{"n":9007199254740993}`),
	})
}

func TestUnreadableTimestampsAreLeftOut(t *testing.T) {
	for _, stamp := range []string{`"yesterday"`, `17`, `{}`, `null`} {
		ev := Codec{}.Event(message(orders, `{"event_type":"X","timestamp":`+stamp+`}`))
		if ev.Malformed != "" || !ev.Timestamp.IsZero() {
			t.Errorf("%s: %s %s", stamp, ev.Error, ev.Timestamp)
		}
	}
}

func TestWithoutTenancy(t *testing.T) {
	c := Codec{Grammar: Grammar{NoTenancy: true}}
	ev := c.Event(message("aggregate.Order.O1", `{"event_type":"X","tenant_id":"beta"}`))
	if ev.Malformed != "" || ev.Tenant != "" || ev.AggregateID != "O1" {
		t.Errorf("got %+v", ev)
	}
}

func TestTraceparentOverridesTheMetadata(t *testing.T) {
	body := `{"event_type":"X","metadata":{"trace_id":"t1","correlation_id":42}}`
	if ev := (Codec{}).Event(message(orders, body, "traceparent", traceparent)); ev.Trace != traceparent || ev.Correlation != "42" {
		t.Errorf("got %+v", ev)
	}
	if ev := (Codec{}).Event(message(orders, body)); ev.Trace != "t1" {
		t.Errorf("got %q", ev.Trace)
	}
}

func TestForeignResults(t *testing.T) {
	ev := Codec{}.Event(message("tenant.acme.effect_result.charge.c-9", `{"result_type":"TimedOut","payload":null}`))
	diff(t, ev, edda.Event{
		Kind: edda.KindResult, ID: "S:7", Tenant: "acme", Type: "charge", Key: edda.Key{Tenant: "acme"}, CommandID: "c-9",
		Outcome: edda.TimedOut, Time: noon, Stream: "S", Seq: 7,
	})
}

func shopCloudEvent(id string) edda.Event {
	return edda.Event{
		Kind: edda.KindEvent, ID: id, Tenant: "acme", Type: "OrderPlaced", FullType: "com.shop.OrderPlaced.v2", Version: 2,
		AggregateType: "Order", AggregateID: "O1", Time: noon, Timestamp: noon.Truncate(time.Second), Stream: "S", Seq: 7,
		Payload: json.RawMessage(`{"n":9007199254740993}`), Correlation: "c1", Causation: "c0", Trace: traceparent,
	}
}

func TestStructuredCloudEvents(t *testing.T) {
	body := `{"specversion":"1.0","id":"1","source":"https://shop/a b","type":"com.shop.OrderPlaced.v2",
		"time":"2026-01-02T12:00:00Z","datacontenttype":"application/json","tenantid":"acme",
		"correlationid":"c1","causationid":"c0","traceparent":"` + traceparent + `","data":{"n":9007199254740993}}`
	want := shopCloudEvent("https://shop/a%20b 1")
	diff(t, Codec{}.Event(message(orders, body)), want)
	diff(t, Codec{}.Event(message(orders, body, "content-type", "application/cloudevents+json; charset=utf-8")), want)
	diff(t, Codec{}.Event(message(orders, body, "Content-Type", "application/cloudevents+json")), want)
}

func TestTheErrorOfACloudEventIsOneLine(t *testing.T) {
	ev := Codec{}.Event(message(orders, `{"specversion":"1.0","type":"OrderPlaced","data":{}}`))
	if ev.Malformed == "" || strings.ContainsAny(ev.Error, "\r\n") || strings.Count(ev.Error, "; ") != 1 ||
		!strings.Contains(ev.Error, "id: ") || !strings.Contains(ev.Error, "source: ") {
		t.Errorf("%q %q", ev.Malformed, ev.Error)
	}
}

// TestAStructuredCloudEventMayRepeatItsAttributesInHeaders: the whole event became the data of one
// in binary mode.
func TestAStructuredCloudEventMayRepeatItsAttributesInHeaders(t *testing.T) {
	body := `{"specversion":"1.0","id":"1","source":"s","type":"T","aggregateid":17,"data":{"n":1}}`
	ev := Codec{}.Event(message(orders, body, "content-type", "Application/CloudEvents+JSON", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "s", "ce-type", "T"))
	if string(ev.Payload) != `{"n":1}` || ev.ID != "s 1" || ev.AggregateID != "17" {
		t.Errorf("got %+v", ev)
	}
}

func TestBase64DataOfCloudEvents(t *testing.T) {
	ev := Codec{}.Event(message(orders, `{"specversion":"1.0","id":"1","source":"s","type":"T","data_base64":"eyJuIjoxfQ=="}`))
	if string(ev.Payload) != `{"n":1}` {
		t.Errorf("got %s, %s", ev.Payload, ev.Error)
	}
}

func TestBinaryCloudEvents(t *testing.T) {
	headers := []string{
		"ce-specversion", "1.0", "ce-id", "%C3%A4 100%", "ce-source", `"/shop"`, "ce-type", "com.shop.OrderPlaced.v2",
		"ce-time", "2026-01-02T12:00:00Z", "content-type", "application/json", "ce-tenantid", "acme",
		"ce-correlationid", "c1", "ce-causationid", "c0", "traceparent", traceparent, "ce-not_a_name", "x",
	}
	want := shopCloudEvent("/shop %C3%A4 100%") // a lone '%' is no encoding: the text stays as it is
	diff(t, Codec{}.Event(message(orders, `{"n":9007199254740993}`, headers...)), want)
	headers[3] = "%C3%A4"
	want.ID = "/shop ä"
	diff(t, Codec{}.Event(message(orders, `{"n":9007199254740993}`, headers...)), want)
	for i := 0; i < len(headers); i += 2 {
		headers[i] = strings.Replace(headers[i], "ce-t", "Ce-T", 1)
	}
	diff(t, Codec{}.Event(message(orders, `{"n":9007199254740993}`, headers...)), want)
}

func TestMalformedCommandsHaveTheIDsOfTheirSubject(t *testing.T) {
	for name, m := range map[string]Message{
		"not json":       message("tenant.acme.effect.charge.c-9", `{`),
		"another tenant": message("tenant.acme.effect.charge.c-9", `{"tenant_id":"beta"}`),
		"another id":     message("tenant.acme.effect.charge.c-9", `{"command_id":"c-8"}`),
		"another effect": message("tenant.acme.effect.charge.c-9", `{"effect_name":"refund"}`),
		"bad not_after":  message("tenant.acme.effect.charge.c-9", `{"metadata":{"not_after":"soon"}}`),
		"version none":   message("tenant.acme.effect.charge.c-9", `{"metadata":{"effect_version":0}}`),
		"version below":  message("tenant.acme.effect.charge.c-9", `{"metadata":{"effect_version":-1}}`),
		"version half":   message("tenant.acme.effect.charge.c-9", `{"metadata":{"effect_version":1.5}}`),
		"version text":   message("tenant.acme.effect.charge.c-9", `{"metadata":{"effect_version":"2"}}`),
		"version huge":   message("tenant.acme.effect.charge.c-9", `{"metadata":{"effect_version":1e30}}`),
		"version map":    message("tenant.acme.effect.charge.c-9", `{"metadata":{"effect_version":{"v":1}}}`),
		"too large":      message("tenant.acme.effect.charge.c-9", strings.Repeat(" ", 2<<20)+`{}`),
	} {
		got := Codec{}.Command(m)
		if got.Malformed == "" || got.Tenant != "acme" || got.ID != "c-9" || got.Effect != "charge" ||
			got.Subject != m.Subject || !bytes.HasPrefix(m.Data, got.Raw) || len(got.Raw) == 0 || len(got.Raw) > MaxRaw {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestCommandsOfOtherProducers(t *testing.T) {
	got := Codec{}.Command(message("tenant.acme.effect.charge.c-9", `{"payload":{"n":1}}`))
	if got.Malformed != "" || got.ID != "c-9" || string(got.Payload) != `{"n":1}` || !got.Sent.Equal(noon) {
		t.Errorf("got %+v", got)
	}
	got = Codec{}.Command(message("tenant.acme.effect.charge.c-9", `{"timestamp":"2001-02-03T04:05:06Z"}`))
	if want := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC); !got.Sent.Equal(want) {
		t.Errorf("sent %v", got.Sent)
	}
	got = Codec{}.Command(message("tenant.acme.effect.charge.c-9", `{"timestamp":"2901-02-03T04:05:06Z"}`))
	if !got.Sent.Equal(noon) {
		t.Errorf("a clock that goes ahead makes it sent %v", got.Sent)
	}
}

func TestCommandsHaveTheVersionOfTheirEffect(t *testing.T) {
	for body, want := range map[string]int{
		`{}`:                                   0,
		`{"metadata":{"effect_version":null}}`: 0,
		`{"metadata":{"effect_version":12}}`:   12,
		`{"metadata":{"effect_version":2.0}}`:  2,
		`{"metadata":{"version":7}}`:           0,
		`{"revoke":true,"metadata":{"effect_version":"it does not matter"}}`: 0,
	} {
		if got := (Codec{}).Command(message("tenant.acme.effect.charge.c-9", body)); got.Malformed != "" || got.Version != want {
			t.Errorf("%s: version %d, malformed %q", body, got.Version, got.Malformed)
		}
	}
}

func TestEffectVersionIsIgnoredOutsideCommands(t *testing.T) {
	ev := Codec{}.Event(message("tenant.acme.effect_result.charge.c-9", `{"result_type":"Succeeded","metadata":{"effect_version":"two"}}`))
	if ev.Malformed != "" {
		t.Errorf("a result is malformed: %s", ev.Error)
	}
}

func FuzzDecode(f *testing.F) {
	for _, w := range works() {
		if m, err := (Codec{}).Work(w); err == nil {
			f.Add(m.Subject, m.Data, "Nats-Msg-Id", "1")
		}
	}
	f.Add(orders, []byte(`{"specversion":"1.0","id":"1","source":"s","type":"T","data":{"":1}}`), "content-type", "application/cloudevents+json")
	f.Add(orders, []byte(`{"specversion":"1.0","":0,"type":"T"}`), "ce-time", "x")
	f.Add(orders, []byte(`1`), "ce-type", "%ff")
	f.Add("tenant.acme.effect_result.a.%~", []byte(`{"payload":}`), "ce-specversion", "0.3")
	f.Fuzz(func(t *testing.T, subject string, data []byte, header, value string) {
		m := message(subject, string(data), header, value)
		ev := Codec{}.Event(m)
		if len(ev.Payload) > 0 && !json.Valid(ev.Payload) {
			t.Errorf("the payload is not JSON: %q", ev.Payload)
		}
		if ev.Stream != "S" || ev.Seq != 7 || ev.ID == "" || (ev.Malformed == "") != (ev.Error == "") {
			t.Errorf("got %+v", ev)
		}
		cmd := Codec{}.Command(m)
		if cmd.Malformed == "" && len(cmd.Payload) > 0 && !json.Valid(cmd.Payload) {
			t.Errorf("the command's payload is not JSON: %q", cmd.Payload)
		}
	})
}

// TestMutatedMessagesNeverPanic: with the golden messages, because fuzzing in a binary with a whole
// server is slow.
func TestMutatedMessagesNeverPanic(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var seeds []Message
	for _, w := range works() {
		if m, err := (Codec{}).Work(w); err == nil {
			seeds = append(seeds, stored(m))
		}
	}
	seeds = append(seeds,
		message(orders, `{"specversion":"1.0","id":"1","source":"s","type":"T","data":{"":1},"time":"2026-01-02T12:00:00Z"}`),
		message(orders, `{"specversion":"1.0","":0,"type":"T","data_base64":"eyJuIjoxfQ=="}`, "content-type", "application/cloudevents+json"))
	alphabet := []byte("\"{}[]:,0159.eE-ntrue\\u \xff")
	for range 20_000 {
		m := seeds[rng.IntN(len(seeds))]
		m.Data = bytes.Clone(m.Data)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(m.Data))
			switch rng.IntN(3) {
			case 0:
				m.Data[at] = alphabet[rng.IntN(len(alphabet))]
			case 1:
				m.Data = append(m.Data[:at], m.Data[at+rng.IntN(len(m.Data)-at):]...)
				m.Data = append(m.Data, '}')
			case 2:
				m.Data = append(m.Data[:at:at], append([]byte{alphabet[rng.IntN(len(alphabet))]}, m.Data[at:]...)...)
			}
		}
		ev, cmd := Codec{}.Event(m), Codec{}.Command(m)
		if (len(ev.Payload) > 0 && !json.Valid(ev.Payload)) || (cmd.Malformed == "" && len(cmd.Payload) > 0 && !json.Valid(cmd.Payload)) {
			t.Fatalf("%q gives a payload that is not JSON", m.Data)
		}
	}
}
