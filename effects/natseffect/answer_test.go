package natseffect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
)

// openStore is a depot whose requests and answers are stored. Its service answers requests to
// orders.reserve on orders.done.
func openStore(t testing.TB) *depot {
	t.Helper()
	d := openDepot(t)
	d.stream(jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.reserve", "orders.hang"}})
	d.stream(jetstream.StreamConfig{Name: "DONE", Subjects: []string{"orders.done.*"}})
	d.subscribe("orders.*", "", func(m *nats.Msg) {
		key := m.Header.Get("Idempotency-Key")
		d.mu.Lock()
		d.seen[key]++
		d.last = m
		d.mu.Unlock()
		if m.Subject == "orders.reserve" {
			d.done(key, nil, `{"id":"R1"}`)
		}
	})
	return d
}

func (d *depot) stream(c jetstream.StreamConfig) {
	d.t.Helper()
	if _, err := d.js.CreateStream(context.Background(), c); err != nil {
		d.t.Fatal(err)
	}
}

// done publishes an answer.
func (d *depot) done(key string, h nats.Header, text string) {
	if _, err := d.js.PublishMsg(context.Background(), &nats.Msg{Subject: "orders.done." + key, Header: h, Data: []byte(text)}); err != nil {
		d.t.Error(err)
	}
}

// stored is the config of a call to a subject whose answer comes in DONE.
func stored(subject string) map[string]any {
	return map[string]any{"subject": subject, "stream": "ORDERS", "answer": map[string]any{"stream": "DONE", "subject": "orders.done"}, "body": map[string]any{"n": 1}}
}

func TestAnAnswerComesInAStream(t *testing.T) {
	t.Parallel()
	d := openStore(t)
	p := provider(t, d.url)
	want := effects.Response{Status: 200, Body: map[string]any{"id": "R1"}}
	for range 2 { // the second call finds the answer
		r, err := call(t, p, "k", stored("orders.reserve"))
		r.Headers = nil
		if diff := cmp.Diff(want, r); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		// The call may hear the answer before the stream has stored it.
		until(t, "the answer is stored", func() bool {
			s, err := d.js.Stream(t.Context(), "DONE")
			return err == nil && s.CachedInfo().State.Msgs == 1
		})
	}
	m := d.latest()
	if d.count("k") != 1 || string(m.Data) != `{"n":1}` || m.Header.Get("Nats-Msg-Id") != "k" {
		t.Errorf("the service got %d requests: %s %v", d.count("k"), m.Data, m.Header)
	}
	if s, err := d.js.Stream(t.Context(), "ORDERS"); err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("stored are %+v %v", s.CachedInfo().State, err)
	}
}

func TestTheAckOfAStreamIsTheResultOfAPublication(t *testing.T) {
	t.Parallel()
	d := openStore(t)
	p := provider(t, d.url)
	for _, duplicate := range []bool{false, true} {
		r, err := call(t, p, "k", map[string]any{"subject": "orders.hang", "stream": "ORDERS"})
		want := effects.Response{Status: 200, Body: map[string]any{"stream": "ORDERS", "seq": 1, "duplicate": duplicate}}
		if diff := cmp.Diff(want, r); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
}

// TestAnAnswerIsNotLostWithItsProcess: it comes when nobody waits, and the next process finds it.
func TestAnAnswerIsNotLostWithItsProcess(t *testing.T) {
	t.Parallel()
	d := openStore(t)
	died := provider(t, d.url)
	ended := make(chan error, 1)
	go func() {
		_, err := call(t, died, "k", stored("orders.hang"))
		ended <- err
	}()
	until(t, "the service has the request", func() bool { return d.count("k") == 1 })
	died.link.conn.Close()
	d.done("k", nil, `{"id":"late"}`)
	r, err := call(t, provider(t, d.url), "k", stored("orders.hang"))
	if body, _ := r.Body.(map[string]any); err != nil || body["id"] != "late" || d.count("k") != 1 {
		t.Errorf("answer %v %v, and the service got %d requests", r.Body, err, d.count("k"))
	}
	asked, err := provider(t, d.url).Call(t.Context(), effects.Call{Key: "k", Asks: true, Config: map[string]any{"answer": stored("")["answer"]}})
	if body, _ := asked.Body.(map[string]any); err != nil || body["id"] != "late" {
		t.Errorf("the check finds %v %v", asked.Body, err)
	}
	if err := <-ended; err == nil || errors.Is(err, effects.ErrNotSent) {
		t.Errorf("the call of the process that died: %v", err)
	}
}

// TestAnAnswerThatComesWhileNATSIsAwayIsFound, although the subscription missed it.
func TestAnAnswerThatComesWhileNATSIsAwayIsFound(t *testing.T) {
	t.Parallel()
	d := openStore(t)
	f := effecttest.NewFaults(t, strings.TrimPrefix(d.url, "nats://"))
	p := provider(t, "nats://"+f.Address())
	type outcome struct {
		r   effects.Response
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		r, err := call(t, p, "k", stored("orders.hang"))
		ended <- outcome{r, err}
	}()
	until(t, "the service has the request", func() bool { return d.count("k") == 1 })
	f.Down()
	d.done("k", nil, `"meanwhile"`)
	f.Up()
	o := <-ended
	if errors.Is(o.err, context.DeadlineExceeded) { // the acknowledgement of the request was lost: the worker calls again
		until(t, "NATS is back", func() bool {
			o.r, o.err = call(t, p, "k", stored("orders.hang"))
			return !errors.Is(o.err, effects.ErrNotSent)
		})
	}
	if o.err != nil || o.r.Body != "meanwhile" || d.count("k") != 1 {
		t.Errorf("answer %v %v, and the service got %d requests", o.r.Body, o.err, d.count("k"))
	}
}

func TestAnErrorAsAnAnswerInAStreamIsFinal(t *testing.T) {
	t.Parallel()
	d := openStore(t)
	p := provider(t, d.url)
	for code, unknown := range map[string]bool{"NO_STOCK": false, "429": false, "500": true} {
		d.done(code, nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {"because"}}, "")
		r, err := call(t, p, code, stored("orders.reserve"))
		if body, _ := r.Body.(map[string]any); err != nil || r.Retry || r.Unknown != unknown || body["code"] != code {
			t.Errorf("%s: %+v %v", code, r, err)
		}
	}
}

