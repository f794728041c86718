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

// traced gives each request a span, and nothing of otel's globals. Without a
// tracer there is none.
func traced(inner http.RoundTripper, tracer trace.TracerProvider) http.RoundTripper {
	if tracer == nil {
		return veiled{inner}
	}
	spans := otelhttp.NewTransport(unveiled{veiled{inner}},
		otelhttp.WithTracerProvider(tracer), otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithMeterProvider(noop.MeterProvider{}))
	return hidden{spans}
}

// parent makes the span of the caller that of the call, where calls have spans and
// ctx carries none.
func (t *transports) parent(ctx context.Context, traceparent string) context.Context {
	if t.o.Tracer == nil || traceparent == "" || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// target is where the context of a hidden request carries its url.
type target struct{}

// hidden shows to the span nothing of the url but scheme and host: secrets may
// stand in the path, in the query and before the host.
type hidden struct{ spans http.RoundTripper }

func (h hidden) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.WithContext(context.WithValue(req.Context(), target{}, req.URL))
	out.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host}
	return h.spans.RoundTrip(out)
}

// unveiled sends a hidden request to where it goes.
type unveiled struct{ inner http.RoundTripper }

func (u unveiled) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.WithContext(req.Context())
	out.URL, _ = req.Context().Value(target{}).(*url.URL)
	return u.inner.RoundTrip(out)
}

// veiled leaves out of errors what the other side said that is no HTTP: it may
// be the request, sent back.
type veiled struct{ inner http.RoundTripper }

func (v veiled) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := v.inner.RoundTrip(req)
	if err != nil && !errors.Is(err, http1.ErrUnsent) && strings.Contains(err.Error(), "malformed") {
		return nil, errors.New("the answer is no HTTP")
	}
	return resp, err
}
