package stream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// TestAnIdThatIsNotEscapedSaysSo: JetStream answered the publisher "no response from stream", and
// core NATS nothing.
func TestAnIdThatIsNotEscapedSaysSo(t *testing.T) {
	const escaped, unescaped = "tenant.*.aggregate.*.*", "tenant.*.aggregate.*.*.>"
	for name, test := range map[string]struct {
		earlier bool     // the stream was made before this subject
		another []string // subjects of another stream
		tenants wire.Tenants
		stored  bool
	}{
		"a new stream":            {stored: true},
		"of one tenant":           {tenants: wire.Tenants{"acme"}, stored: true},
		"a stream of before":      {earlier: true, stored: true},
		"another stream's":        {earlier: true, another: []string{unescaped}},
		"another stream's, acme":  {earlier: true, another: []string{unescaped}, tenants: wire.Tenants{"acme"}},
		"a part is another's":     {earlier: true, another: []string{"tenant.acme.aggregate.Order.x.y"}},
		"a part is another's too": {earlier: true, another: []string{"tenant.acme.aggregate.Order.x.y"}, tenants: wire.Tenants{"acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				if test.earlier {
					w.Recreate(ctx, wire.AggregateEvents, func(c *jetstream.StreamConfig) { c.Subjects = []string{escaped} })
				}
				if test.another != nil {
					_, err := w.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "MINE", Subjects: test.another})
					w.Must(err)
				}
				_, err := EnsureStreams(ctx, w.JS, StreamOptions{})
				w.Must(err)
				if got := w.Stream(ctx, wire.AggregateEvents).CachedInfo().Config.Subjects; slices.Contains(got, unescaped) != test.stored || !slices.Contains(got, escaped) {
					t.Fatalf("the subjects are %v", got)
				}
				src, stop := w.open(ctx, nil, SourceOptions{Tenants: test.tenants})
				defer stop()
				w.send("acme", "O1", 1)
				want := 1
				if test.stored {
					_, err := w.JS.PublishMsg(ctx, &nats.Msg{Subject: "tenant.acme.aggregate.Order.shop.js#7", Data: []byte(`{"event_type":"X"}`)})
					w.Must(err)
					want = 2
				}
				events := fetch(ctx, t, src, want)
				if len(events) != want || events[0].AggregateID != "O1" {
					t.Fatalf("read %+v", events)
				}
				if !test.stored {
					return
				}
				if ev := events[1]; ev.Malformed != edda.DeadUndecodable || ev.Tenant != "acme" || ev.Subject == "" || !strings.Contains(ev.Error, "has an id of 2 tokens: write a dot in an id as %2E") {
					t.Errorf("read %+v", ev)
				}
				letter := edda.DeadLetter{ID: "d1", Subject: events[1].Subject, Event: events[1], Reason: events[1].Malformed}
				if _, err := NewPublisher(w.JS, wire.Codec{}).Resend(ctx, letter, nil, "new"); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "publish the event to the right subject") {
					t.Errorf("a redrive: %v", err)
				}
			})
		})
	}
}
