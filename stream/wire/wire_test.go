package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue/jsonvaluetest"
	"edda/outbox"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var (
	noon   = time.Date(2026, 1, 2, 12, 0, 0, 123456789, time.UTC)
	parent = edda.Key{Tenant: "acme", Saga: "order", Correlation: "O 1"}
	child  = edda.Key{Tenant: "acme", Saga: "shipping", Correlation: "O 1/a"}
)

// stored is the message as the stream would deliver it.
func stored(m *nats.Msg) Message {
	return Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: "S", Seq: 7, Time: noon}
}

func works() map[string]edda.Work {
	base := edda.Work{
		ID: "w-1", From: parent, Time: noon, Correlation: "corr", Causation: "cause", Trace: traceparent,
	}
	with := func(f func(*edda.Work)) edda.Work { w := base; f(&w); return w }
	return map[string]edda.Work{
		"effect": with(func(w *edda.Work) {
			w.Kind, w.Name, w.Step, w.Attempt, w.High = edda.WorkEffect, "charge", "charge[0]", 2, true
			w.Payload = json.RawMessage(`{"amount":9007199254740993,"note":"<&>"}`)
			w.IdempotencyKey, w.NotAfter, w.EffectVersion = "w-0", noon.Add(time.Hour), 3
		}),
		"revoke": with(func(w *edda.Work) {
			w.Kind, w.Name, w.CommandID, w.Step = edda.WorkRevoke, "charge", "c-9", "charge"
		}),
		"command": with(func(w *edda.Work) {
			w.Kind, w.Name, w.To, w.Step = edda.WorkCommand, "Payment.Request", "P.1", "pay"
			w.Payload = json.RawMessage(`{"zone":"b","amount":25}`)
		}),
		"fact": with(func(w *edda.Work) {
			w.Kind, w.Name, w.Payload = edda.WorkFact, "OrderClosed", json.RawMessage(`{"total":25}`)
		}),
		"start": with(func(w *edda.Work) {
			w.Kind, w.Target, w.Event, w.Step = edda.WorkStart, child, "Begin", "ship"
			w.Payload = json.RawMessage(`{"to":"x"}`)
		}),
		"cancel": with(func(w *edda.Work) {
			w.Kind, w.Target, w.CommandID = edda.WorkCancel, child, "c-9"
		}),
		"end": with(func(w *edda.Work) {
			w.Kind, w.From, w.Target, w.CommandID = edda.WorkEnd, child, parent, "c-9"
			w.Outcome, w.Payload = edda.Failed, json.RawMessage(`{"code":"exists"}`)
		}),
	}
}

func TestWorkOnTheWire(t *testing.T) {
	for name, w := range works() {
		t.Run(name, func(t *testing.T) {
			m, err := Codec{}.Work(w)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, m)
		})
	}
}

var asCloudEvents = Codec{AsCloudEvents: Outgoing()}

// TestWorkOnTheWireAsCloudEvents: facts and commands alone; what Edda's own parts read stays as it is.
func TestWorkOnTheWireAsCloudEvents(t *testing.T) {
	for name, w := range works() {
		m, err := asCloudEvents.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		switch native, err := (Codec{}).Work(w); {
		case err != nil:
			t.Fatal(err)
		case native.Subject != m.Subject || native.Header.Get(headerMsgID) != m.Header.Get(headerMsgID):
			t.Errorf("%s goes to %s as %s, else to %s as %s", name, m.Subject, m.Header.Get(headerMsgID), native.Subject, native.Header.Get(headerMsgID))
		case name == "fact" || name == "command":
			golden(t, name+"-cloudevent", m)
		default:
			diff(t, string(m.Data), string(native.Data))
		}
	}
}

// TestAFactIsTheSameEventAsACloudEvent: it may be published again after the setting was changed, and
// must have the same id then.
func TestAFactIsTheSameEventAsACloudEvent(t *testing.T) {
	w := works()["fact"]
	for _, names := range [][2]string{{"order", w.Name}, {"order.eu", w.Name}, {"Ä 1", w.Name}, {"ship", "shop.Shipped"}, {"ship", "Shipped.v2"}, {"ship", "Shipped."}, {"ship", "ship.ship"}} {
		w.From.Saga, w.Name = names[0], names[1]
		native, err := Codec{}.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		m, err := asCloudEvents.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		diff(t, Codec{}.Event(stored(m)), Codec{}.Event(stored(native)))
	}
}

