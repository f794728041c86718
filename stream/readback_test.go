package stream

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// cutLetter returns the dead letter of a message without its payload.
func (w *world) cutLetter(ctx context.Context, seq uint64) edda.DeadLetter {
	w.T.Helper()
	m, err := w.Stream(ctx, wire.AggregateEvents).GetMsg(ctx, seq)
	if err != nil {
		w.T.Fatal(err)
	}
	ev := w.codec.Event(wire.Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: wire.AggregateEvents, Seq: seq, Time: m.Time})
	d := edda.DeadLetter{ID: "d1", Subject: ev.Subject, Event: ev, Cut: len(ev.Payload)}
	d.Event.Payload = nil
	return d
}

// orders stores a message for each body.
func (w *world) orders(ctx context.Context, bodies ...string) {
	w.T.Helper()
	for _, body := range bodies {
		if _, err := w.JS.Publish(ctx, "tenant.acme.aggregate.Order.O1", []byte(body)); err != nil {
			w.T.Fatal(err)
		}
	}
}

const (
	readable   = `{"event_id":"e1","event_type":"Paid","payload":{"amount":7}}`
	unreadable = `{"event_id":"e2"`
)

// ReadBack restored the payload of a dead letter from another message at the same sequence.
func TestReadBackRefusesTheMessageOfARecreatedStream(t *testing.T) {
	for what, change := range map[string]struct {
		do   func(ctx context.Context, w *world, s jetstream.Stream) error
		want string
	}{
		"message gone": {func(ctx context.Context, _ *world, s jetstream.Stream) error { return s.Purge(ctx) }, "is gone"},
		"stream gone": {func(ctx context.Context, w *world, _ jetstream.Stream) error {
			return w.JS.DeleteStream(ctx, wire.AggregateEvents)
		}, "there is no stream"},
		"another message": {func(ctx context.Context, w *world, s jetstream.Stream) error {
			return w.recreate(ctx, s, `{"event_id":"x1","event_type":"Paid","payload":{"amount":9000}}`, `{"event_id":"x2","event_type":"Paid","payload":{"amount":9000}}`)
		}, "another message now"},
		"the same id and subject": {func(ctx context.Context, w *world, s jetstream.Stream) error {
			return w.recreate(ctx, s, `{"event_id":"e1","event_type":"Paid","payload":{"amount":9000}}`, unreadable)
		}, "another message now"},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				p := NewPublisher(w.JS, w.codec)
				w.orders(ctx, readable, unreadable)
				whole, raw := w.cutLetter(ctx, 1), w.cutLetter(ctx, 2)
				if d, err := p.ReadBack(ctx, whole); err != nil || string(d.Event.Payload) != `{"amount":7}` {
					t.Errorf("before: %s, %v", d.Event.Payload, err)
				}
				if d, err := p.ReadBack(ctx, raw); err != nil || !strings.Contains(string(d.Event.Payload), "e2") {
					t.Errorf("unreadable, before: %s, %v", d.Event.Payload, err)
				}
				if err := change.do(ctx, w, w.Stream(ctx, wire.AggregateEvents)); err != nil {
					t.Fatal(err)
				}
				for _, d := range []edda.DeadLetter{whole, raw} {
					got, err := p.ReadBack(ctx, d)
					testkit.WantError(t, err, edda.Permanent, change.want)
					if got.Event.Payload != nil {
						t.Errorf("it has %s", got.Event.Payload)
					}
				}
				_, err := p.Resend(ctx, raw, nil, "again-1")
				testkit.WantError(t, err, edda.Permanent, "--data")
				if what == "stream gone" {
					return
				}
				if sent, err := p.Resend(ctx, raw, json.RawMessage(readable), "again-1"); err != nil || sent.Subject != raw.Subject {
					t.Errorf("with a body: %+v, %v", sent, err)
				}
			})
		})
	}
}

// recreate recreates a stream a second later, with other messages.
func (w *world) recreate(ctx context.Context, s jetstream.Stream, bodies ...string) error {
	cfg := s.CachedInfo().Config
	if err := w.JS.DeleteStream(ctx, cfg.Name); err != nil {
		return err
	}
	time.Sleep(time.Second) // virtual
	if _, err := w.JS.CreateStream(ctx, cfg); err != nil {
		return err
	}
	w.orders(ctx, bodies...)
	return nil
}

func TestIsOfComparesTimeSubjectTenantAndID(t *testing.T) {
	p := &Publisher{}
	m := wire.Message{Subject: "tenant.acme.aggregate.Order.O1", Data: []byte(readable), Stream: wire.AggregateEvents, Seq: 1, Time: noon}
	d := edda.DeadLetter{Event: p.codec.Event(m)}
	if !p.isOf(m, d) {
		t.Fatal("it is not itself")
	}
	long := d
	if long.Event.ID = "e"; !p.isOf(m, long) {
		t.Error("an id that was kept in part")
	}
	raised := d
	if raised.Event.Malformed, raised.Event.ID = edda.DeadTooLarge, p.codec.ID(m); !p.isOf(m, raised) {
		t.Error("a message that was too large, and no longer is")
	}
	for what, change := range map[string]func(m *wire.Message, d *edda.DeadLetter){
		"another id":      func(m *wire.Message, _ *edda.DeadLetter) { m.Data = []byte(strings.Replace(readable, "e1", "x1", 1)) },
		"another time":    func(m *wire.Message, _ *edda.DeadLetter) { m.Time = m.Time.Add(1) },
		"another subject": func(m *wire.Message, d *edda.DeadLetter) { d.Subject = m.Subject; m.Subject += "1" },
		"another tenant":  func(m *wire.Message, _ *edda.DeadLetter) { m.Subject = "tenant.zeta.aggregate.Order.O1" },
	} {
		other, letter := m, d
		if change(&other, &letter); p.isOf(other, letter) {
			t.Error(what)
		}
	}
}
