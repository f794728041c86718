package natseffect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
	"edda/stream/kv"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	effecttest.Run(t, effecttest.Fixture{
		Provider:    provider(t, d.url),
		Accepted:    map[string]any{"subject": "stock.reserve", "body": map[string]any{"sku": "a"}},
		Hangs:       map[string]any{"subject": "stock.hang"},
		Unreachable: map[string]any{"subject": "nobody.listens"},
		Impossible:  map[string]any{"subject": "stock.*"},
		Seen:        d.count,
	})
}

func TestARequestAsTheServiceGetsIt(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	p := provider(t, d.url)
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct {
		name string
		call effects.Call
		want nats.Header
		body string
	}{
		{"everything", effects.Call{Key: "k1", Trace: trace, Config: map[string]any{
			"subject": "stock.reserve.a", "body": map[string]any{"n": 9007199254740993, "html": "<b>"},
			"headers": map[string]any{"X-Many": []any{"a", 2}, "X-None": nil, "Authorization": "Bearer s"},
		}}, nats.Header{
			"Nats-Msg-Id": {"k1"}, "Idempotency-Key": {"k1"}, "traceparent": {trace}, "Content-Type": {"application/json"},
			"X-Many": {"a", "2"}, "Authorization": {"Bearer s"},
		}, `{"html":"<b>","n":9007199254740993}`},
		{"a subject alone", effects.Call{Key: "k2", Trace: "no trace", Config: map[string]any{"subject": "stock.reserve"}},
			nats.Header{"Nats-Msg-Id": {"k2"}, "Idempotency-Key": {"k2"}}, ""},
		{"a text as it is, and names of the manifest", effects.Call{Key: "k3", Config: map[string]any{
			"subject": "stock.reserve", "body": "a=1", "headers": map[string]any{"content-type": "text/plain", "nats-msg-id": "mine", "idempotency-key": "own"},
		}}, nats.Header{"content-type": {"text/plain"}, "nats-msg-id": {"mine"}, "idempotency-key": {"own"}}, "a=1"},
		{"a check", effects.Call{Key: "k4", Asks: true, Config: map[string]any{"subject": "stock.find", "body": nil}},
			nats.Header{"Idempotency-Key": {"k4"}, "Content-Type": {"application/json"}}, "null"},
	} {
		if _, err := p.Call(t.Context(), tt.call); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		m := d.latest()
		if diff := cmp.Diff(tt.want, m.Header); diff != "" || string(m.Data) != tt.body || m.Subject != tt.call.Config["subject"] {
			t.Errorf("%s: %s %s%s", tt.name, m.Subject, m.Data, diff)
		}
	}
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	p := provider(t, d.url)
	for _, config := range []map[string]any{
		{}, {"subject": ""}, {"subject": "stock."}, {"subject": "stock..a"}, {"subject": "stock.a b"}, {"subject": "stock.>"}, {"subject": "stock.\x00"},
		{"subject": "$JS.API.STREAM.DELETE.STOCK"}, {"subject": "_INBOX.x"}, {"subject": strings.Repeat("x", maxSubject+1)},
		{"subject": "stock.a", "headers": "a"}, {"subject": "stock.a", "headers": map[string]any{"a b": 1}}, {"subject": "stock.a", "headers": map[string]any{"a:b": nil}},
		{"subject": "stock.a", "headers": map[string]any{"a": []any{"b\r\nc: d"}}},
		{"subject": "stock.a", "body": strings.Repeat("x", maxPayload)},
	} {
		if _, err := call(t, p, "k", config); !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) {
			t.Errorf("%.60v: %v", config, err)
		}
	}
	if n := d.count("k"); n != 0 {
		t.Errorf("the service saw %d requests", n)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	p := provider(t, d.url)
	serviceError := func(code, text string) nats.Header {
		return nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {text}}
	}
	refused := func(code, text string, more ...any) any {
		body := map[string]any{"code": code, "message": text}
		if len(more) > 0 {
			body["data"] = more[0]
		}
		return body
	}
	for _, tt := range []struct {
		header nats.Header
		data   string
		want   effects.Response
	}{
		{nil, `{"n":9007199254740993}`, effects.Response{Status: 200, Body: map[string]any{"n": 9007199254740993}}},
		{nil, `{"n":99999999999999999999}`, effects.Response{Status: 200, Body: map[string]any{"n": json.Number("99999999999999999999")}}},
		{nil, "plain \xff", effects.Response{Status: 200, Body: "plain \uFFFD"}},
		{nil, "", effects.Response{Status: 200}},
		{nil, `{"stream":"X","seq":1,"more":true}`, effects.Response{Status: 200, Body: map[string]any{"stream": "X", "seq": 1, "more": true}}},
		{nats.Header{"X-Many": {"a", "b"}}, `1`, effects.Response{Status: 200, Body: 1, Headers: map[string]string{"x-many": "a, b"}}},
		{serviceError("404", "no such order"), ``, effects.Response{Status: 404, Body: refused("404", "no such order")}},
		{serviceError("OUT_OF_STOCK", "none left"), `{"left":0}`, effects.Response{Body: refused("OUT_OF_STOCK", "none left", map[string]any{"left": 0})}},
		{serviceError("200", "odd"), ``, effects.Response{Body: refused("200", "odd")}},
		{serviceError("409", "again"), ``, effects.Response{Status: 409, Body: refused("409", "again"), Apart: true}},
		{serviceError("429", "slow"), ``, effects.Response{Status: 429, Body: refused("429", "slow"), Retry: true, Refused: true}},
		{serviceError("408", "late"), ``, effects.Response{Status: 408, Body: refused("408", "late"), Retry: true, Unknown: true}},
		{serviceError("500", "oops"), strings.Repeat("x", maxAnswer+1), effects.Response{Status: 500, Body: refused("500", "oops"), Retry: true, Unknown: true}},
		{nats.Header{"nats-service-error": {"only a text"}}, ``, effects.Response{Body: refused("", "only a text")}},
	} {
		d.answers(func(m *nats.Msg) {
			if err := m.RespondMsg(&nats.Msg{Header: tt.header, Data: []byte(tt.data)}); err != nil {
				t.Error(err)
			}
		})
		r, err := call(t, p, "k", map[string]any{"subject": "stock.reserve"})
		if err != nil {
			t.Fatal(err)
		}
		if tt.want.Headers == nil {
			r.Headers = nil
		}
		if diff := cmp.Diff(tt.want, r); diff != "" {
			t.Errorf("%v %.40s: %s", tt.header, tt.data, diff)
		}
	}
}