// TestACommandIsAValidCloudEvent by the SDK.
func TestACommandIsAValidCloudEvent(t *testing.T) {
	w := works()["command"]
	w.Payload, w.To, w.Time = nil, "", time.Time{}
	list := w
	list.Payload = json.RawMessage(`[1]`) // data may be any JSON
	for _, w := range []edda.Work{works()["command"], works()["fact"], w, list} {
		m, err := asCloudEvents.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		ce, err := readCloudEvent(stored(m))
		if err != nil {
			t.Fatal(err)
		}
		if err := ce.Validate(); err != nil || ce.ID() != "w-1" || ce.Source() != "/edda/sagas/order" || string(ce.Data()) != string(w.Payload) {
			t.Errorf("%v: %s", err, ce)
		}
	}
}

func TestResultOnTheWire(t *testing.T) {
	m, err := Codec{}.Result(effects.Result{
		Tenant: "acme", CommandID: "c-9", Effect: "charge", Outcome: edda.Succeeded,
		Payload: json.RawMessage(`{"id":1}`), Metadata: json.RawMessage(`{"saga":"order","key":"O 1","step":"charge","own":[1]}`),
		Attempts: 3, Time: noon, Trace: traceparent,
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "result", m)
	diff(t, Codec{}.Event(stored(m)), edda.Event{
		Kind: edda.KindResult, ID: "c-9.result", Tenant: "acme", Key: parent, CommandID: "c-9", Step: "charge", Type: "charge",
		Outcome: edda.Succeeded, Payload: json.RawMessage(`{"id":1}`), Attempts: 3,
		Time: noon, Timestamp: noon, Stream: "S", Seq: 7, Trace: traceparent,
	})
}

func TestInputsOnTheWire(t *testing.T) {
	base := edda.Event{
		ID: "e-1", Tenant: "acme", Payload: json.RawMessage(`{"n":1}`), Timestamp: noon,
		Correlation: "corr", Causation: "cause", Trace: "a trace id",
	}
	with := func(f func(*edda.Event)) edda.Event { ev := base; f(&ev); return ev }
	events := map[string]edda.Event{
		"event": with(func(ev *edda.Event) {
			ev.Kind, ev.Type, ev.AggregateType, ev.AggregateID, ev.Version = edda.KindEvent, "OrderPlaced", "Order", "O 1", 2
		}),
		"cloudevent": with(func(ev *edda.Event) {
			named := edda.NamedEvent("com.shop.order.placed.v2")
			ev.Kind, ev.ID, ev.Type, ev.FullType, ev.Version = edda.KindEvent, CloudEventID("/shop", "e 1"), named.Type, named.FullType, named.Version
			ev.AggregateType, ev.AggregateID, ev.By, ev.Why = named.AggregateType, "O 1", "ann", "a test"
		}),
		"signal": with(func(ev *edda.Event) { ev.Kind, ev.Type, ev.Key = edda.KindSignal, "hurry", parent }),
		"answer": with(func(ev *edda.Event) {
			ev.Kind, ev.Type, ev.Key, ev.Step, ev.By = edda.KindAnswer, "yes", parent, "ask", "ann"
		}),
		"operator": with(func(ev *edda.Event) {
			ev.Kind, ev.Type, ev.Key, ev.Step, ev.By = edda.KindOperator, "retry", parent, "ship", "ann"
		}),
	}
	for name, ev := range events {
		t.Run(name, func(t *testing.T) {
			m, err := Codec{}.Input(ev)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, m)
			want := ev
			want.Time, want.Stream, want.Seq = noon, "S", 7
			diff(t, Codec{}.Event(stored(m)), want)
		})
	}
}

func TestWorkComesBackAsEvents(t *testing.T) {
	common := edda.Event{
		ID: "w-1", Tenant: "acme", Time: noon, Timestamp: noon, Stream: "S", Seq: 7,
		Correlation: "corr", Causation: "cause", Trace: traceparent,
	}
	with := func(f func(*edda.Event)) edda.Event { ev := common; f(&ev); return ev }
	want := map[string]edda.Event{
		"fact": with(func(ev *edda.Event) {
			ev.Kind, ev.Type, ev.Version = edda.KindEvent, "OrderClosed", 1
			ev.AggregateType, ev.AggregateID, ev.Payload = "order", "O 1", json.RawMessage(`{"total":25}`)
		}),
		"start": with(func(ev *edda.Event) {
			ev.Kind, ev.Key, ev.Type, ev.Parent, ev.CommandID = edda.KindStart, child, "Begin", parent, "w-1"
			ev.Payload = json.RawMessage(`{"to":"x"}`)
		}),
		"cancel": with(func(ev *edda.Event) {
			ev.Kind, ev.Key, ev.Type, ev.By, ev.CommandID = edda.KindOperator, child, "cancel", "parent", "c-9"
		}),
		"end": with(func(ev *edda.Event) {
			ev.Kind, ev.Key, ev.CommandID, ev.Outcome = edda.KindResult, parent, "c-9", edda.Failed
			ev.Payload = json.RawMessage(`{"code":"exists"}`)
		}),
	}
	for name, ev := range want {
		t.Run(name, func(t *testing.T) {
			m, err := Codec{}.Work(works()[name])
			if err != nil {
				t.Fatal(err)
			}
			diff(t, Codec{}.Event(stored(m)), ev)
		})
	}
}

