package kv

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// world is a server and a connection, inside a bubble.
type world struct {
	t      *testing.T
	dir    string
	server atomic.Pointer[Embedded] // nil while it is away
	nc     *nats.Conn
	js     jetstream.JetStream
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
	s, err := StartEmbedded(w.t.Context(), EmbeddedOptions{Dir: w.dir})
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
		time.Sleep(reconnectWait)
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
	nc, js, err := Connect(Connection{Server: w})
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
func halt(s *Embedded) {
	synctest.Wait()
	s.Close()
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

// silently runs a function while a stream stores and acknowledges nothing.
func (w *world) silently(ctx context.Context, name string, f func()) {
	w.t.Helper()
	set := func(silent bool) {
		s, err := w.js.Stream(ctx, name)
		if err != nil {
			w.t.Fatal(err)
		}
		c := s.CachedInfo().Config
		c.NoAck = silent
		if _, err := w.js.UpdateStream(ctx, c); err != nil {
			w.t.Fatal(err)
		}
	}
	set(true)
	f()
	set(false)
}
