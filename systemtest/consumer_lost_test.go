//go:build !race

package systemtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/stream"
	"edda/stream/wire"
)

// TestReadingOutlivesTheServerOfItsConsumer: the consumer of an input stream has one replica, and ends with its server.
// Reading goes on behind the last message that it had.
func TestReadingOutlivesTheServerOfItsConsumer(t *testing.T) {
	beside(t)
	servers := natscluster.Start(t)
	js := servers.Connect(servers.URLs())
	_, err := stream.EnsureStreams(t.Context(), js, stream.StreamOptions{Replicas: 3})
	testkit.Must(t, err)
	src, err := stream.OpenSource(t.Context(), js, nil, stream.SourceOptions{Name: "S1", Epoch: 1, From: stream.FromAll})
	testkit.Must(t, err)
	testkit.Run(t, func(ctx context.Context) error {
		if err := src.Run(ctx); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("read: %w", err)
		}
		return nil
	})
	next := 0
	passes := func(within time.Duration) {
		t.Helper()
		next++
		id := fmt.Sprint("e", next)
		untilIn(t, within, "event "+id+" is stored", func() bool {
			_, err := js.Publish(t.Context(), "tenant.default.aggregate.Order.O1", fmt.Appendf(nil,
				`{"event_id":%q,"tenant_id":"default","aggregate_type":"Order","aggregate_id":"O1","event_type":"Placed","payload":{}}`, id), jetstream.WithMsgID(id))
			return err == nil
		})
		untilIn(t, within, "event "+id+" is read", func() bool {
			got := src.Take(10)
			if len(got.Events) > 1 || len(got.Events) == 1 && got.Events[0].ID != id {
				t.Fatalf("%v is read in the place of %s", got.Events, id)
			}
			return len(got.Events) == 1
		})
	}
	passes(10 * time.Second)

	var server string
	untilIn(t, 10*time.Second, "the consumer has a server", func() bool {
		info, err := js.Stream(t.Context(), wire.AggregateEvents)
		if err != nil {
			return false
		}
		for c := range info.ListConsumers(t.Context()).Info() {
			if strings.HasSuffix(c.Name, "-e1") && c.Cluster != nil && len(c.Cluster.Replicas) == 0 {
				server = c.Cluster.Leader
			}
		}
		return server != ""
	})
	servers.Kill(server)
	passes(60 * time.Second) // an election of the stream, two heartbeats that are missed, and a busy machine
	servers.Restart(server)
	passes(60 * time.Second)
}