// TestAServiceOfTheServicesAPI has a handler of the library that services are written with.
func TestAServiceOfTheServicesAPI(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	_, err := micro.AddService(d.conn, micro.Config{Name: "bank", Version: "1.0.0", Endpoint: &micro.EndpointConfig{
		Subject: "bank.charge",
		Handler: micro.HandlerFunc(func(r micro.Request) { _ = r.Error("402", "no cover", []byte(`{"missing":7}`)) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := call(t, provider(t, d.url), "k", map[string]any{"subject": "bank.charge"})
	want := map[string]any{"code": "402", "message": "no cover", "data": map[string]any{"missing": 7}}
	if diff := cmp.Diff(want, r.Body); err != nil || r.Status != 402 || diff != "" {
		t.Errorf("%d %v %s", r.Status, err, diff)
	}
}

func TestAMemberOfAQueueGroupAnswersEachCall(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	p := provider(t, d.url)
	var answered [2]atomic.Int64
	for i := range answered {
		conn, _ := d.connect(kv.Connection{URL: d.url})
		if _, err := conn.QueueSubscribe("pool.work", "workers", func(m *nats.Msg) {
			answered[i].Add(1)
			d.respond(m, fmt.Sprintf("%q", m.Header.Get("Idempotency-Key")))
		}); err != nil {
			t.Fatal(err)
		}
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	const calls = 200
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			key := fmt.Sprintf("k%d", i)
			if r, err := call(t, p, key, map[string]any{"subject": "pool.work"}); err != nil || r.Body != key {
				t.Errorf("%s is answered %v %v", key, r.Body, err)
			}
		})
	}
	all.Wait()
	first, second := answered[0].Load(), answered[1].Load()
	if first+second != calls || first == 0 || second == 0 {
		t.Errorf("the members answered %d and %d of %d calls", first, second, calls)
	}
}

func TestTheFirstOfTwoAnswersCounts(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	p := provider(t, d.url)
	d.answers(func(m *nats.Msg) {
		d.respond(m, fmt.Sprintf(`"first of %s"`, m.Header.Get("Idempotency-Key")))
		d.respond(m, `"second"`)
	})
	for i := range 20 {
		key := fmt.Sprintf("k%d", i)
		if r, err := call(t, p, key, map[string]any{"subject": "stock.reserve"}); err != nil || r.Body != "first of "+key {
			t.Errorf("%s is answered %v %v", key, r.Body, err)
		}
	}
}

func TestAnAnswerThatIsTooLongMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.answers(func(m *nats.Msg) { d.respond(m, strings.Repeat("x", maxAnswer+1)) })
	_, err := call(t, provider(t, d.url), "k", map[string]any{"subject": "stock.reserve"})
	if !errors.Is(err, edda.Permanent) || errors.Is(err, effects.ErrNotSent) {
		t.Errorf("error %v", err)
	}
}

// TestTheAckOfAStreamIsNoAnswer: a stream that has the subject replies before the service does.
func TestTheAckOfAStreamIsNoAnswer(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	if _, err := d.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	_, err := call(t, provider(t, d.url), "k", map[string]any{"subject": "orders.new"})
	if !errors.Is(err, edda.Permanent) || errors.Is(err, effects.ErrNotSent) || !strings.Contains(err.Error(), `the stream "ORDERS" has orders.new`) {
		t.Errorf("error %v", err)
	}
}

// TestFaults breaks the network between the provider and the server.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault       func(*effecttest.Faults)
		least, most int // how often the service sees the call
	}{
		"answers are lost":              {(*effecttest.Faults).NoAnswers, 1, 1},
		"requests are lost":             {(*effecttest.Faults).NoRequests, 0, 0},
		"requests reset the connection": {(*effecttest.Faults).ResetRequests, 0, 0},
		"answers reset the connection":  {(*effecttest.Faults).ResetAnswers, 0, 1},
		"the answer breaks off":         {func(f *effecttest.Faults) { f.CutAnswers(20) }, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			f := effecttest.NewFaults(t, strings.TrimPrefix(d.url, "nats://"))
			p := provider(t, "nats://"+f.Address())
			config := map[string]any{"subject": "stock.reserve"}
			if _, err := call(t, p, "before", config); err != nil {
				t.Fatal(err)
			}
			tt.fault(f)
			lost := d.unanswered(p, 300*time.Millisecond, "lost", config)
			f.None()
			until(t, "the network is well again", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				_, err := p.Call(ctx, effects.Call{Key: "after", Config: config})
				return err == nil
			})
			n := d.count("lost")
			if n < tt.least || n > tt.most {
				t.Errorf("the service saw %d calls", n)
			}
			if lost == nil || errors.Is(lost, edda.Permanent) || n > 0 && errors.Is(lost, effects.ErrNotSent) {
				t.Errorf("error %v, and the service saw %d calls", lost, n)
			}
		})
	}
}