func TestEffectCommandsComeBack(t *testing.T) {
	m, err := Codec{}.Work(works()["effect"])
	if err != nil {
		t.Fatal(err)
	}
	got := Codec{}.Command(stored(m))
	md := got.Metadata
	got.Metadata = nil
	diff(t, got, effects.Command{
		Tenant: "acme", ID: "w-1", Effect: "charge", Payload: json.RawMessage(`{"amount":9007199254740993,"note":"<&>"}`),
		Version: 3, IdempotencyKey: "w-0", NotAfter: noon.Add(time.Hour), Trace: traceparent, High: true, Subject: m.Subject, Sent: noon,
	})
	r, err := Codec{}.Result(effects.Result{Tenant: "acme", CommandID: "w-1", Effect: "charge", Outcome: edda.TimedOut, Metadata: md})
	if err != nil {
		t.Fatal(err)
	}
	ev := Codec{}.Event(stored(r))
	if ev.Key != parent || ev.Step != "charge[0]" || ev.Correlation != "corr" {
		t.Errorf("the echoed metadata gives %+v", ev)
	}
}

func TestRevokesNameTheirCommand(t *testing.T) {
	m, err := Codec{}.Work(works()["revoke"])
	if err != nil {
		t.Fatal(err)
	}
	got := Codec{}.Command(stored(m))
	if !got.Revoke || got.ID != "c-9" || got.Malformed != "" || m.Header.Get("Nats-Msg-Id") != "acme w-1" {
		t.Errorf("got %+v", got)
	}
}

