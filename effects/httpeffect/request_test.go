package httpeffect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"edda"
	"edda/effects"
	"edda/effects/dial"
)

func TestEveryMethod(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, method := range methods() {
		r, err := call(t, p, map[string]any{"method": strings.ToLower(method), "url": s.URL})
		if err != nil || r.Status != 200 || s.last.Method != method || s.last.Header.Get("Content-Type") != "" || s.body != "" {
			t.Errorf("%s: %d %v, seen %s %v %q", method, r.Status, err, s.last.Method, s.last.Header, s.body)
		}
	}
	for asks, want := range map[bool]string{false: "POST", true: "GET"} {
		if _, err := p.Call(t.Context(), effects.Call{Asks: asks, Config: map[string]any{"url": s.URL}}); err != nil || s.last.Method != want {
			t.Errorf("none, asks %t: %v, seen %s, want %s", asks, err, s.last.Method, want)
		}
	}
	if _, err := p.Call(t.Context(), effects.Call{Asks: true, Config: map[string]any{"url": s.URL, "method": "POST"}}); err != nil || s.last.Method != "POST" {
		t.Errorf("asks by POST: %v, seen %s", err, s.last.Method)
	}
}

func TestBodies(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, tt := range []struct {
		field    string
		v        any
		kind     string // the manifest's content type
		want     string
		wantKind string
	}{
		{"body", map[string]any{"b": []any{1, nil, "<"}, "a": 9007199254740993}, "", `{"a":9007199254740993,"b":[1,null,"<"]}`, "application/json"},
		{"body", nil, "", "null", "application/json"},
		{"body", 1, "application/vnd.pay+json", "1", "application/vnd.pay+json"},
		{"form", map[string]any{"b": []any{1, true, "ü &="}, "a": 9007199254740993, "none": nil, "empty": ""}, "", "a=9007199254740993&b=1&b=true&b=%C3%BC+%26%3D&empty=", "application/x-www-form-urlencoded"},
		{"form", map[string]any{}, "", "", "application/x-www-form-urlencoded"},
		{"form", map[string]any{"a": 1}, "application/x-www-form-urlencoded; charset=utf-8", "a=1", "application/x-www-form-urlencoded; charset=utf-8"},
		{"raw", "a: 1\n<ü>", "", "a: 1\n<ü>", "text/plain; charset=utf-8"},
		{"raw", "<a/>", "application/xml", "<a/>", "application/xml"},
		{"raw", `{"a":1}`, "application/json", `{"a":1}`, "application/json"},
		{"raw", "", "", "", "text/plain; charset=utf-8"},
		{"raw", map[string]any{"base64": "AP8="}, "", "\x00\xff", "application/octet-stream"},
		{"raw", map[string]any{"base64": "AP8="}, "image/png", "\x00\xff", "image/png"},
	} {
		config := map[string]any{"url": s.URL, tt.field: tt.v}
		if tt.kind != "" {
			config["headers"] = map[string]any{"content-type": tt.kind}
		}
		if _, err := call(t, p, config); err != nil || s.body != tt.want || s.last.Header.Get("Content-Type") != tt.wantKind {
			t.Errorf("%s %v: %q as %q, %v", tt.field, tt.v, s.body, s.last.Header.Get("Content-Type"), err)
		}
		if s.last.ContentLength != int64(len(tt.want)) {
			t.Errorf("%s %v: length %d", tt.field, tt.v, s.last.ContentLength)
		}
	}
}

