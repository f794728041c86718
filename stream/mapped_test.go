package stream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// others creates a stream of others and returns a codec with a source that reads it.
func (w *world) others(ctx context.Context, c jetstream.StreamConfig, o wire.MappingOptions) wire.Codec {
	w.T.Helper()
	_, err := w.JS.CreateStream(ctx, c)
	w.Must(err)
	o.Source, o.Stream, o.DefaultTenant = "orders", c.Name, "acme"
	m, err := wire.NewMapping(o)
	w.Must(err)
	return wire.Codec{Mappings: map[string]*wire.Mapping{c.Name: m}}
}

var ordersStream = jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}

// publish stores messages of one body each on a subject, one second apart.
func (w *world) publish(ctx context.Context, subject string, bodies ...string) {
	w.T.Helper()
	for _, body := range bodies {
		time.Sleep(time.Second) // virtual: the store times differ
		_, err := w.JS.Publish(ctx, subject, []byte(body))
		w.Must(err)
	}
}

// eventually waits in virtual time, a minute at most, until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(time.Minute / 600)
	}
	t.Fatalf("%s: not within a minute", what)
}

func types(events []edda.Event) (out []string) {
	for _, ev := range events {
		id, _, _ := strings.Cut(ev.ID, "@") // without the store time
		out = append(out, fmt.Sprintf("%s.%s %s", ev.AggregateType, ev.Type, id))
	}
	return out
}

func TestTheBacklogOfASourceIsMergedWithThatOfEddasStreams(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{})
		w.publish(ctx, "orders.created", "1")
		w.publish(ctx, "tenant.acme.aggregate.Order.O1", `{"event_id":"own","event_type":"Paid"}`)
		w.publish(ctx, "orders.cancelled", "2", "no JSON", `{"stream":"ORDERS","seq":1}`)
		before := w.Stream(ctx, "ORDERS").CachedInfo().Config
		src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
		defer stop()
		got := fetch(ctx, t, src, 5)
		want := []string{"orders.created ORDERS:1", "Order.Paid own", "orders.cancelled ORDERS:2", ". ORDERS:3", "orders.cancelled ORDERS:4"}
		if !slices.Equal(types(got), want) {
			t.Errorf("got %q, want %q", types(got), want)
		}
		if bad := got[3]; bad.Malformed != edda.DeadUndecodable || bad.Tenant != "acme" || !strings.Contains(bad.Error, "the body is not JSON") {
			t.Errorf("the message without JSON is %+v", bad)
		}
		wantEnd(t, ends(ctx, t, src, "ORDERS"), 4, 4)
		var again []string
		_, err := NewPast(w.JS, codec).Each(ctx, "acme", []edda.Checkpoint{{Stream: "ORDERS", Seq: 4}}, func(ev edda.Event) error {
			again = append(again, types([]edda.Event{ev})...)
			return nil
		})
		if want = slices.Delete(want, 1, 2); err != nil || !slices.Equal(again, want) {
			t.Errorf("a replay reads %q, want %q: %v", again, want, err)
		}
		if after := w.Stream(ctx, "ORDERS").CachedInfo().Config; !reflect.DeepEqual(before, after) {
			t.Errorf("the stream was changed from %+v to %+v", before, after)
		}
	})
}

func TestASourceReadsOnlyItsSubjectsAndServedTenants(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{Subjects: []string{"orders.eu.*"}, Tenant: "=body"})
		w.publish(ctx, "orders.us.created", `"acme"`)
		w.publish(ctx, "orders.eu.created", `"acme"`, `"other"`, `"acme"`)
		w.publish(ctx, "orders.us.created", `"acme"`)
		o := SourceOptions{Codec: codec, Tenants: wire.Tenants{"acme"}}
		src, stop := w.open(ctx, nil, o)
		defer stop()
		if got := fetch(ctx, t, src, 2); got[0].Seq != 2 || got[1].Seq != 4 {
			t.Errorf("read %v", types(got))
		}
		none(ctx, t, src, time.Minute)
		w.publish(ctx, "orders.eu.created", `"other"`) // is no input: no timer waits for it
		if end := ends(ctx, t, src, "ORDERS"); end.Need != 4 || end.Last.Seq != 6 {
			t.Errorf("the end is %+v", end)
		}
		at := edda.Checkpoint{Stream: "ORDERS", Seq: 6}
		for tenant, want := range map[string][]uint64{"acme": {2, 4}, "other": {3, 6}} {
			var seqs []uint64
			first, err := NewPast(w.JS, codec).Each(ctx, tenant, []edda.Checkpoint{at}, func(ev edda.Event) error {
				seqs = append(seqs, ev.Seq)
				return nil
			})
			if err != nil || !slices.Equal(seqs, want) || first["ORDERS"] != 1 {
				t.Errorf("a replay of %s reads %v, %v: %v", tenant, seqs, first, err)
			}
		}
	})
}

