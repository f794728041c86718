package cli

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/stream/wire"
)

// TestAnEventForAStreamWithoutALeader: edda send said that no stream takes the event and that a start of Edda would make
// one, while most NATS servers were down.
func TestAnEventForAStreamWithoutALeader(t *testing.T) {
	c := natscluster.Start(t)
	js := c.Connect(c.URLs())
	send := func(says string) {
		t.Helper()
		code, out, said := shell(t, []string{"NATS_URL=" + c.URL("n3")}, "send", "Order.Placed", "--id", "O1", "--event-id", "e-7")
		if code != exitFailed || !strings.Contains(said, says) {
			t.Errorf("%d %s%s", code, out, said)
		}
	}
	send("no stream takes the event: start Edda once")
	testkit.Value[jetstream.Stream](t)(js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.AggregateEvents, Subjects: []string{"tenant.*.aggregate.>"}, Replicas: 3,
	}))
	c.AwaitReplicas(js, wire.AggregateEvents)
	c.Freeze("n1")
	c.Freeze("n2")
	send(`whether most NATS servers run, then send again with --event-id "e-7"`)
	c.Kill("n1")
	c.Kill("n2")
	send(`whether most NATS servers run, then send again with --event-id "e-7"`)
}
