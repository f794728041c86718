package stream

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// TestAReusedDraftKeepsNothing: a window encodes all messages into one draft: no message has a
// header or the end of a longer body of another.
func TestAReusedDraftKeepsNothing(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		long := `{"note":"` + strings.Repeat("x", 128<<10) + `"}`
		batch := facts(4)
		batch[0].Kind, batch[0].Name, batch[0].CommandID = edda.WorkResult, "charge", "c-9"
		batch[0].Payload, batch[0].Trace = json.RawMessage(`{"result_type":"Succeeded"}`), traceparent
		batch[1].Payload, batch[1].Time = json.RawMessage(long), noon
		batch[2].Payload = json.RawMessage(`{"a":1}`)
		batch[3].ID = ""
		p := NewPublisher(w.JS, wire.Codec{})
		if errs := p.Deliver(ctx, batch); errs != nil {
			t.Fatal(errs)
		}
		s := w.Stream(ctx, wire.WorkflowEvents)
		headers := []nats.Header{
			{jetstream.MsgIDHeader: {"acme w-0"}, "traceparent": {traceparent}, "Edda-Taken": {"2026-01-02T12:00:00.123456789Z"}},
			{jetstream.MsgIDHeader: {"acme w-1"}},
			{jetstream.MsgIDHeader: {"acme w-2"}},
			nil,
		}
		bodies := []string{`{"result_type":"Succeeded"}`, `"payload":` + long, `"payload":{"a":1}`, `"payload":null`}
		for i := range batch {
			m, err := s.GetMsg(ctx, uint64(i+1))
			if err != nil {
				t.Fatal(err)
			}
			diff(t, m.Header, headers[i])
			if !json.Valid(m.Data) || !strings.Contains(string(m.Data), bodies[i]) {
				t.Errorf("message %d is %.200s", i, m.Data)
			}
		}
	})
}