// A timer must not wait for a message of a tenant that is not served.
func TestOnlyReadingTellsWhetherAMessageOfASourceIsServed(t *testing.T) {
	for _, c := range []struct {
		tenant string
		served wire.Tenants
		want   bool
	}{
		{"=body", wire.Tenants{"acme"}, true}, {"=body", nil, false},
		{"acme", wire.Tenants{"acme"}, false}, {"acme", wire.Tenants{"other"}, true}, {"", wire.Tenants{"a*"}, false},
	} {
		m, err := wire.NewMapping(wire.MappingOptions{Source: "orders", Stream: "ORDERS", Tenant: c.tenant, DefaultTenant: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		r := reader{mapping: m, tenants: new(atomic.Pointer[wire.Tenants])}
		r.tenants.Store(&c.served)
		if got := r.mustRead(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestASourceContinuesAtItsPositionAndBeginsWhereItSays(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{})
		w.publish(ctx, "orders.created", "1", "2", "3")
		for from, want := range map[From]uint64{FromAll: 0, FromNow: 3} {
			src, stop := w.open(ctx, nil, SourceOptions{Codec: codec, From: FromNow, Begin: map[string]From{"ORDERS": from}})
			stop()
			if at := src.Start()[3]; at.Stream != "ORDERS" || at.Seq != want {
				t.Errorf("from %s it begins at %+v", from, at)
			}
		}
		m, err := w.Stream(ctx, "ORDERS").GetMsg(ctx, 2)
		w.Must(err)
		held := []edda.Checkpoint{{Stream: "ORDERS", Seq: 2, Time: m.Time, Created: w.Stream(ctx, "ORDERS").CachedInfo().Created}}
		src, stop := w.open(ctx, held, SourceOptions{Codec: codec})
		if got := fetch(ctx, t, src, 1); got[0].Seq != 3 {
			t.Errorf("behind position 2 comes %+v", got[0])
		}
		stop()
		starts, err := Beginnings(ctx, w.JS, codec)
		if last := starts[len(starts)-1]; err != nil || last.Stream != "ORDERS" || last.Seq != 0 || last.Messages != 3 {
			t.Errorf("a saga with from: all begins at %+v: %v", starts, err)
		}
		w.Must(w.Stream(ctx, "ORDERS").Purge(ctx))
		w.publish(ctx, "orders.created", "4", "5")
		w.Must(w.Stream(ctx, "ORDERS").DeleteMsg(ctx, 4))
		if _, err := OpenSource(ctx, w.JS, held, SourceOptions{Codec: codec}); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "stream ORDERS begins at 5, but only messages up to 2 were handled") {
			t.Errorf("after a loss: %v", err)
		}
	})
}

func TestAStreamThatASourceCannotReadIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*jetstream.StreamConfig, *wire.MappingOptions)
		kind   error
		want   string
	}{
		"a work queue": {func(c *jetstream.StreamConfig, _ *wire.MappingOptions) { c.Retention = jetstream.WorkQueuePolicy }, edda.Permanent, "removes messages once its consumers have them"},
		"interest":     {func(c *jetstream.StreamConfig, _ *wire.MappingOptions) { c.Retention = jetstream.InterestPolicy }, edda.Permanent, "removes messages once its consumers have them"},
		"other subjects": {func(_ *jetstream.StreamConfig, o *wire.MappingOptions) { o.Subjects = []string{"order.>"} }, edda.Permanent,
			"source orders: stream ORDERS has no subject order.>, only orders.>: correct sources.orders.subjects"},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				config, o := ordersStream, wire.MappingOptions{}
				c.change(&config, &o)
				codec := w.others(ctx, config, o)
				if _, err := OpenSource(ctx, w.JS, nil, SourceOptions{Codec: codec}); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
			})
		})
	}
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{})
		w.Must(w.JS.DeleteStream(ctx, "ORDERS"))
		_, err := OpenSource(ctx, w.JS, nil, SourceOptions{Codec: codec})
		if !errors.Is(err, ErrAwaited) || err.Error() != "source orders: there is no stream ORDERS: create it, or correct sources.orders.stream" {
			t.Error(err)
		}
		watch := NewWatch(w.JS, codec.Mappings, nil, nil, nil)
		watch.check(ctx, "ORDERS")
		if err := watch.Problem(); err == nil || !strings.Contains(err.Error(), "stream ORDERS of source orders is gone") {
			t.Error(err)
		}
	})
}

