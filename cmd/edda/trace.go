package main

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

// flushWithin bounds the sending of the last spans: a collector that is not
// there must not keep the process from stopping.
const flushWithin = 2 * time.Second

// complainEvery bounds how often the log says that the collector is not there.
const complainEvery = time.Minute

// tracing sends spans where OTEL_EXPORTER_OTLP_ENDPOINT, or its like for traces
// alone, says; the exporter reads every other OTEL_EXPORTER_OTLP_* itself. Without
// either there are none.
type tracing struct {
	trace.TracerProvider
	sdk *sdk.TracerProvider // nil: none
}

func newTracing(ctx context.Context, env func(string) string, log *zap.Logger) (tracing, error) {
	off := strings.EqualFold(env("OTEL_SDK_DISABLED"), "true")
	if off || env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return tracing{TracerProvider: noop.NewTracerProvider()}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return tracing{}, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cmp.Or(env("OTEL_SERVICE_NAME"), "edda")), attribute.String("service.version", build().Version)), resource.WithFromEnv())
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

// provider is nil where there are no traces, for what then makes none.
func (t tracing) provider() trace.TracerProvider {
	if t.sdk == nil {
		return nil
	}
	return t.sdk
}

// close sends what is left.
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
