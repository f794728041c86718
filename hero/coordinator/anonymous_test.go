package coordinator

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

// slow opens connections that begin a request and never complete it.
func slow(t *testing.T, addr string, n int, header string) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", addr)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 10485760\r\n%s\r\n{\"jsonrpc\"", header)
	}
}

func TestSlowAnonymousClientsDoNotShutOutCallersWithTokens(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	c := running(t, w, Options{Tokens: map[string]uint32{tokenOf(admin): admin}})
	slow(t, c.HTTPAddr(), maxConnections+50, "")
	slow(t, c.WSAddr(), maxConnections+50, "")
	slow(t, c.HTTPAddr(), 50, "Authorization: Bearer not-a-token-of-anybody\r\n")
	answeredAtOnce(t, c, jsonrpc.ClientOptions{Token: tokenOf(admin)})
}

func TestSlowClientsDoNotShutOthersOutWithoutTokens(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	c := running(t, w, Options{})
	slow(t, c.HTTPAddr(), maxConnections+50, "")
	slow(t, c.WSAddr(), maxConnections+50, "")
	answeredAtOnce(t, c, jsonrpc.ClientOptions{})
}

// answeredAtOnce calls both addresses, which must answer within seconds even on a busy
// machine. Slow clients may stay for half a minute.
func answeredAtOnce(t *testing.T, c *Coordinator, o jsonrpc.ClientOptions) {
	t.Helper()
	o.Timeout = 15 * time.Second
	for range 3 {
		if err := jsonrpc.NewClient("http://"+c.HTTPAddr(), o).Call(t.Context(), "context.load", dict2{"id": 7}, nil); err != nil {
			t.Errorf("over HTTP: %v", err)
		}
		socket, err := jsonrpc.Dial(t.Context(), "ws://"+c.WSAddr(), o)
		testkit.Must(t, err)
		if err := socket.Call(t.Context(), "context.load", dict2{"id": 7}, nil); err != nil {
			t.Errorf("over WebSocket: %v", err)
		}
		socket.Close()
	}
}

func TestTheBearerSchemesCaseDoesNotMatter(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	c := running(t, w, Options{Tokens: map[string]uint32{tokenOf(admin): admin}})
	for scheme, welcome := range map[string]bool{"Bearer": true, "bearer": true, "BEARER": true, "bEaReR": true, "Basic": false, "Bearers": false, "": false} {
		got := status(t, c.HTTPAddr(), "Authorization: "+scheme+" "+tokenOf(admin)+"\r\n")
		if want := map[bool]string{true: "200", false: "401"}[welcome]; got != want {
			t.Errorf("%q over HTTP: %s, want %s", scheme, got, want)
		}
		got = status(t, c.WSAddr(), "Authorization: "+scheme+" "+tokenOf(admin)+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
		if want := map[bool]string{true: "101", false: "401"}[welcome]; got != want {
			t.Errorf("%q over WebSocket: %s, want %s", scheme, got, want)
		}
	}
}

// status sends a raw request with the header, and returns the status code.
func status(t *testing.T, addr, header string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	testkit.Must(t, err)
	defer conn.Close()
	method, body := "POST", `{"jsonrpc":"2.0","id":1,"method":"actor.list"}`
	if strings.Contains(header, "websocket") {
		method, body = "GET", ""
	}
	_, err = fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", method, len(body), header, body)
	line := make([]byte, len("HTTP/1.1 200"))
	_ = conn.SetReadDeadline(time.Now().Add(15 * time.Second))
	_, err2 := conn.Read(line)
	testkit.Must(t, errors.Join(err, err2))
	return string(line[len("HTTP/1.1 "):])
}
