package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/internal/testkit"

	"github.com/coder/websocket"
)

const patience = 20 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, url string, o ClientOptions) *Socket {
	t.Helper()
	s, err := Dial(within(t), url, o)
	testkit.Must(t, err)
	t.Cleanup(s.Close)
	return s
}

// raw is a WebSocket without our client around it.
func raw(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(within(t), url, nil)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func exchange(t *testing.T, c *websocket.Conn, kind websocket.MessageType, sent string) string {
	t.Helper()
	testkit.Must(t, c.Write(within(t), kind, []byte(sent)))
	_, got, err := c.Read(within(t))
	testkit.Must(t, err)
	return string(got)
}

func TestWebSocket(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	t.Cleanup(s.Close)
	c := raw(t, listen(t, s.WebSocket()))
	const ok = `{"jsonrpc":"2.0","id":1,"result":null}`
	for sent, want := range map[string]string{
		one:                                     ok,
		"[" + one + "]":                         "[" + ok + "]",
		"[]":                                    `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request","data":"the batch is empty"}}`,
		"{":                                     `-32700`,
		`{"jsonrpc":"2.0","id":1,"method":"x"}`: `-32601`,
	} {
		if got := exchange(t, c, websocket.MessageText, sent); !strings.Contains(got, want) {
			t.Errorf("%s got %s", sent, got)
		}
	}
	if got := exchange(t, c, websocket.MessageBinary, one); got != ok {
		t.Errorf("binary got %s", got)
	}
	// A notification has no answer: the next one is that of the next call.
	testkit.Must(t, c.Write(within(t), websocket.MessageText, []byte(`{"jsonrpc":"2.0","method":"none"}`)))
	if got := exchange(t, c, websocket.MessageText, `{"jsonrpc":"2.0","id":2,"method":"none"}`); !strings.Contains(got, `"id":2`) {
		t.Errorf("got %s", got)
	}
}

func TestQuickAnswerPassesASlowOne(t *testing.T) {
	release := make(chan struct{})
	slow := Define("slow", "", MethodOptions{}, func(context.Context, struct{}) (string, error) {
		<-release
		return "slow", nil
	})
	quick := Define("quick", "", MethodOptions{}, func(context.Context, struct{}) (string, error) { return "quick", nil })
	s, err := NewServer(Info{Title: "t", Version: "1"}, []Method{slow, quick}, ServerOptions{})
	testkit.Must(t, err)
	t.Cleanup(s.Close)
	c := dial(t, listen(t, s.WebSocket()), ClientOptions{})
	var calls sync.WaitGroup
	calls.Go(func() {
		var got string
		if err := c.Call(within(t), "slow", nil, &got); err != nil || got != "slow" {
			t.Errorf("%q, %v", got, err)
		}
	})
	var got string
	if err := c.Call(within(t), "quick", nil, &got); err != nil || got != "quick" {
		t.Errorf("%q, %v", got, err)
	}
	close(release)
	calls.Wait()
}

func TestManyCallsOverOneSocket(t *testing.T) {
	s, called := newServer(t, ServerOptions{})
	t.Cleanup(s.Close)
	c := dial(t, listen(t, s.WebSocket()), ClientOptions{})
	var calls sync.WaitGroup
	for i := range uint32(300) { // more than are worked on at once
		calls.Go(func() {
			var got loadParams
			if err := c.Call(within(t), "flow.load", []any{loadParams{Context: 1, ID: i + 1000}}, &got); err != nil || got.ID != i+1000 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	calls.Wait()
	if called.Load() != 300 {
		t.Errorf("%d calls", called.Load())
	}
	var e *Error
	if err := c.Call(within(t), "breaks", nil, nil); !errors.As(err, &e) || e.Code != InternalError {
		t.Errorf("%v", err)
	}
}

func TestSocketIsClosedForAMessageThatIsTooBig(t *testing.T) {
	s, _ := newServer(t, ServerOptions{MaxBody: 1000})
	t.Cleanup(s.Close)
	c := raw(t, listen(t, s.WebSocket()))
	testkit.Must(t, c.Write(within(t), websocket.MessageText, []byte(strings.Repeat(" ", 1001))))
	if _, _, err := c.Read(within(t)); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("got %v", err)
	}
}

func TestClosingTheServerEndsSocketsAndCalls(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	url := listen(t, s.WebSocket())
	idle, busy := dial(t, url, ClientOptions{}), dial(t, url, ClientOptions{})
	ended := make(chan error, 1)
	go func() { ended <- busy.Call(within(t), "waits", nil, nil) }()
	testkit.Must(t, busy.Call(within(t), "none", nil, nil))
	s.Close()
	if err := <-ended; err == nil {
		t.Error("the call was answered")
	}
	if err := idle.Call(within(t), "none", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("idle: %v", err)
	}
	if _, err := Dial(within(t), url, ClientOptions{}); err == nil {
		t.Error("a new one is taken")
	}
	s.Close() // again
}

func TestSocketsBeyondTheBoundWait(t *testing.T) {
	s, _ := newServer(t, ServerOptions{MaxConcurrent: 1})
	t.Cleanup(s.Close)
	url := listen(t, s.WebSocket())
	first := dial(t, url, ClientOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, url, ClientOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second: %v", err)
	}
	first.Close()
	dial(t, url, ClientOptions{})
}

func TestSocketNeedsAToken(t *testing.T) {
	s := withTokens(t)
	t.Cleanup(s.Close)
	url := listen(t, s.WebSocket())
	if _, err := Dial(within(t), url, ClientOptions{Token: "wrong"}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("wrong token: %v", err)
	}
	var actor int
	if err := dial(t, url, ClientOptions{Token: "secret"}).Call(within(t), "who", nil, &actor); err != nil || actor != 7 {
		t.Errorf("%d, %v", actor, err)
	}
}

func TestPagesOfOtherHostsAreRefused(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	t.Cleanup(s.Close)
	url := listen(t, s.WebSocket())
	_, res, err := websocket.Dial(within(t), url, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://evil.example"}}})
	if err == nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("got %v", err)
	}
	if res, _ := send(t, "GET", url, "", ""); res.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("no WebSocket: %d", res.StatusCode)
	}
}

func TestSocketDropsAnswersThatNoCallWaitsFor(t *testing.T) {
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		for {
			_, sent, err := c.Read(r.Context())
			if err != nil {
				return
			}
			var call struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(sent, &call); err != nil {
				t.Error(err)
			}
			for _, answer := range []string{"garbage", `{"jsonrpc":"2.0","id":"99","result":1}`, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":2}`, call.ID), fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":3}`, call.ID)} {
				if err := c.Write(r.Context(), websocket.MessageText, []byte(answer)); err != nil {
					return
				}
			}
		}
	}))
	c := dial(t, url, ClientOptions{})
	for range 3 {
		var got int
		if err := c.Call(within(t), "m", nil, &got); err != nil || got != 2 {
			t.Errorf("%d, %v", got, err)
		}
	}
	if len(c.waiting) != 0 {
		t.Errorf("%d wait", len(c.waiting))
	}
}

func TestAnswersAfterTheFirstBlockNoCall(t *testing.T) {
	s := &Socket{waiting: map[string]chan []byte{"1": make(chan []byte, 1)}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			s.hand([]byte(`{"jsonrpc":"2.0","id":"1","result":1}`))
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("it waits for somebody to take the second one")
	}
}