func TestRecentReadsTheLastMessagesOfASource(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{Subjects: []string{"orders.rare"}})
		m := codec.Mappings["ORDERS"]
		if got, err := Recent(ctx, w.JS, m, 2); err != nil || got != nil {
			t.Errorf("of an empty stream: %v, %v", got, err)
		}
		w.publish(ctx, "orders.rare", "1", "2", "3")
		w.publish(ctx, "orders.often", slices.Repeat([]string{"0"}, 40)...)
		for n, want := range map[int]string{1: "3", 2: "2 3", 3: "1 2 3", 9: "1 2 3"} {
			got, err := Recent(ctx, w.JS, m, n)
			var bodies []string
			for _, one := range got {
				bodies = append(bodies, string(one.Data))
			}
			if err != nil || strings.Join(bodies, " ") != want {
				t.Errorf("the last %d are %q: %v", n, bodies, err)
			}
		}
	})
}

// A redrive must not publish to the stream of others, and reads the message as the source says now.
func TestAResentMessageOfASourceGoesToEddasOwnStream(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{ID: "=body.id"})
		w.publish(ctx, "orders.created", "oops", `{"n":1}`)
		src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
		defer stop()
		dead := fetch(ctx, t, src, 2)
		letter := func(i int) edda.DeadLetter {
			return edda.DeadLetter{ID: "d1", Subject: dead[i].Subject, Raw: dead[i].Payload, Event: dead[i], Reason: dead[i].Malformed}
		}
		p := NewPublisher(w.JS, codec)
		if _, err := p.Resend(ctx, letter(1), nil, "new"); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "message 2 of stream ORDERS still cannot be read") {
			t.Errorf("without a mend: %v", err)
		}
		mended, err := wire.NewMapping(wire.MappingOptions{Source: "orders", Stream: "ORDERS", DefaultTenant: "acme"})
		w.Must(err)
		p = NewPublisher(w.JS, wire.Codec{Mappings: map[string]*wire.Mapping{"ORDERS": mended}})
		if _, err := p.Resend(ctx, letter(1), nil, "new"); err != nil {
			t.Errorf("with a corrected source: %v", err)
		}
		if _, err := p.Resend(ctx, letter(0), []byte(`{"n":2}`), "new"); err != nil {
			t.Errorf("with data: %v", err)
		}
		got := fetch(ctx, t, src, 2)
		want := []string{"orders.created ORDERS:2", "orders.created ORDERS:1"}
		if !slices.Equal(types(got), want) || got[0].Stream != wire.AggregateEvents || string(got[1].Payload) != `{"n":2}` {
			t.Errorf("got %q from %s", types(got), got[0].Stream)
		}
		if n := w.Stream(ctx, "ORDERS").CachedInfo().State.Msgs; n != 2 {
			t.Errorf("the stream of others has %d messages", n)
		}
		unmapped := NewPublisher(w.JS, wire.Codec{})
		if _, err := unmapped.Resend(ctx, letter(1), nil, "new"); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "no source reads the stream ORDERS any more") {
			t.Errorf("without the source: %v", err)
		}
		if _, err := unmapped.ReadBack(ctx, letter(1)); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "no source reads") {
			t.Errorf("read back without the source: %v", err)
		}
		if n := w.Stream(ctx, "ORDERS").CachedInfo().State.Msgs; n != 2 {
			t.Errorf("the stream of others has %d messages without the source", n)
		}
		w.Must(w.JS.DeleteStream(ctx, "ORDERS"))
		if _, err := p.Resend(ctx, letter(0), nil, "new"); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "no stream ORDERS") {
			t.Errorf("without the stream: %v", err)
		}
		elsewhere, err := wire.NewMapping(wire.MappingOptions{Source: "orders", Stream: "ORDERS", Tenant: "=body.tenant", DefaultTenant: "acme"})
		w.Must(err)
		p = NewPublisher(w.JS, wire.Codec{Mappings: map[string]*wire.Mapping{"ORDERS": elsewhere}})
		if _, err := p.Resend(ctx, letter(0), []byte(`{"tenant":"victim"}`), "new"); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "another tenant, victim") {
			t.Errorf("data that names another tenant: %v", err)
		}
	})
}

// A source that was removed must not refuse a start, nor make a replay of a part look whole.
func TestAStreamThatNoSourceReadsAnyMoreIsLeftAlone(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{})
		w.publish(ctx, "orders.created", "1", "2", "3")
		held := []edda.Checkpoint{{Stream: "ORDERS", Seq: 2}}
		first := func(c wire.Codec) uint64 {
			t.Helper()
			first, err := NewPast(w.JS, c).Each(ctx, "acme", held, func(edda.Event) error { return nil })
			w.Must(err)
			return first["ORDERS"]
		}
		if with, without := first(codec), first(wire.Codec{}); with != 1 || without != 3 {
			t.Errorf("a replay has the stream from %d on, and without the source from %d", with, without)
		}
		w.Must(w.Stream(ctx, "ORDERS").DeleteMsg(ctx, 2))
		if at := first(codec); at != 3 {
			t.Errorf("without a message in the middle a replay has the stream from %d on", at)
		}
		w.Must(w.JS.DeleteStream(ctx, "ORDERS"))
		if err := Present(ctx, w.JS, codec, held); !errors.Is(err, edda.Permanent) {
			t.Errorf("a stream that is read is gone: %v", err)
		}
		if err := Present(ctx, w.JS, wire.Codec{}, held); err != nil {
			t.Errorf("a stream that is not read is gone: %v", err)
		}
	})
}

