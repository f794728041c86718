package effects

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestASpanForEachAttempt is a child of the event's trace, and what the other
// side is shown is the attempt's own.
func TestASpanForEachAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t)
		h.stop()
		spans := tracetest.NewSpanRecorder()
		o := h.options()
		o.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("edda")
		w, err := newWorker(h.db, o, compile(t, charge))
		if err != nil {
			t.Fatal(err)
		}
		h.bank.answers(func(_ context.Context, n int, _ Call) (Response, error) {
			if n == 1 {
				return status(503), nil
			}
			return ok200(), nil
		})
		c := cmd("c1")
		c.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		handle(t, w, &c)
		time.Sleep(time.Minute)
		ended := spans.Ended()
		if len(ended) != 2 || ended[0].Status().Code != codes.Error || ended[1].Status().Code != codes.Unset {
			t.Fatalf("spans %v", ended)
		}
		for i, s := range ended {
			own, parent := s.SpanContext(), s.Parent()
			if own.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || parent.SpanID().String() != "b7ad6b7169203331" {
				t.Errorf("span %s of trace %s under %s", own.SpanID(), own.TraceID(), parent.SpanID())
			}
			if got := h.bank.all()[i].Trace; !strings.Contains(got, own.SpanID().String()) {
				t.Errorf("the other side was shown %s", got)
			}
			for _, a := range s.Attributes() {
				if strings.Contains(a.Value.String(), "s3cret") {
					t.Errorf("attribute %v", a)
				}
			}
		}
	})
}