func TestTheBodyHasALongKey(t *testing.T) {
	long := parent
	long.Correlation = strings.Repeat("key ", 100)
	m, err := Codec{}.Input(edda.Event{Kind: edda.KindSignal, ID: "s", Type: "hurry", Key: long, Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	if ev := (Codec{}).Event(stored(m)); ev.Key != long || ev.Malformed != "" {
		t.Errorf("got %+v", ev)
	}
	forged := stored(m)
	forged.Data = bytes.Replace(forged.Data, []byte("key key"), []byte("yek key"), 1)
	if ev := (Codec{}).Event(forged); ev.Malformed != edda.DeadUndecodable {
		t.Errorf("another key than the subject's is taken: %+v", ev)
	}
}

func TestWorkThatCannotBeEncodedIsRejected(t *testing.T) {
	tests := map[string]edda.Work{
		"kind":      {Kind: edda.WorkMessage},
		"name":      {Kind: edda.WorkCommand, Name: "NoDot"},
		"payload":   {Kind: edda.WorkCommand, Name: "A.B", Payload: json.RawMessage(`[1`)},
		"subject":   {Kind: edda.WorkFact, From: edda.Key{Tenant: strings.Repeat("t", 300)}},
		"too-large": {Kind: edda.WorkFact, Payload: json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)},
	}
	for code, w := range tests {
		_, err := Codec{MaxPayload: 1000}.Work(w)
		if r, ok := errors.AsType[*outbox.Rejection](err); !ok || r.Code != code {
			t.Errorf("got %v, want a rejection %s", err, code)
		}
	}
}

// TestAStreamHasTheCommandThatAGatewayHas: the two differ only in fields that one of them leaves out
// when they are empty.
func TestAStreamHasTheCommandThatAGatewayHas(t *testing.T) {
	for _, payload := range []string{``, `null`, `{"b":1,"a":9007199254740993}`, `[1]`, `7`, `"x"`} {
		w := edda.Work{ID: "w-1", Kind: edda.WorkCommand, From: parent, Name: "Payment.Request", To: "P1", Step: "pay",
			Payload: json.RawMessage(payload), Correlation: "c", Causation: "e", Trace: "t"}
		m, err := Codec{}.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		body, err := outbox.CommandBody(w)
		if err != nil {
			t.Fatal(err)
		}
		var stream, gateway map[string]any
		if err := errors.Join(json.Unmarshal(m.Data, &stream), json.Unmarshal(body, &gateway)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(gateway, stream); diff != "" {
			t.Errorf("%s: (-gateway +stream)%s", payload, diff)
		}
	}
}

func golden(t *testing.T, name string, m *nats.Msg) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, m.Subject)
	for _, k := range slices.Sorted(maps.Keys(m.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", k, m.Header[k][0])
	}
	var body bytes.Buffer
	if err := json.Indent(&body, m.Data, "", "  "); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "\n%s\n", &body)
	file := filepath.Join("testdata", "wire", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	diff(t, b.String(), string(want))
}

func diff[T any](t *testing.T, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestTextDecodesAsEncodingJSON(t *testing.T) {
	for _, in := range []string{`""`, `"order"`, `"a b.c>*"`, `"Grüße, 世界"`, `"\u00e9\ud83d\ude00"`, `"\ud800"`, `"tab\t\"quoted\" \\ \/"`, "\"bro\xffken\"", "\"\xed\xa0\x80\"", `"\\"`, "\"\u2028\""} {
		var want string
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		var got struct{ T text }
		if err := json.Unmarshal([]byte(`{"T":`+in+`}`), &got); err != nil || string(got.T) != want {
			t.Errorf("%s: %q, want %q: %v", in, got.T, want, err)
		}
	}
}

func TestTextDoesNotAliasItsMessage(t *testing.T) {
	in := []byte(`{"T":"order"}`)
	var got struct{ T text }
	if err := json.Unmarshal(in, &got); err != nil {
		t.Fatal(err)
	}
	clear(in)
	if got.T != "order" {
		t.Errorf("%q", got.T)
	}
}

func TestMessagesDoNotShareMemory(t *testing.T) {
	work := []edda.Work{works()["fact"], works()["start"]}
	first, err := Codec{}.Work(work[0])
	if err != nil {
		t.Fatal(err)
	}
	data, id := string(first.Data), first.Header.Get(headerMsgID)
	if _, err := (Codec{}).Work(work[1]); err != nil {
		t.Fatal(err)
	}
	if string(first.Data) != data || first.Header.Get(headerMsgID) != id || id != "acme w-1" {
		t.Errorf("it has become %s, %s", first.Header, first.Data)
	}
}

func envelopes() []any {
	return []any{&envelope{}, &metadata{}, &command{}, &result{}, &input{}, &aggregateCommand{}, &cloudEvent{}}
}

func TestEnvelopesAreWrittenAndReadAsByEncodingJSON(t *testing.T) {
	jsonvaluetest.Suite(t, envelopes()...)
}

func FuzzAppendEnvelope(f *testing.F) { jsonvaluetest.FuzzAppend(f, envelopes()...) }

func FuzzDecodeEnvelope(f *testing.F) { jsonvaluetest.FuzzDecode(f, envelopes()...) }

func TestIDsRoundTrip(t *testing.T) {
	const subject = "tenant.acme.effect_result.charge.c"
	for _, id := range []string{"c.result", "a b", " a", "a ", "", "100%", "%20", "a\r\nb\x00", "é", "~x y", strings.Repeat("x", 500)} {
		for name, header := range map[string]string{"derived": derivedID("acme", id), "chosen": chosenID(subject, id), "fresh": freshID(rand.Text(), id)} {
			if strings.ContainsAny(header, "\r\n\x00") || strings.HasSuffix(header, " ") && id != "" {
				t.Errorf("%s: %q is no header", name, header)
			}
			if got := (Grammar{}).ID(Message{Subject: subject, Header: nats.Header{headerMsgID: {header}}}); got != id {
				t.Errorf("%s: %q came back as %q", name, id, got)
			}
		}
	}
	for header, want := range map[string]string{ // those of others, and of an older Edda
		"c.result": "c.result", "bob c.result": "bob c.result", "a b c": "a b c", "~short x": "~short x", "100%25": "100%25",
	} {
		if got := (Grammar{}).ID(Message{Subject: subject, Header: nats.Header{headerMsgID: {header}}}); got != want {
			t.Errorf("%q is read as %q", header, got)
		}
	}
}

func TestDifferentIDsHaveDifferentHeaders(t *testing.T) {
	seen := map[string]string{}
	for _, tenant := range []string{"", "a", "a b", "a.b", "tenant", "%-"} {
		for _, id := range []string{"", "x", " x", "x ", "x\n", "x_", "x%0A", "b x"} {
			for _, header := range []string{derivedID(tenant, id), chosenID("tenant."+escape(tenant)+".workflow.s.k", id)} {
				if was, is := seen[header]; is {
					t.Errorf("%q is the header of %s and of %q %q", header, was, tenant, id)
				}
				seen[header] = tenant + " " + id
			}
		}
	}
}
