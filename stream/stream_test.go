package stream

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/outbox"
	"edda/stream/kv"
	"edda/stream/wire"
)

// The server's access clock must be started outside every bubble, and the
// property tests have the same seed in every run.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
	ats.Register()
	code := m.Run()
	ats.Unregister()
	os.Exit(code)
}

// world is a server, a connection and the streams, inside a bubble.
type world struct {
	t      *testing.T
	dir    string
	server atomic.Pointer[kv.Embedded] // nil while it is away
	nc     *nats.Conn
	js     jetstream.JetStream
	codec  wire.Codec
}

// bubble runs a test in virtual time with a real server.
func bubble(t *testing.T, f func(ctx context.Context, w *world)) {
	t.Helper()
	dir := t.TempDir()
	// The client keeps timers in a pool, and one of another bubble must not be
	// used again: two collections empty every pool.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir}
		w.start()
		defer w.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := EnsureStreams(ctx, w.js, StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		f(ctx, w)
	})
}

func (w *world) start() {
	w.t.Helper()
	w.serve()
	w.nc, w.js = w.connect()
}

func (w *world) serve() {
	w.t.Helper()
	s, err := kv.StartEmbedded(w.t.Context(), kv.EmbeddedOptions{Dir: w.dir})
	if err != nil {
		w.t.Fatal(err)
	}
	w.server.Store(s)
}

// InProcessConn connects to the server of the moment, as an address would.
func (w *world) InProcessConn() (net.Conn, error) {
	if s := w.server.Load(); s != nil {
		return s.Server().InProcessConn()
	}
	return nil, errors.New("no server")
}

// restart stops the server, runs f, and starts it again on the same files.
func (w *world) restart(f func()) {
	w.t.Helper()
	halt(w.server.Swap(nil))
	f()
	w.serve()
	for !w.nc.IsConnected() {
		time.Sleep(100 * time.Millisecond)
	}
	w.answers()
}

// answers waits until JetStream answers on the connection that came back: a
// request that fell into the change is never answered.
func (w *world) answers() {
	w.t.Helper()
	const tries = 20
	var err error
	for range tries {
		if _, err = w.js.AccountInfo(context.Background()); err == nil {
			return
		}
	}
	w.t.Fatalf("JetStream does not answer after the restart: %v", err)
}

// connect opens another connection to the server.
func (w *world) connect() (*nats.Conn, jetstream.JetStream) {
	w.t.Helper()
	nc, js, err := kv.Connect(kv.Connection{Server: w})
	if err != nil {
		w.t.Fatal(err)
	}
	return nc, js
}

func (w *world) stop() {
	w.nc.Close()
	if s := w.server.Load(); s != nil {
		halt(s)
	}
	synctest.Wait()
}

// halt stops the server once it has nothing left to do: while shutting down it
// sleeps with locks held, and whoever waits for one of them, such as a request
// for a consumer, stops the bubble's clock and so that sleep.
func halt(s *kv.Embedded) {
	synctest.Wait()
	s.Close()
}

// send publishes an order event and returns its sequence.
func (w *world) send(tenant, id string, n int) uint64 {
	w.t.Helper()
	p := NewPublisher(w.js, w.codec)
	at, err := p.Send(w.t.Context(), edda.Event{
		Kind: edda.KindEvent, ID: fmt.Sprintf("%s-%s-%d", tenant, id, n), Tenant: tenant,
		Type: "OrderPlaced", AggregateType: "Order", AggregateID: id,
		Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return at.Seq
}

// open opens a source and runs it; the returned function stops it.
func (w *world) open(ctx context.Context, held []edda.Checkpoint, o SourceOptions) (*Source, func()) {
	w.t.Helper()
	if o.From == "" {
		o.From = FromAll
	}
	src, err := OpenSource(ctx, w.js, held, o)
	if err != nil {
		w.t.Fatal(err)
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

// positions are a store's, as far as a source asks for them.
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

// fetch collects events until there are n, or none comes for a minute.
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

// none fails when an event comes within the time.
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

func wantError(t *testing.T, err error, class error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if class != nil && !errors.Is(err, class) {
		t.Errorf("%v is not %v", err, class)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func wantRejection(t *testing.T, err error, code string) {
	t.Helper()
	var r *outbox.Rejection
	if !errors.As(err, &r) || r.Code != code {
		t.Errorf("got %v, want a rejection %s", err, code)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
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
