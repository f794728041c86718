package kv

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// world is a server and a connection, in a bubble.
type world struct{ *natstest.World }

var embedded = natstest.Adapter{
	Start: func(ctx context.Context, dir string) (natstest.Server, error) {
		return StartEmbedded(ctx, EmbeddedOptions{Dir: dir})
	},
	Connect: func(s nats.InProcessConnProvider) (*nats.Conn, jetstream.JetStream, error) {
		return Connect(Connection{Server: s})
	},
}

// bubble runs a test in virtual time with a real server.
func bubble(t *testing.T, f func(ctx context.Context, w *world)) {
	t.Helper()
	natstest.Bubble(t, embedded, func(ctx context.Context, n *natstest.World) { f(ctx, &world{n}) })
}

// serve starts a server outside a bubble, until the test ends.
func serve(t testing.TB, o EmbeddedOptions) jetstream.JetStream {
	t.Helper()
	o.Dir = t.TempDir()
	server, err := StartEmbedded(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	nc, js, err := Connect(Connection{Server: server.Server()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return js
}
