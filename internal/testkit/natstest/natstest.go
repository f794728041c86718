// Package natstest runs a NATS server with JetStream in a synctest bubble, for the tests of stream
// and stream/kv. It imports neither, because a package's own tests cannot import what imports it:
// the caller passes an [Adapter].
package natstest

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit"
)

// Main is [testkit.Main] for a package whose tests use a [World]. It starts the server's access
// clock, because that must start outside every bubble.
func Main(m *testing.M) {
	ats.Register()
	testkit.Main(m)
}

// Server is a running NATS server; *kv.Embedded implements it.
type Server interface {
	Server() nats.InProcessConnProvider
	Close()
}

// Adapter starts servers and connects to them, as stream/kv does.
type Adapter struct {
	Start   func(ctx context.Context, dir string) (Server, error)
	Connect func(nats.InProcessConnProvider) (*nats.Conn, jetstream.JetStream, error)
}

// World is a server and a connection to it, in a bubble.
type World struct {
	T   *testing.T
	Dir string // of the server
	NC  *nats.Conn
	JS  jetstream.JetStream

	adapter Adapter
	server  atomic.Pointer[Server] // nil while it is stopped
}

// Bubble runs a test in virtual time with a real server. ctx ends with the test.
func Bubble(t *testing.T, a Adapter, test func(ctx context.Context, w *World)) {
	t.Helper()
	dir := t.TempDir()
	// The client keeps timers in a sync.Pool. A timer of another bubble must not be used again, and
	// two collections empty every pool.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		w := &World{T: t, Dir: dir, adapter: a}
		w.start()
		w.NC, w.JS = w.Connect()
		defer func() {
			w.NC.Close()
			w.stop()
			synctest.Wait()
		}()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		test(ctx, w)
	})
}

func (w *World) start() {
	w.T.Helper()
	s, err := w.adapter.Start(w.T.Context(), w.Dir)
	w.Must(err)
	w.server.Store(&s)
}

// stop stops the server when it is idle. It sleeps with locks held while it shuts down, and a
// goroutine that waits for one of them would stop the clock of the bubble.
func (w *World) stop() {
	if s := w.server.Swap(nil); s != nil {
		synctest.Wait()
		(*s).Close()
	}
}

// Server returns the running server.
func (w *World) Server() Server { return *w.server.Load() }

// InProcessConn connects to the running server, as an address would.
func (w *World) InProcessConn() (net.Conn, error) {
	if s := w.server.Load(); s != nil {
		return (*s).Server().InProcessConn()
	}
	return nil, errors.New("no server")
}

// Connect opens another connection to the server. It survives a restart of the server.
func (w *World) Connect() (*nats.Conn, jetstream.JetStream) {
	w.T.Helper()
	nc, js, err := w.adapter.Connect(w)
	w.Must(err)
	return nc, js
}

// Restart stops the server, runs f, and starts the server again on the same files. It returns when
// JetStream answers on NC.
func (w *World) Restart(f func()) {
	w.T.Helper()
	w.stop()
	f()
	w.start()
	for !w.NC.IsConnected() {
		time.Sleep(100 * time.Millisecond)
	}
	const tries = 20 // a request that was sent during the reconnect is never answered
	var err error
	for range tries {
		if _, err = w.JS.AccountInfo(context.Background()); err == nil {
			return
		}
	}
	w.T.Fatalf("JetStream does not answer after the restart: %v", err)
}

// Backup copies the server's files and returns a function that puts the copy back. Both restart the
// server.
func (w *World) Backup() (restore func()) {
	w.T.Helper()
	backup := w.T.TempDir()
	w.Restart(func() { w.Must(os.CopyFS(backup, os.DirFS(w.Dir))) })
	return func() {
		w.T.Helper()
		w.Restart(func() {
			w.Must(os.RemoveAll(w.Dir))
			w.Must(os.CopyFS(w.Dir, os.DirFS(backup)))
		})
	}
}

// Must fails the test on an error.
func (w *World) Must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Stream returns a stream with its current info.
func (w *World) Stream(ctx context.Context, name string) jetstream.Stream {
	w.T.Helper()
	s, err := w.JS.Stream(ctx, name)
	w.Must(err)
	return s
}

// Update changes the settings of a stream.
func (w *World) Update(ctx context.Context, name string, change func(*jetstream.StreamConfig)) {
	w.T.Helper()
	cfg := w.Stream(ctx, name).CachedInfo().Config
	change(&cfg)
	_, err := w.JS.UpdateStream(ctx, cfg)
	w.Must(err)
}

// Recreate deletes a stream and creates it again, with changed settings if change is not nil.
func (w *World) Recreate(ctx context.Context, name string, change func(*jetstream.StreamConfig)) {
	w.T.Helper()
	cfg := w.Stream(ctx, name).CachedInfo().Config
	w.Must(w.JS.DeleteStream(ctx, name))
	if change != nil {
		change(&cfg)
	}
	_, err := w.JS.CreateStream(ctx, cfg)
	w.Must(err)
}

// Silence runs a function while a stream acknowledges nothing.
func (w *World) Silence(ctx context.Context, name string, f func()) {
	w.T.Helper()
	w.Update(ctx, name, func(c *jetstream.StreamConfig) { c.NoAck = true })
	f()
	w.Update(ctx, name, func(c *jetstream.StreamConfig) { c.NoAck = false })
}
