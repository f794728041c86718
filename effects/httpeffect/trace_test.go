package httpeffect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/httpeffect/http1"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	caller  = "00-" + traceID + "-b7ad6b7169203331-01"
)

// tracing is a provider whose spans are recorded.
func tracing(t *testing.T, o dial.Options) (*Provider, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	return with(t, o, Options{Tracer: tracer}), spans
}

func TestEachRequestHasASpan(t *testing.T) {
	s := open(t)
	p, spans := tracing(t, dial.Options{AllowLoopback: true})
	r, err := p.Call(t.Context(), effects.Call{Key: "k", Trace: caller, Config: map[string]any{"url": s.URL + "/charges", "body": 1}})
	if err != nil || r.Status != 200 {
		t.Fatal(r, err)
	}
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans", len(ended))
	}
	span := ended[0]
	if span.Parent().TraceID().String() != traceID || span.Parent().SpanID().String() != "b7ad6b7169203331" || span.SpanKind() != api.SpanKindClient {
		t.Errorf("parent %v, kind %v", span.Parent(), span.SpanKind())
	}
	want := fmt.Sprintf("00-%s-%s-01", traceID, span.SpanContext().SpanID())
	if got := s.last.Header.Values("Traceparent"); len(got) != 1 || got[0] != want {
		t.Errorf("traceparent %q, want that of the span, %s", got, want)
	}
	for _, a := range []attribute.KeyValue{attribute.String("http.request.method", "POST"), attribute.Int("http.response.status_code", 200), attribute.String("url.full", s.URL)} {
		if !slices.Contains(span.Attributes(), a) {
			t.Errorf("attributes %v, want %v", span.Attributes(), a)
		}
	}
}

// TestASpanOfTheCallerIsTheParent, also where the command carries another trace.
func TestASpanOfTheCallerIsTheParent(t *testing.T) {
	s := open(t)
	p, spans := tracing(t, dial.Options{AllowLoopback: true})
	tracer := trace.NewTracerProvider()
	ctx, attempt := tracer.Tracer("worker").Start(t.Context(), "attempt")
	defer attempt.End()
	if _, err := p.Call(ctx, effects.Call{Trace: caller, Config: map[string]any{"url": s.URL}}); err != nil {
		t.Fatal(err)
	}
	if got := spans.Ended()[0].Parent(); got.SpanID() != attempt.SpanContext().SpanID() {
		t.Errorf("parent %v, want the attempt's span", got)
	}
}

// TestWithoutATracerTheTraceGoesOn as it came, and nothing global is asked.
func TestWithoutATracerTheTraceGoesOn(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for given, want := range map[string]string{caller: caller, traceID: "", "": ""} {
		if _, err := p.Call(t.Context(), effects.Call{Trace: given, Config: map[string]any{"url": s.URL}}); err != nil {
			t.Fatal(err)
		}
		if got := s.last.Header.Get("Traceparent"); got != want {
			t.Errorf("traceparent %q, want %q", got, want)
		}
	}
	if n := len(spans.Started()); n != 0 {
		t.Errorf("%d spans of a global tracer", n)
	}
}

// TestSpansShowNoSecrets wherever the manifest puts them, whatever comes of the call.
func TestSpansShowNoSecrets(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/s3cret/cut":
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
		case "/s3cret/echo":
			conn, _, _ := w.(http.Hijacker).Hijack()
			fmt.Fprintf(conn, "%s %s\r\n\r\n", r.URL, r.Header)
			_ = conn.Close()
		case "/s3cret/part":
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "s3cret")
		case "/s3cret/on":
			w.Header().Set("Location", "/s3cret/there?s3cret")
			w.WriteHeader(307)
		}
	}
	p, spans := tracing(t, dial.Options{AllowLoopback: true})
	inside := strings.Replace(s.URL, "://", "://s3cret:s3cret@", 1)
	for _, address := range []string{
		inside + "/s3cret/paid", inside + "/s3cret/cut", inside + "/s3cret/echo", inside + "/s3cret/part", inside + "/s3cret/on",
		"http://s3cret@" + nobody(t) + "/s3cret", "http://s3cret@10.0.0.1/s3cret",
	} {
		_, _ = call(t, p, map[string]any{
			"url": address, "query": map[string]any{"token": "s3cret"}, "headers": map[string]any{"X-Key": "s3cret"}, "body": "s3cret", "redirects": 2,
		})
	}
	ended := spans.Ended()
	if len(ended) != 8 { // a redirect has two
		t.Errorf("%d spans", len(ended))
	}
	failed := 0
	for _, span := range ended {
		if got := fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status(), span.Links()); strings.Contains(got, "s3cret") {
			t.Error(got)
		}
		if span.Status().Code == codes.Error {
			failed++
		}
	}
	if failed != 5 {
		t.Errorf("%d spans failed", failed)
	}
	if s.last.URL.RequestURI() != "/s3cret/there?s3cret" || s.body != `"s3cret"` || s.last.Header.Get("Authorization") == "" {
		t.Errorf("the last request was %s with %q", s.last.URL, s.body)
	}
}

// TestSpansOfOtherHostsAreOfTheSameTrace: a redirect is a part of the call.
func TestSpansOfOtherHostsAreOfTheSameTrace(t *testing.T) {
	near, far := open(t), open(t)
	near.answer = signpost
	p, spans := tracing(t, dial.Options{AllowLoopback: true})
	if _, err := p.Call(t.Context(), effects.Call{Trace: caller, Config: map[string]any{"method": "GET", "url": to(near, 302, far.URL), "redirects": 1}}); err != nil {
		t.Fatal(err)
	}
	if len(spans.Ended()) != 2 || !regexp.MustCompile(traceID).MatchString(far.last.Header.Get("Traceparent")) {
		t.Errorf("%d spans; the far side saw the trace %q", len(spans.Ended()), far.last.Header.Get("Traceparent"))
	}
}

// TestSpansThroughAProxy: the proxy is not the target.
func TestSpansThroughAProxy(t *testing.T) {
	s := open(t)
	m := newMiddleman(t, s)
	m.Start()
	t.Setenv("HTTP_PROXY", m.URL)
	p, spans := tracing(t, dial.Options{Allow: []string{"inside.test"}})
	if _, err := call(t, p, map[string]any{"url": "http://inside.test/s3cret"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(spans.Ended()[0].Attributes()); !strings.Contains(got, "inside.test") || strings.Contains(got, "s3cret") || s.last.URL.Path != "/s3cret" {
		t.Errorf("attributes %s, path %s", got, s.last.URL.Path)
	}
}

// TestAVeilHidesNotThatNothingWasSent: a dialler may use the same words as the other side.
func TestAVeilHidesNotThatNothingWasSent(t *testing.T) {
	over := http1.New(http1.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("malformed reply of a name server")
	}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://pay.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (maskAnswer{over}).RoundTrip(req); !errors.Is(err, http1.ErrUnsent) {
		t.Error(err)
	}
}

// TestTracedConnectionsAreReused: a span does not keep an answer open.
func TestTracedConnectionsAreReused(t *testing.T) {
	s := open(t)
	p, _ := tracing(t, dial.Options{AllowLoopback: true})
	for range 5 {
		if _, err := call(t, p, map[string]any{"url": s.URL, "body": 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.conns) != 1 {
		t.Errorf("%d connections for five calls", len(s.conns))
	}
}
