package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// flushWithin bounds the flush of the last spans, because an unreachable collector must not
// block the stop.
const flushWithin = 2 * time.Second

// complainEvery is the least time between two logged errors of the collector.
const complainEvery = time.Minute

// tracing sends spans to OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
// The exporter reads the other OTEL_EXPORTER_OTLP_* variables. Without an endpoint there
// are no spans.
type tracing struct {
	trace.TracerProvider
	sdk *sdk.TracerProvider // nil: no tracing
}

func newTracing(ctx context.Context, s Settings, log *zap.Logger) (tracing, error) {
	off := strings.EqualFold(s.Env("OTEL_SDK_DISABLED"), "true")
	if off || s.Env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && s.Env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return tracing{TracerProvider: noop.NewTracerProvider()}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return tracing{}, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cmp.Or(s.Env("OTEL_SERVICE_NAME"), "edda")), attribute.String("service.version", s.Build.Version)), resource.WithFromEnv())
	if err != nil {
		return tracing{}, fmt.Errorf("traces: %w", err)
	}
	seldom := &rate.Sometimes{First: 1, Interval: complainEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		seldom.Do(func() { log.Warn("traces cannot be sent, which changes nothing else", zap.Error(err)) })
	}))
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return tracing{p, p}, nil
}

// provider returns the tracer provider; nil without tracing.
func (t tracing) provider() trace.TracerProvider {
	if t.sdk == nil {
		return nil
	}
	return t.sdk
}

// close flushes the spans and stops the provider.
func (t tracing) close(log *zap.Logger) {
	if t.sdk == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	if err := t.sdk.Shutdown(ctx); err != nil {
		log.Warn("the last traces were not sent", zap.Error(err))
	}
}
