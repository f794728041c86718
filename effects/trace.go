package effects

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"edda"
)

// span starts the span of a call, a child of the trace of the saga's event. It names the command;
// payloads and secrets are not for traces.
func (w *Worker) span(ctx context.Context, j *job) (context.Context, trace.Span) {
	if _, silent := w.o.Tracer.(noop.Tracer); silent && j.c.Trace == "" {
		return ctx, noop.Span{} // no tracer and no trace to continue
	}
	carrier := propagation.MapCarrier{"traceparent": j.c.Trace}
	ctx = propagation.TraceContext{}.Extract(ctx, carrier)
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(
		attribute.String("edda.effect", j.e.Name()), attribute.String("edda.provider", j.e.Provider()), attribute.String("edda.tenant", j.c.Tenant),
		attribute.String("edda.command_id", j.c.ID), attribute.Int("edda.attempt", j.made),
	)}
	return w.o.Tracer.Start(ctx, "effect "+j.e.Name(), options...)
}

// traced returns the call with the trace of its span.
func traced(ctx context.Context, c Call) Call {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return c
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if parent := carrier["traceparent"]; parent != "" {
		c.Trace = parent
	}
	return c
}

// ended records the answer in the span and ends it.
func (j *job) ended(span trace.Span, a answer) {
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(attribute.String("edda.outcome", a.word()))
	if a.failure.Status != 0 {
		span.SetAttributes(attribute.Int("edda.status", a.failure.Status))
	}
	if a.kind != edda.Succeeded {
		span.SetStatus(codes.Error, j.secret.text(a.failure.Code))
	}
	span.End()
}
