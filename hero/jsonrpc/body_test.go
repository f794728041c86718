package jsonrpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"edda/internal/testkit"

	"github.com/coder/websocket"
)

// trickle opens a connection that announces a body and sends ten bytes of it.
func trickle(t *testing.T, url string, length int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length, strings.Repeat(" ", 10)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestSlowAnonymousBodiesKeepNoCallerWaiting(t *testing.T) {
	url := listen(t, withTokens(t))
	var slow []net.Conn
	for range defaultMaxConcurrent {
		slow = append(slow, trickle(t, url, 10<<20))
	}
	for range 10 {
		testkit.Must(t, NewClient(url, ClientOptions{Token: "secret"}).Call(t.Context(), "who", nil, nil))
	}
	for _, conn := range slow { // each has its answer, though it has sent ten bytes of ten million
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusUnauthorized {
			t.Fatalf("%v %v", res, err)
		}
	}
}

func TestSlowBodiesTakeNoPlaceWithoutTokensEither(t *testing.T) {
	s, _ := newServer(t, ServerOptions{MaxConcurrent: 4})
	url := listen(t, s)
	for range 40 {
		trickle(t, url, 10<<20)
	}
	for range 10 {
		testkit.Must(t, NewClient(url, ClientOptions{}).Call(t.Context(), "none", nil, nil))
	}
}

// unread fails when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a request without a token was read")
	return 0, io.EOF
}

func TestABodyIsNotReadBeforeItsCallerIsKnown(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", unread{t})
	r.Header.Set("Content-Type", "application/json")
	withTokens(t).ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
}

// impatient is a request whose patience is over at once.
func impatient(t *testing.T, body string) *http.Request {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest("POST", "/", strings.NewReader(body)).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestLargeBodiesShareTheirRoom(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	if !s.bodies.TryAcquire(maxBodies) {
		t.Fatal("the room is not empty")
	}
	large := one + strings.Repeat(" ", smallBody)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, impatient(t, large))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "large") {
		t.Errorf("without room: %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", strings.NewReader(one))
	r.Header.Set("Content-Type", "application/json")
	if s.ServeHTTP(w, r); w.Code != 200 {
		t.Errorf("a small one: %d %s", w.Code, w.Body)
	}
	s.bodies.Release(maxBodies)
	w = httptest.NewRecorder()
	r = httptest.NewRequest("POST", "/", strings.NewReader(large))
	r.Header.Set("Content-Type", "application/json")
	if s.ServeHTTP(w, r); w.Code != 200 {
		t.Errorf("with room: %d %s", w.Code, w.Body)
	}
	if !s.bodies.TryAcquire(maxBodies) {
		t.Error("it was not given back")
	}
}

func TestRoomIsTakenByReceivedBytesNotByTheAnnouncedLength(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	url := listen(t, s)
	for range 40 { // announced are 400 MiB
		trickle(t, url, 10<<20)
	}
	if err := NewClient(url, ClientOptions{}).Call(t.Context(), "none", map[string]any{"x": strings.Repeat("x", 9<<20)}, nil); err != nil {
		t.Error(err)
	}
}

func TestAnonymousBodiesHaveARoomOfTheirOwn(t *testing.T) {
	who := Define("who", "", MethodOptions{}, func(context.Context, struct{}) (int, error) { return 7, nil })
	s, err := NewServer(Info{Title: "t", Version: "1"}, []Method{who}, ServerOptions{Auth: func(ctx context.Context, r *http.Request) (context.Context, error) {
		if r.Header.Get("Authorization") == "" {
			return Anonymous(ctx), nil
		}
		return ctx, nil
	}})
	testkit.Must(t, err)
	if !s.anonymousBodies.TryAcquire(maxAnonymousBodies) {
		t.Fatal("the room is not empty")
	}
	large := `{"jsonrpc":"2.0","id":1,"method":"who"}` + strings.Repeat(" ", smallBody)
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, impatient(t, large)); w.Code != 503 {
		t.Errorf("an anonymous one: %d %s", w.Code, w.Body)
	}
	url := listen(t, s)
	if res, got := send(t, "POST", url, "application/json", large, "Authorization", "mine"); res.StatusCode != 200 {
		t.Errorf("a caller's: %d %s", res.StatusCode, got)
	}
}

func TestASlowAnonymousBodyIsCutSoonerThanACallers(t *testing.T) {
	t.Parallel() // it waits for real
	if anonymousBodyWait >= bodyWait {
		t.Error("it has as long")
	}
	s, _ := newServer(t, ServerOptions{Auth: func(ctx context.Context, _ *http.Request) (context.Context, error) { return Anonymous(ctx), nil }})
	conn := trickle(t, listen(t, s), 100)
	_ = conn.SetReadDeadline(time.Now().Add(anonymousBodyWait + patience))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("%v %v", res, err)
	}
}

func TestMessagesOfWebSocketsShareTheRoomOfBodies(t *testing.T) {
	t.Parallel() // it waits for real
	s, _ := newServer(t, ServerOptions{})
	url := listen(t, s.WebSocket())
	c, _, err := websocket.Dial(within(t), url, nil)
	testkit.Must(t, err)
	defer func() { _ = c.CloseNow() }()
	if !s.bodies.TryAcquire(maxBodies) {
		t.Fatal("the room is not empty")
	}
	testkit.Must(t, c.Write(within(t), websocket.MessageText, []byte(one+strings.Repeat(" ", smallBody))))
	_, _, err = c.Read(within(t))
	if code := websocket.CloseStatus(err); code != websocket.StatusTryAgainLater {
		t.Errorf("%v", err)
	}
	s.bodies.Release(20 << 20) // room for two messages, and for more only where each is given back
	again, _, err := websocket.Dial(within(t), url, nil)
	testkit.Must(t, err)
	defer func() { _ = again.CloseNow() }()
	for range 5 {
		testkit.Must(t, again.Write(within(t), websocket.MessageText, []byte(one+strings.Repeat(" ", 9<<20))))
		if _, raw, err := again.Read(within(t)); err != nil || !strings.Contains(string(raw), "result") {
			t.Fatalf("%s %v", raw, err)
		}
	}
}

func TestAWebSocketWithoutATokenIsRefusedBeforeItIsOne(t *testing.T) {
	url := listen(t, withTokens(t).WebSocket())
	_, res, err := websocket.Dial(within(t), url, nil)
	if err == nil || res == nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v %v", res, err)
	}
}

func TestReceivedIsToldOnceTheBodyIsWhole(t *testing.T) {
	told := make(chan struct{}, 10)
	s, _ := newServer(t, ServerOptions{Received: func(context.Context) { told <- struct{}{} }})
	url := listen(t, s)
	trickle(t, url, 100)
	testkit.Must(t, NewClient(url, ClientOptions{}).Call(t.Context(), "none", nil, nil))
	if n := len(told); n != 1 {
		t.Errorf("told %d times", n)
	}
	var e *Error
	if err := NewClient(url, ClientOptions{}).Call(t.Context(), "nothing", nil, nil); !errors.As(err, &e) {
		t.Error(err)
	}
}
