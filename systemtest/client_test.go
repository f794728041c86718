package systemtest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/wire"
)

func decode(t testing.TB, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

// readAll reads what a stream holds under a subject.
func readAll(t testing.TB, js jetstream.JetStream, name, subject string) (out []jetstream.Msg) {
	t.Helper()
	ctx := context.Background()
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	for range info.NumPending {
		m, err := messages.Next()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// idOf is the id under which a message was published.
func idOf(m jetstream.Msg) string {
	return wire.Codec{}.ID(wire.Message{Subject: m.Subject(), Header: m.Headers()})
}

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // values of ours
	}
	return text
}
