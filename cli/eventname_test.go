package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit"
)

// TestAnEventHasOneNameEverywhere: a trigger's name means the same event to edda lint, to edda test, to
// edda send, and to a program that publishes a CloudEvent of that type.
func TestAnEventHasOneNameEverywhere(t *testing.T) {
	names := []string{
		"Order.OrderPlaced", "com.github.pull_request.opened", "com.shop.order.placed.v2", "com.stripe.payment_intent.failed", "io.example.timer.ok", "com.shop.return.all",
	}
	files := map[string]string{}
	for i, name := range names {
		files[fmt.Sprintf("s%d.yaml", i)] = fmt.Sprintf("saga: s%d\nkey: event.id\non:\n  %s: {start: true, set: {n: =event.n}, do: [{event: Heard, with: {n: =event.n}}]}\n"+
			"  signal.go: {do: [{done: =state.n}]}\ntests:\n  - name: starts\n    steps: [{event: %s, data: {id: K, n: 1}, expect: [{event: Heard, with: {n: 1}}]}]\n", i, name, name)
	}
	dir := folder(t, files)
	r := startDev(t, dir)
	if code, out := r.edda(t, "lint", dir); code != 0 || !strings.Contains(out, "no problems") {
		t.Errorf("lint: %d\n%s", code, out)
	}
	if code, out := r.edda(t, "test", dir); code != 0 || !strings.Contains(out, fmt.Sprintf("%d passed, 0 failed", len(names))) {
		t.Errorf("test: %d\n%s", code, out)
	}
	js := jetStream(t, r.nats)
	for i, name := range names {
		if code, out := r.edda(t, "send", name, "--id", "1", "--data", `{"id":"sent","n":1}`); code != 0 {
			t.Errorf("send %s: %d\n%s", name, code, out)
		}
		ce := event.New()
		ce.SetID(fmt.Sprint("e", i))
		ce.SetSource("https://example.org/hooks")
		ce.SetType(name)
		if err := ce.SetData(event.ApplicationJSON, map[string]any{"id": "published", "n": 1}); err != nil {
			t.Fatal(err)
		}
		testkit.Value[*jetstream.PubAck](t)(js.PublishMsg(t.Context(), &nats.Msg{
			Subject: "tenant.default.aggregate.Anything.7", Data: testkit.Value[[]byte](t)(json.Marshal(ce)),
			Header: nats.Header{"Content-Type": {event.ApplicationCloudEventsJSON}},
		}))
		for _, key := range []string{"sent", "published"} {
			r.until(t, name, "instance", "history", fmt.Sprint("s", i), key)
		}
	}
}
