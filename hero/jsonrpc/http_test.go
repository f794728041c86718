package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/internal/testkit"
)

const one = `{"jsonrpc":"2.0","id":1,"method":"none"}`

func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func send(t *testing.T, method, url, contentType, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	testkit.Must(t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	testkit.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	testkit.Must(t, err)
	return res, string(raw)
}

func TestHTTP(t *testing.T) {
	s, _ := newServer(t, ServerOptions{MaxBody: 1000})
	url := listen(t, s)
	const json = "application/json"
	big := `{"jsonrpc":"2.0","id":1,"method":"none","params":{"x":"` + strings.Repeat("x", 1000) + `"}}`
	tests := []struct {
		name, method, path, contentType, body string
		status                                int
		want                                  string
	}{
		{"a call", "POST", "/", json, one, 200, `{"jsonrpc":"2.0","id":1,"result":null}`},
		{"any path", "POST", "/rpc/v1?x=y", json, one, 200, `"result":null`},
		{"utf-8", "POST", "/", "application/json; charset=UTF-8", one, 200, `"result":null`},
		{"in capitals", "POST", "/", "Application/JSON", one, 200, `"result":null`},
		{"json-rpc", "POST", "/", "application/json-rpc", one, 200, `"result":null`},
		{"batch", "POST", "/", json, "[" + one + "]", 200, `[{"jsonrpc":"2.0","id":1,"result":null}]`},
		{"notification", "POST", "/", json, `{"jsonrpc":"2.0","method":"none"}`, 200, ""},
		{"parse error", "POST", "/", json, `{`, 200, `"code":-32700`},
		{"nothing", "POST", "/", json, "", 200, `"code":-32700`},
		{"empty batch", "POST", "/", json, "[]", 200, `"code":-32600`},
		{"unknown method", "POST", "/", json, `{"jsonrpc":"2.0","id":1,"method":"x"}`, 200, `"code":-32601`},
		{"a failure", "POST", "/", json, `{"jsonrpc":"2.0","id":1,"method":"breaks"}`, 200, `"code":-32603`},
		{"GET", "GET", "/", json, "", 405, "POST"},
		{"PUT", "PUT", "/", json, one, 405, "POST"},
		{"OPTIONS", "OPTIONS", "/", "", "", 405, "POST"},
		{"HEAD", "HEAD", "/", "", "", 405, ""},
		{"no type", "POST", "/", "", one, 415, "application/json"},
		{"text", "POST", "/", "text/plain", one, 415, "application/json"},
		{"form", "POST", "/", "application/x-www-form-urlencoded", one, 415, "application/json"},
		{"other charset", "POST", "/", "application/json; charset=latin1", one, 415, "application/json"},
		{"other parameter", "POST", "/", "application/json; x=y", one, 415, "application/json"},
		{"like json", "POST", "/", "application/jsonx", one, 415, "application/json"},
		{"garbled type", "POST", "/", "application/json;;;=", one, 415, "application/json"},
		{"too big", "POST", "/", json, big, 413, `"code":-32007`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, got := send(t, tt.method, url+tt.path, tt.contentType, tt.body)
			if res.StatusCode != tt.status || !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("status %d: %s", res.StatusCode, got)
			}
			if res.StatusCode == 200 && res.Header.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("content type %q", res.Header.Get("Content-Type"))
			}
			if res.StatusCode == 405 && res.Header.Get("Allow") != "POST" {
				t.Error("no Allow")
			}
		})
	}
	if res, _ := send(t, "POST", url, json, one, "Content-Encoding", "gzip"); res.StatusCode != 415 {
		t.Errorf("gzip: %d", res.StatusCode)
	}
}