func TestUserOfAURL(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	address := strings.Replace(s.URL, "://", "://us:p%40ss@", 1)
	if _, err := call(t, p, map[string]any{"url": address}); err != nil {
		t.Fatal(err)
	}
	if user, password, ok := s.last.BasicAuth(); !ok || user != "us" || password != "p@ss" {
		t.Errorf("%q %q", user, password)
	}
	if _, err := call(t, p, map[string]any{"url": address, "headers": map[string]any{"authorization": "key"}}); err != nil || s.last.Header.Get("Authorization") != "key" {
		t.Errorf("authorization %q %v", s.last.Header.Get("Authorization"), err)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, change := range []map[string]any{
		{"url": nil}, {"url": "http://"}, {"url": "http://:80/"}, {"url": 3}, {"url": "ftp://pay"}, {"url": "//pay"}, {"url": "http://a b/"}, {"url": "http://[::1"},
		{"url": "http://%31%32%37.0.0.1/"}, {"url": "http://pay\\@127.0.0.1/"}, {"url": "http://a\r\nb/"},
		{"method": "CONNECT"}, {"method": "A B"}, {"method": "PSOT"}, {"method": 7},
		{"headers": "h"}, {"headers": map[string]any{"A": "b\r\nC: d"}}, {"headers": map[string]any{"A B": "c"}}, {"headers": map[string]any{"": "c"}},
		{"headers": map[string]any{"content-length": "7"}}, {"headers": map[string]any{"transfer-encoding": "chunked"}}, {"headers": map[string]any{"upgrade": "x"}},
		{"headers": map[string]any{"accept-encoding": "gzip"}}, {"headers": map[string]any{"host": []any{"a", "b"}}}, {"headers": map[string]any{"host": "a/b"}},
		{"query": "q"}, {"form": "a=1"}, {"form": nil}, {"raw": 7}, {"raw": nil}, {"raw": []any{"a"}}, {"raw": map[string]any{}},
		{"raw": map[string]any{"base64": 7}}, {"raw": map[string]any{"base64": "?"}}, {"raw": map[string]any{"base64": "AA==", "b": 1}},
		{"body": 1, "form": map[string]any{}}, {"form": map[string]any{}, "raw": "a"}, {"body": nil, "raw": "a"},
		{"redirects": -1}, {"redirects": 11}, {"redirects": "3"}, {"redirects": nil}, {"redirects": 1.5},
		{"tls": "x"}, {"tls": map[string]any{"ca": ""}},
	} {
		config := map[string]any{"url": s.URL}
		for name, v := range change {
			config[name] = v
		}
		_, err := call(t, p, config)
		if class(err) != never {
			t.Errorf("%v: %s, %v", change, class(err), err)
		}
	}
	if n := s.total(); n != 0 {
		t.Errorf("the other side saw %d requests", n)
	}
}

func TestAnswersToHead(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	}
	if r, err := call(t, provider(t, dial.Options{AllowLoopback: true}), map[string]any{"method": "HEAD", "url": s.URL}); err != nil || r.Body != nil {
		t.Errorf("%+v %v", r, err)
	}
}

// TestDatesAreOfTheirClock: the server's clock is an hour behind.
func TestDatesAreOfTheirClock(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
		w.Header().Set("Retry-After", "Thu, 01 Jan 2026 00:00:20 GMT")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r, err := call(t, provider(t, dial.Options{AllowLoopback: true}), map[string]any{"url": s.URL})
	if err != nil || r.After.Seconds() != 20 || !r.Retry {
		t.Errorf("%+v %v", r, err)
	}
}

func TestErrorsShowNoURL(t *testing.T) {
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, address := range []string{"http://" + nobody(t) + "/?token=s3cret", "http://s3cret:\x7f/", "s3cret", "http://s3cret@10.0.0.1/s3cret"} {
		_, err := p.Call(t.Context(), effects.Call{Config: map[string]any{"url": address, "headers": map[string]any{"A": "s3cret"}}})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error %v", err)
		}
	}
	_, err := p.Call(t.Context(), effects.Call{Config: map[string]any{"url": "http://pay.test", "raw": map[string]any{"base64": "s3cret?"}, "tls": map[string]any{"ca": "s3cret"}}})
	if !errors.Is(err, edda.Permanent) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
}

// TestARequestIsWrittenAtOnce, its head with its body: net/http writes the head by
// itself before it reads a body of a type that it does not know.
func TestARequestIsWrittenAtOnce(t *testing.T) {
	s := open(t)
	writes := new(atomic.Int64)
	over := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return counted{conn, writes}, err
	}}
	t.Cleanup(over.CloseIdleConnections)
	p := with(t, dial.Options{}, Options{Transport: over})
	for field, v := range map[string]any{"body": map[string]any{"a": 1}, "form": map[string]any{"a": 1}, "raw": "a", "method": "GET"} {
		before := writes.Load()
		if _, err := call(t, p, map[string]any{"url": s.URL, field: v}); err != nil {
			t.Fatal(err)
		}
		if n := writes.Load() - before; n != 1 {
			t.Errorf("%s: %d writes", field, n)
		}
	}
}

// counted counts what is written to a connection.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
