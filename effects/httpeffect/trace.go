package httpeffect

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"edda/effects/httpeffect/http1"
)

// traced makes a span for each request, without otel's globals. Without a tracer it makes none.
func traced(inner http.RoundTripper, tracer trace.TracerProvider) http.RoundTripper {
	if tracer == nil {
		return maskAnswer{inner}
	}
	spans := otelhttp.NewTransport(unmaskURL{maskAnswer{inner}},
		otelhttp.WithTracerProvider(tracer), otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithMeterProvider(noop.MeterProvider{}))
	return maskURL{spans}
}

// parent makes the caller's span the parent of the call's, if calls have spans and ctx has none.
func (t *transports) parent(ctx context.Context, traceparent string) context.Context {
	if t.o.Tracer == nil || traceparent == "" || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// urlKey is the context key of a masked request's URL.
type urlKey struct{}

// maskURL shows the span only scheme and host of the URL, because the rest may hold secrets.
type maskURL struct{ spans http.RoundTripper }

func (h maskURL) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.WithContext(context.WithValue(req.Context(), urlKey{}, req.URL))
	out.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host}
	return h.spans.RoundTrip(out)
}

// unmaskURL sends a masked request to its URL.
type unmaskURL struct{ inner http.RoundTripper }

func (u unmaskURL) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.WithContext(req.Context())
	out.URL, _ = req.Context().Value(urlKey{}).(*url.URL)
	return u.inner.RoundTrip(out)
}

// maskAnswer removes from errors an answer that is not HTTP, because it may repeat the request.
type maskAnswer struct{ inner http.RoundTripper }

func (v maskAnswer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := v.inner.RoundTrip(req)
	if err != nil && !errors.Is(err, http1.ErrUnsent) && strings.Contains(err.Error(), "malformed") {
		return nil, errors.New("the answer is no HTTP")
	}
	return resp, err
}
