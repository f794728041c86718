package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// TestRequestsAreWrittenAsNetHTTPWritesThem, byte for byte, and at once.
func TestRequestsAreWrittenAsNetHTTPWritesThem(t *testing.T) {
	for _, tt := range []struct {
		method, url, host, body string
		header                  http.Header
	}{
		{"GET", "http://pay.test", "", "", nil},
		{"GET", "http://pay.test/a/b?c=d&e=%20f#g", "", "", nil},
		{"GET", "http://pay.test/a b/\u00fc?\u00fc", "", "", nil},
		{"GET", "http://pay.test?c", "", "", nil},
		{"GET", "http://pay.test//a/../b", "", "", nil},
		{"GET", "http://pay.test/%2F%2e", "", "", nil},
		{"GET", "http://pay.test:8080/", "", "", nil},
		{"GET", "http://pay.test:/", "", "", nil},
		{"GET", "http://192.0.2.1:8080/", "", "", nil},
		{"GET", "http://[2001:db8::1]/", "", "", nil},
		{"GET", "http://[2001:db8::1]:8080/", "", "", nil},
		{"GET", "http://[fe80::1%25eth0]:8080/", "", "", nil},
		{"GET", "http://us:p%40ss@pay.test/", "", "", nil}, // a header says it, or nothing does
		{"GET", "http://b\u00fccher.test/", "", "", nil},
		{"GET", "http://PAY.test/", "", "", nil},
		{"GET", "http://pay.test/", "other.test:99", "", nil},
		{"GET", "http://pay.test/", "b\u00fccher.test", "", nil},
		{"GET", "http://pay.test/", "", "asked", nil},
		{"HEAD", "http://pay.test/", "", "", nil},
		{"GET", "http://pay.test/", "", "", http.Header{"Range": {"bytes=0-1"}}},
		{"GET", "http://pay.test/", "", "", http.Header{"Accept-Encoding": {"br"}}},
		{"GET", "http://pay.test/", "", "", http.Header{"X-B": {"1", "", "2"}, "X-A": {" spaces\t"}, "Cookie": {"a=b"}, "x-odd": {"1"}}},
		{"GET", "http://pay.test/", "", "", http.Header{"User-Agent": {""}}},
		{"GET", "http://pay.test/", "", "", http.Header{"User-Agent": {" one ", "two"}}},
		{"GET", "http://pay.test/", "", "", http.Header{"Host": {"ignored"}, "Content-Length": {"7"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"X"}}},
		{"POST", "http://pay.test/", "", "", nil},
		{"POST", "http://pay.test/", "", "text", http.Header{"Content-Type": {"text/plain"}, "Idempotency-Key": {"k"}}},
		{"PUT", "http://pay.test/", "", "", nil},
		{"PATCH", "http://pay.test/", "", "text", nil},
		{"DELETE", "http://pay.test/", "", "", nil},
		{"DELETE", "http://pay.test/", "", "text", nil},
		{"OPTIONS", "http://pay.test/", "", "", nil},
		{"TRACE", "http://pay.test/", "", "", nil},
	} {
		for _, closing := range []bool{false, true} {
			made := func() *http.Request {
				req := request(t, tt.method, "pay.test", tt.body)
				req.Header = http.Header{"User-Agent": {"edda"}}
				for name, values := range tt.header {
					req.Header[name] = values
				}
				req.URL, req.Host, req.Close = parse(t, tt.url), tt.host, closing
				return req
			}
			ours, theirs := asked(t, "http1", made()), asked(t, "net/http", made())
			if ours != theirs {
				t.Errorf("%s %s:\n%s\nwant\n%s", tt.method, tt.url, ours, theirs)
			}
		}
	}
}