// TestNothingIsSentAfterAReconnect: a call that ended while NATS was away must not be made later,
// because its step may have been undone.
func TestNothingIsSentAfterAReconnect(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	f := effecttest.NewFaults(t, strings.TrimPrefix(d.url, "nats://"))
	p := provider(t, "nats://"+f.Address())
	config := map[string]any{"subject": "stock.reserve"}
	if _, err := call(t, p, "before", config); err != nil {
		t.Fatal(err)
	}
	f.Down()
	until(t, "the client notices", func() bool { return !p.link.conn.IsConnected() })
	if _, err := call(t, p, "away", config); !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) {
		t.Errorf("error %v", err)
	}
	// Nor does the client keep one that was published before it noticed.
	unnoticed := &nats.Msg{Subject: "stock.reserve", Header: nats.Header{"Idempotency-Key": {"unnoticed"}}}
	if err := lost("stock.reserve", p.link.conn.PublishMsg(unnoticed)); !errors.Is(err, effects.ErrNotSent) {
		t.Errorf("error %v", err)
	}
	f.Up()
	until(t, "NATS is back", func() bool {
		_, err := call(t, p, "after", config)
		return err == nil
	})
	if n := d.count("away") + d.count("unnoticed"); n > 0 {
		t.Errorf("the service saw %d calls of the time without NATS", n)
	}
}

func TestAClosedProviderCallsNobody(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	p := provider(t, d.url)
	p.Close()
	if _, err := call(t, p, "k", map[string]any{"subject": "stock.reserve"}); !errors.Is(err, effects.ErrNotSent) {
		t.Errorf("error %v", err)
	}
	wrong := New(Options{Connect: func() (*nats.Conn, jetstream.JetStream, error) {
		return nil, nil, edda.Classify(edda.Permanent, "no such file")
	}})
	if _, err := call(t, wrong, "k", map[string]any{"subject": "stock.reserve"}); !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
}