func TestBodyWithoutALengthIsBounded(t *testing.T) {
	s, called := newServer(t, ServerOptions{MaxBody: 1000})
	url := listen(t, s)
	r, w := io.Pipe()
	go func() {
		for range 100 {
			if _, err := io.WriteString(w, strings.Repeat(" ", 100)); err != nil {
				return // it has read enough
			}
		}
		_ = w.Close()
	}()
	res, err := http.Post(url, "application/json", r)
	testkit.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != 413 || called.Load() != 0 {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestTenMebibytesAreTakenAndNoMore(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	url := listen(t, s)
	padded := one + strings.Repeat(" ", 10<<20-len(one))
	if res, got := send(t, "POST", url, "application/json", padded); res.StatusCode != 200 || !strings.Contains(got, "result") {
		t.Errorf("status %d: %.100s", res.StatusCode, got)
	}
	if res, _ := send(t, "POST", url, "application/json", padded+" "); res.StatusCode != 413 {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestBodyThatBreaksOffIsNotCalled(t *testing.T) {
	s, called := newServer(t, ServerOptions{})
	url := listen(t, s)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	testkit.Must(t, err)
	defer func() { _ = conn.Close() }()
	body := `{"jsonrpc":"2.0","id":1,"method":"flow.load","params":{"context_id":1,"id":1}}`
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, conn.(*net.TCPConn).CloseWrite())
	answer, _ := io.ReadAll(conn) // a reset is an answer, too
	if strings.Contains(string(answer), " 200 ") || called.Load() != 0 {
		t.Errorf("answer %s", answer)
	}
}

func TestRequestsBeyondTheBoundWait(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	hold := Define("hold", "", MethodOptions{}, func(context.Context, struct{}) (bool, error) {
		started <- struct{}{}
		<-release
		return true, nil
	})
	s, err := NewServer(Info{Title: "t", Version: "1"}, []Method{hold}, ServerOptions{MaxConcurrent: 1})
	testkit.Must(t, err)
	url := listen(t, s)
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if err := NewClient(url, ClientOptions{}).Call(t.Context(), "hold", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := take(ctx, s.busy, time.Hour); ok {
		t.Error("there was a place")
	}
	if _, ok := take(t.Context(), s.busy, time.Millisecond); ok {
		t.Error("there was a place")
	}
	release <- struct{}{}
	<-started // the second one only now
	release <- struct{}{}
	calls.Wait()
}

func TestFullServerSendsAway(t *testing.T) {
	s, _ := newServer(t, ServerOptions{MaxConcurrent: 1})
	s.busy <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // its deadline passes at once
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", strings.NewReader(one)).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(w, r)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d", w.Code)
	}
}

type actorKey struct{}

// tokens lets the token "secret" in, as actor 7.
func tokens(ctx context.Context, r *http.Request) (context.Context, error) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		return ctx, Errorf(PermissionDenied, "send a token that is known, as Authorization: Bearer")
	}
	return context.WithValue(ctx, actorKey{}, 7), nil
}

func withTokens(t *testing.T) *Server {
	who := Define("who", "", MethodOptions{}, func(ctx context.Context, _ struct{}) (int, error) {
		return ctx.Value(actorKey{}).(int), nil
	})
	s, err := NewServer(Info{Title: "t", Version: "1"}, []Method{who}, ServerOptions{Auth: tokens})
	testkit.Must(t, err)
	return s
}

func TestEveryCallIsDeniedWithoutAToken(t *testing.T) {
	url := listen(t, withTokens(t))
	const who = `{"jsonrpc":"2.0","id":1,"method":"who"}`
	for _, body := range []string{who, "[" + who + `,{"jsonrpc":"2.0","id":2,"method":"rpc.discover"}]`, "{", ""} {
		res, got := send(t, "POST", url, "application/json", body)
		if res.StatusCode != 401 || !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":null,"error":{"code":-32003`) || res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d %s", body, res.StatusCode, got)
		}
	}
	if _, got := send(t, "POST", url, "application/json", who, "Authorization", "Bearer secret"); !strings.Contains(got, `"result":7`) {
		t.Errorf("got %s", got)
	}
	var actor int
	if err := NewClient(url, ClientOptions{Token: "secret"}).Call(t.Context(), "who", nil, &actor); err != nil || actor != 7 {
		t.Errorf("%d, %v", actor, err)
	}
	var denied *Error
	if err := NewClient(url, ClientOptions{Token: "wrong"}).Call(t.Context(), "who", nil, &actor); !errors.As(err, &denied) || denied.Code != PermissionDenied {
		t.Errorf("%v", err)
	}
}

func TestCallEndsWithItsClient(t *testing.T) {
	ended := make(chan error, 1)
	started := make(chan struct{})
	m := Define("waits", "", MethodOptions{}, func(ctx context.Context, _ struct{}) (bool, error) {
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return false, ctx.Err()
	})
	s, err := NewServer(Info{Title: "t", Version: "1"}, []Method{m}, ServerOptions{})
	testkit.Must(t, err)
	url := listen(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if err := NewClient(url, ClientOptions{}).Call(ctx, "waits", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("call: %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("handler: %v", err)
	}
}
