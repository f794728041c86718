package grpceffect

import (
	"fmt"
	"strings"
	"testing"

	otel "go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"edda/effects"
	"edda/effects/dial"
)

// TestSpans: each call has one, its parent is the command's trace, and the other
// side is shown the span. Reflection has none.
func TestSpans(t *testing.T) {
	b := openBank(t, describedV1)
	spans := tracetest.NewSpanRecorder()
	p := New(Options{Guard: guard(t, dial.Options{AllowLoopback: true}), TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))}).closedBy(t)
	call := effects.Call{Key: "k", Trace: traceText, Config: b.config(map[string]any{"metadata": map[string]any{"authorization": "s3cret"}})}
	if _, err := p.Call(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans", len(ended))
	}
	s := ended[0]
	if s.Name() != "shop.v1.Payments/Charge" || s.SpanKind() != trace.SpanKindClient || s.Parent().SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("span %s %s of %s", s.Name(), s.SpanKind(), s.Parent().SpanID())
	}
	want := "00-0af7651916cd43dd8448eb211c80319c-" + s.SpanContext().SpanID().String() + "-01"
	if got := strings.Join(b.md["traceparent"], " "); got != want {
		t.Errorf("traceparent %q, want %q", got, want)
	}
	for _, a := range s.Attributes() {
		if strings.Contains(a.Value.String(), "s3cret") {
			t.Errorf("attribute %s shows a secret", a.Key)
		}
	}
}

// TestSpanOfThisProcess is a parent that goes before the command's trace.
func TestSpanOfThisProcess(t *testing.T) {
	b := openBank(t, describedV1)
	spans := tracetest.NewSpanRecorder()
	tracers := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	p := New(Options{Guard: guard(t, dial.Options{AllowLoopback: true}), TracerProvider: tracers}).closedBy(t)
	ctx, attempt := tracers.Tracer("test").Start(t.Context(), "attempt")
	if _, err := p.Call(ctx, effects.Call{Trace: traceText, Config: b.config()}); err != nil {
		t.Fatal(err)
	}
	if got := spans.Ended()[0].Parent(); got.SpanID() != attempt.SpanContext().SpanID() {
		t.Errorf("parent %s", got.SpanID())
	}
}

// TestSpansShowNoMessage: what the other side says of a call may be what it was
// shown.
func TestSpansShowNoMessage(t *testing.T) {
	b := openBank(t, describedV1)
	b.fails(status.Error(codes.Internal, "bad token s3cret"))
	spans := tracetest.NewSpanRecorder()
	p := New(Options{Guard: guard(t, dial.Options{AllowLoopback: true}), TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))}).closedBy(t)
	if _, err := p.Call(t.Context(), effects.Call{Key: "k", Config: b.config()}); err != nil {
		t.Fatal(err)
	}
	s := spans.Ended()[0]
	if s.Status().Code != otel.Error || strings.Contains(fmt.Sprint(s.Status(), s.Attributes(), s.Events()), "s3cret") {
		t.Errorf("%v %v %v", s.Status(), s.Attributes(), s.Events())
	}
}
