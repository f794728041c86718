package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit/natstest"
	"edda/outbox"
	"edda/stream/kv"
	"edda/stream/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// world is a server, a connection and the streams, in a bubble.
type world struct {
	*natstest.World
	codec wire.Codec
}

var embedded = natstest.Adapter{
	Start: func(ctx context.Context, dir string) (natstest.Server, error) {
		return kv.StartEmbedded(ctx, kv.EmbeddedOptions{Dir: dir})
	},
	Connect: func(s nats.InProcessConnProvider) (*nats.Conn, jetstream.JetStream, error) {
		return kv.Connect(kv.Connection{Server: s})
	},
}

// bubble runs a test in virtual time with a real server.
func bubble(t *testing.T, f func(ctx context.Context, w *world)) {
	t.Helper()
	natstest.Bubble(t, embedded, func(ctx context.Context, n *natstest.World) {
		_, err := EnsureStreams(ctx, n.JS, StreamOptions{})
		n.Must(err)
		f(ctx, &world{World: n})
	})
}

// send publishes an order event and returns its sequence.
func (w *world) send(tenant, id string, n int) uint64 {
	w.T.Helper()
	p := NewPublisher(w.JS, w.codec)
	at, err := p.Send(w.T.Context(), edda.Event{
		Kind: edda.KindEvent, ID: fmt.Sprintf("%s-%s-%d", tenant, id, n), Tenant: tenant,
		Type: "OrderPlaced", AggregateType: "Order", AggregateID: id,
		Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return at.Seq
}

// open opens a source and runs it; the returned function stops it.
func (w *world) open(ctx context.Context, held []edda.Checkpoint, o SourceOptions) (*Source, func()) {
	w.T.Helper()
	if o.From == "" {
		o.From = FromAll
	}
	src, err := OpenSource(ctx, w.JS, held, o)
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = src.Run(ctx)
	}()
	return src, func() {
		cancel()
		<-ended
	}
}

// positions are the checkpoints of a fake store.
type positions struct {
	mu sync.Mutex
	at []edda.Checkpoint
}

func (p *positions) commit(stream string, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, edda.Checkpoint{Stream: stream, Seq: seq})
}

func (p *positions) committed() ([]edda.Checkpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.at), nil
}

// fetch collects n events. It fails if none comes for a minute.
func fetch(ctx context.Context, t *testing.T, src *Source, n int) []edda.Event {
	t.Helper()
	var out []edda.Event
	for len(out) < n {
		got, err := src.Fetch(ctx, 1024, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Events) == 0 {
			t.Fatalf("only %d of %d events came", len(out), n)
		}
		out = append(out, got.Events...)
	}
	return out
}

// none fails if an event comes within the time.
func none(ctx context.Context, t *testing.T, src *Source, within time.Duration) {
	t.Helper()
	got, err := src.Fetch(ctx, 1024, within)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Events) > 0 {
		t.Fatalf("%d events came that should not, the first %+v", len(got.Events), got.Events[0])
	}
}

func wantRejection(t *testing.T, err error, code string) {
	t.Helper()
	var r *outbox.Rejection
	if !errors.As(err, &r) || r.Code != code {
		t.Errorf("got %v, want a rejection %s", err, code)
	}
}

const (
	orders      = "tenant.acme.aggregate.Order.O1"
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

var (
	noon   = time.Date(2026, 1, 2, 12, 0, 0, 123456789, time.UTC)
	parent = edda.Key{Tenant: "acme", Saga: "order", Correlation: "O 1"}
)

func diff[T any](t *testing.T, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