// asked is where a request goes and what is sent.
func asked(t *testing.T, over string, req *http.Request) string {
	t.Helper()
	var sent bytes.Buffer
	where := ""
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		where = network + " " + address
		near, far := net.Pipe()
		return &heardConn{Conn: near, far: far, sent: &sent}, nil
	}
	rt := http.RoundTripper(dialling(t, dial))
	if over == "net/http" {
		theirs := &http.Transport{DialContext: dial}
		defer theirs.CloseIdleConnections()
		rt = theirs
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s: %s: %v", over, req.URL, err)
	}
	_ = resp.Body.Close()
	return where + "\n" + sent.String()
}

// heardConn remembers what is written and answers it.
type heardConn struct {
	net.Conn
	far  net.Conn
	sent *bytes.Buffer
	once bool // it was written to
}

func (h *heardConn) Write(p []byte) (int, error) {
	if h.once {
		return 0, errors.New("written in more than one piece")
	}
	h.once = true
	h.sent.Write(p)
	go func() {
		_, _ = io.WriteString(h.far, "HTTP/1.1 204 No Content\r\n\r\n")
		_ = h.far.Close()
	}()
	return len(p), nil
}

// TestRequestsThatAreNoneAreNotSent, and nobody is dialled.
func TestRequestsThatAreNoneAreNotSent(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"no url":                     func(r *http.Request) { r.URL = nil },
		"another scheme":             func(r *http.Request) { r.URL.Scheme = "https" },
		"no host":                    func(r *http.Request) { r.URL.Host = "" },
		"a host with a space":        func(r *http.Request) { r.URL.Host = "pay test" },
		"a host of two lines":        func(r *http.Request) { r.URL.Host = "pay\r\nX: y" },
		"a host header of two lines": func(r *http.Request) { r.Host = "pay\r\nX: y" },
		"no method":                  func(r *http.Request) { r.Method = "" },
		"a method with a space":      func(r *http.Request) { r.Method = "GET /" },
		"a method of two lines":      func(r *http.Request) { r.Method = "GET\r\n" },
		"a path of two lines":        func(r *http.Request) { r.URL.Opaque = "/a\r\nX: y" },
		"a query of two lines":       func(r *http.Request) { r.URL.RawQuery = "a\r\nX: y" },
		"a header of two lines":      func(r *http.Request) { r.Header["A"] = []string{"s3cret\r\nX: y"} },
		"a header's end of line":     func(r *http.Request) { r.Header["A"] = []string{"s3cret\n"} },
		"a name of two lines":        func(r *http.Request) { r.Header["A: b\r\nC"] = []string{"s3cret"} },
		"no name":                    func(r *http.Request) { r.Header[""] = []string{"s3cret"} },
		"a length not known":         func(r *http.Request) { r.ContentLength = -1 },
		"chunks":                     func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
		"trailers":                   func(r *http.Request) { r.Trailer = http.Header{"A": nil} },
		"a length without a body":    func(r *http.Request) { r.Body = nil },
		"a body that is shorter":     func(r *http.Request) { r.ContentLength++ },
		"a body that is longer":      func(r *http.Request) { r.ContentLength-- },
		"a body without a length":    func(r *http.Request) { r.ContentLength = 0 },
		"a body that fails":          func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(errors.New("disk"))) },
	} {
		over := dialling(t, func(context.Context, string, string) (net.Conn, error) {
			t.Errorf("%s: dialled", name)
			return nil, errors.New("none")
		})
		req := request(t, http.MethodPost, "pay.test", "text")
		req.Host = ""
		body := &closed{ReadCloser: req.Body}
		req.Body = body
		if change(req); req.Body != io.ReadCloser(body) {
			body.is = true // another one
		}
		_, err := over.RoundTrip(req)
		if !errors.Is(err, ErrUnsent) || strings.Contains(err.Error(), "s3cret") || !body.is {
			t.Errorf("%s: %v, body closed %t", name, err, body.is)
		}
	}
}

type closed struct {
	io.ReadCloser
	is bool
}

func (c *closed) Close() error { c.is = true; return c.ReadCloser.Close() }