func TestASourceReadsOnlyItsSubjectsOfAStreamThatSourcesAnother(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, err := w.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "PAY", Subjects: []string{"pay.>"}})
		w.Must(err)
		config := ordersStream
		config.Sources = []*jetstream.StreamSource{{Name: "PAY"}}
		codec := w.others(ctx, config, wire.MappingOptions{Subjects: []string{"orders.created", "pay.made"}})
		w.publish(ctx, "pay.made", "1")
		w.publish(ctx, "pay.refused", "2")
		w.publish(ctx, "orders.cancelled", "3")
		w.publish(ctx, "orders.created", "4")
		src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
		defer stop()
		got := fetch(ctx, t, src, 2)
		if string(got[0].Payload) != "1" || string(got[1].Payload) != "4" {
			t.Errorf("read %q", types(got))
		}
		none(ctx, t, src, time.Minute)
	})
}

// The end of a mirror was 0 where its last message was deleted, so timers did not wait for the others.
func TestTheBacklogOfAMirrorEndsWithItsLastMessage(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, err := w.JS.CreateStream(ctx, ordersStream)
		w.Must(err)
		codec := w.others(ctx, jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "ORDERS"}}, wire.MappingOptions{})
		w.publish(ctx, "orders.created", "1", "2", "3")
		eventually(t, "the mirror has them", func() bool { return w.Stream(ctx, "MIRROR").CachedInfo().State.Msgs == 3 })
		w.Must(w.Stream(ctx, "MIRROR").DeleteMsg(ctx, 3))
		w.publish(ctx, "tenant.acme.aggregate.Order.O1", `{"event_id":"own","event_type":"Paid"}`)
		src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
		defer stop()
		want := []string{"orders.created MIRROR:1", "orders.created MIRROR:2", "Order.Paid own"}
		if got := fetch(ctx, t, src, 3); !slices.Equal(types(got), want) {
			t.Errorf("got %q, want %q", types(got), want)
		}
		wantEnd(t, ends(ctx, t, src, "MIRROR"), 2, 3)
	})
}

func TestAStreamThatCannotBeReadIsReported(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		config := ordersStream
		config.MaxConsumers = 1
		codec := w.others(ctx, config, wire.MappingOptions{})
		_, err := w.JS.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "theirs"})
		w.Must(err)
		src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
		defer stop()
		time.Sleep(unreadAfter / 2) // virtual: how long it fails is what is tested
		if err := src.Failing(); err != nil {
			t.Errorf("at once: %v", err)
		}
		time.Sleep(unreadAfter)
		if err := src.Failing(); err == nil || !strings.Contains(err.Error(), "stream ORDERS is not read since") {
			t.Errorf("after a while: %v", err)
		}
		w.Must(w.JS.DeleteConsumer(ctx, "ORDERS", "theirs"))
		eventually(t, "the stream is read again", func() bool { return src.Failing() == nil })
	})
}

// A direct get may be answered by a replica that lags behind, and timers would overtake stored events.
func TestTheEndOfAStreamIsAskedOfItsLeader(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		config := ordersStream
		config.AllowDirect = true
		codec := w.others(ctx, config, wire.MappingOptions{Subjects: []string{"orders.created", "orders.paid"}})
		var direct, leader atomic.Int64
		for subject, n := range map[string]*atomic.Int64{"$JS.API.DIRECT.GET.ORDERS": &direct, "$JS.API.DIRECT.GET.ORDERS.>": &direct, "$JS.API.STREAM.MSG.GET.ORDERS": &leader} {
			_, err := w.JS.Conn().Subscribe(subject, func(*nats.Msg) { n.Add(1) })
			w.Must(err)
		}
		w.publish(ctx, "orders.created", "1", "2")
		src, err := OpenSource(ctx, w.JS, nil, SourceOptions{Codec: codec, From: FromAll})
		w.Must(err)
		wantEnd(t, ends(ctx, t, src, "ORDERS"), 2, 2)
		w.Must(w.JS.Conn().Flush())
		synctest.Wait()
		if direct.Load() != 0 || leader.Load() == 0 {
			t.Errorf("%d direct gets, and %d of the leader", direct.Load(), leader.Load())
		}
	})
}
