//go:build !race

package systemtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"edda/stream/wire"
)

// TestEventsBetweenTheFirstStreamAndTheFirstPositionAreRead: a publisher that waits for the stream comes before the process
// has noted where it begins to read. Its events were behind that place, and nobody ever read them.
func TestEventsBetweenTheFirstStreamAndTheFirstPositionAreRead(t *testing.T) {
	server := startNATS(t, freeAddr(t), t.TempDir())
	conn, js := client(t, server.url())
	const events = 4 // the first one begins the instance
	sent := make(chan error, 1)
	if _, err := conn.Subscribe("$JS.EVENT.ADVISORY.STREAM.CREATED."+wire.AggregateEvents, func(*nats.Msg) {
		for i := range events {
			name := "Add"
			if i == 0 {
				name = "Begin"
			}
			if _, err := js.PublishMsg(context.Background(), messageOf(0, "K", fmt.Sprintf("e%d", i), name, `{"k":"K"}`)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	dir, addr := t.TempDir(), freeAddr(t)
	c := launch(t, "run", "--role", "saga", "--nats-url", server.url(), "--data", dir, "--addr", addr, write(t, t.TempDir(), "count.yaml", strings.Replace(adding, "from: all\n", "", 1)))
	c.addr, c.nats, c.tenant = addr, server.url(), "default"
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	until(t, "all events are counted", func() bool {
		view, ok := c.answers("/v1/instances/count/K")
		return ok && strings.Contains(view, fmt.Sprintf(`"n":%d}`, events-1))
	})
}