// TestWhatNoStreamKeepsIsNotSent: without its streams a call would lose its request or its answer.
func TestWhatNoStreamKeepsIsNotSent(t *testing.T) {
	t.Parallel()
	d := openStore(t)
	p := provider(t, d.url)
	d.stream(jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other.>"}})
	d.stream(jetstream.StreamConfig{Name: "QUEUE", Subjects: []string{"queue.done.*"}, Retention: jetstream.WorkQueuePolicy})
	d.stream(jetstream.StreamConfig{Name: "FULL", Subjects: []string{"full.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	if _, err := d.js.Publish(t.Context(), "full.a", nil); err != nil {
		t.Fatal(err)
	}
	answer := func(stream, subject string) map[string]any {
		return map[string]any{"stream": stream, "subject": subject}
	}
	for i, tt := range []struct {
		subject, stream string
		answer          map[string]any
		want            string
	}{
		{"orders.none", "ORDERS", nil, `the stream "ORDERS" does not have the subject orders.none: add it to the stream`},
		{"orders.reserve", "NONE", nil, `there is no stream "NONE": make it, with the subject orders.reserve`},
		{"other.a", "ORDERS", nil, `the stream "ORDERS" does not have the subject other.a`},
		{"full.b", "FULL", nil, `the stream "FULL" does not store full.b`},
		{"orders.reserve", "ORDERS", answer("NONE", "orders.done"), `there is no stream "NONE": make it, with the subject orders.done.k4`},
		{"orders.reserve", "ORDERS", answer("OTHER", "orders.done"), `the stream "OTHER" does not have the subject orders.done.k5`},
		{"orders.reserve", "ORDERS", answer("QUEUE", "queue.done"), `the stream "QUEUE" has the retention WorkQueue and may lose answers`},
	} {
		config := map[string]any{"subject": tt.subject, "stream": tt.stream}
		if tt.answer != nil {
			config["answer"] = tt.answer
		}
		key := fmt.Sprint("k", i)
		_, err := call(t, p, key, config)
		if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %s", tt.stream, tt.subject, err, tt.want)
		}
	}
	if d.count("k0") > 0 {
		t.Error("the service got a request that no stream has")
	}
	if _, err := call(t, p, "a.b", stored("orders.reserve")); !errors.Is(err, edda.Permanent) || d.count("a.b") != 0 {
		t.Errorf("a key with a dot: %v", err)
	}
	for _, stream := range []string{"ORDERS", "OTHER"} {
		if s, err := d.js.Stream(t.Context(), stream); err != nil || s.CachedInfo().State.Msgs != 0 || s.CachedInfo().State.Consumers != 0 {
			t.Errorf("%s has %+v %v", stream, s.CachedInfo().State, err)
		}
	}
}

func TestACallForAnAnswerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := openStore(t)
	err := d.unanswered(provider(t, d.url), 100*time.Millisecond, "k", stored("orders.hang"))
	if err == nil || errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestExampleOfStreams(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.stream(jetstream.StreamConfig{Name: "DEPOT", Subjects: []string{"depot.pack"}})
	d.stream(jetstream.StreamConfig{Name: "PACKED", Subjects: []string{"depot.packed.*"}})
	packed := make(chan error, 1) // the effect may have the answer before its publisher has the acknowledgement
	d.subscribe("depot.pack", "packers", func(m *nats.Msg) {
		_, err := d.js.Publish(context.Background(), "depot.packed."+m.Header.Get("Idempotency-Key"), []byte(`{"parcels":2}`))
		packed <- err
	})
	queue := effecttest.Work(t, exampleOf(t, "effect-nats-stream.yaml"), provider(t, d.url))
	r := queue.Do(effects.Command{Tenant: "acme", ID: "c1", Effect: "pack_lot", Payload: json.RawMessage(`{"lot":"L1"}`)})
	if r.Outcome != edda.Succeeded || string(r.Payload) != `{"parcels":2}` || r.Attempts != 1 {
		t.Errorf("result %s %s after %d calls", r.Outcome, r.Payload, r.Attempts)
	}
	if err := <-packed; err != nil {
		t.Error(err)
	}
}

func TestPatternsOfStreams(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a", false}, {"a", "a.b", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"a.>", "a.b.c", true},
		{"a.>", "a", false}, {">", "a", true}, {"*.b", "a.b", true}, {"*.b", "a.c", false},
	} {
		if got := matches(tt.pattern, tt.subject); got != tt.want {
			t.Errorf("%s has %s: %t", tt.pattern, tt.subject, got)
		}
	}
}
