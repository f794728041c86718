package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestClientCalls(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	c := NewClient(listen(t, s), ClientOptions{})
	var got loadParams
	if err := c.Call(t.Context(), "flow.load", loadParams{Context: 1, ID: 2}, &got); err != nil || got != (loadParams{1, 2}) {
		t.Errorf("object: %+v, %v", got, err)
	}
	if err := c.Call(t.Context(), "flow.load", []any{loadParams{Context: 3, ID: 4}}, &got); err != nil || got != (loadParams{3, 4}) {
		t.Errorf("list: %+v, %v", got, err)
	}
	if err := c.Call(t.Context(), "none", nil, nil); err != nil {
		t.Errorf("none: %v", err)
	}
	err := c.Call(t.Context(), "flow.load", loadParams{Context: 1, ID: 404}, &got)
	var e *Error
	if !errors.As(err, &e) || e.Code != NotFound || e.Data != "there is no flow:404" {
		t.Errorf("error %v", err)
	}
	if want := "call flow.load: Not found (-32001): there is no flow:404"; err.Error() != want {
		t.Errorf("text %q", err)
	}
	if err := c.Call(t.Context(), "flow.load", make(chan int), nil); err == nil || !strings.Contains(err.Error(), "parameters of flow.load") {
		t.Errorf("parameters: %v", err)
	}
}

func TestClientDistrustsItsServer(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		want       string
	}{
		{"another server", "<html>", 200, "no JSON-RPC"},
		{"another status", "404 page not found", 404, "HTTP status 404 Not Found: 404 page not found"},
		{"a status with an answer", `{"jsonrpc":"2.0","id":null,"error":{"code":-32007,"message":"big"}}`, 413, "big (-32007)"},
		{"no version", `{"id":"1","result":1}`, 200, "no JSON-RPC 2.0"},
		{"another id", `{"jsonrpc":"2.0","id":"2","result":1}`, 200, "another call, 2"},
		{"an id of another type", `{"jsonrpc":"2.0","id":1,"result":1}`, 200, "another call, 1"},
		{"an error of another call", `{"jsonrpc":"2.0","id":"2","error":{"code":1,"message":"x"}}`, 200, "another call, 2"},
		{"an error without an id", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`, 200, "Parse error (-32700)"},
		{"nothing in it", `{"jsonrpc":"2.0","id":"1"}`, 200, "neither result nor error"},
		{"a batch", `[{"jsonrpc":"2.0","id":"1","result":1}]`, 200, "no JSON-RPC"},
		{"another type", `{"jsonrpc":"2.0","id":"1","result":"text"}`, 200, "read the result"},
		{"too long", strings.Repeat(" ", 300), 200, "more than 200 bytes"},
		{"a redirect", "", 307, "HTTP status 307"},
		{"empty", "", 200, "no JSON-RPC"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					t.Error("it followed a redirect, with its token")
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = fmt.Fprint(w, tt.body)
			}))
			var n int
			err := NewClient(url, ClientOptions{MaxBody: 200, Token: "secret"}).Call(t.Context(), "m", nil, &n)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestClientGivesUp(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	url := listen(t, s)
	if err := NewClient(url, ClientOptions{Timeout: time.Millisecond}).Call(t.Context(), "waits", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its own timeout: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := NewClient(url, ClientOptions{Timeout: time.Hour}).Call(ctx, "waits", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's: %v", err)
	}
	dead := httptest.NewServer(nil)
	dead.Close()
	var e *Error
	if err := NewClient(dead.URL, ClientOptions{}).Call(t.Context(), "none", nil, nil); err == nil || errors.As(err, &e) {
		t.Errorf("dead: %v", err)
	}
	if err := NewClient("::", ClientOptions{}).Call(t.Context(), "none", nil, nil); err == nil {
		t.Error("no URL")
	}
}

func TestErrorText(t *testing.T) {
	tests := []struct {
		err  *Error
		want string
	}{
		{&Error{Code: 5, Message: "m"}, "m (5)"},
		{Errorf(DagError, "a <- b"), "DAG error (-32020): a <- b"},
		{&Error{Code: 5, Message: "m", Data: map[string]int{"a": 1}}, `m (5): {"a":1}`},
		{&Error{Code: 5, Message: "m", Data: func() {}}, "m (5): "},
		{unfit("id", "id is missing"), "Invalid params (-32602): id is missing"},
		{&Error{Code: 1, Message: Words(12345)}, "Server error (1)"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	for _, code := range []int{ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError, NotFound, PermissionDenied, TooBig, Busy, StorageError, AlreadyExists, DagError} {
		if Words(code) == Words(0) {
			t.Errorf("%d has no words", code)
		}
	}
}
