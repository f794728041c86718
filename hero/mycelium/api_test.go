package mycelium

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/internal/testkit"
)

func TestPushPopReplyStatus(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		near, far := w.dial(w.near), w.dial(w.far)
		payload := []byte{0, 1, 2, 0xff, '<'}
		pushed, err := near.Push(t.Context(), w.dst(), topic, payload, 0)
		if err != nil || pushed.Reply != nil || len(pushed.ID) != 16 {
			t.Fatalf("push %+v, %v", pushed, err)
		}
		state(t, near, pushed.ID, StateReceived)
		if m := pop(t, far, "other"); m != nil {
			t.Errorf("popped %+v of another topic", m)
		}
		m := pop(t, far, topic)
		if m == nil || m.ID != pushed.ID || m.SrcPK != w.near.Key() || m.DstIP != w.far.IP() || !bytes.Equal(m.Payload, payload) || string(m.Topic) != topic {
			t.Fatalf("popped %+v", m)
		}
		state(t, near, pushed.ID, StateRead)
		testkit.Must(t, far.Reply(t.Context(), *m, []byte("pong")))
		if m := pop(t, near, topic); m != nil {
			t.Errorf("a reply has the topic: %+v", m)
		}
		r := pop(t, near, "")
		if r == nil || r.ID != pushed.ID || r.Topic != nil || string(r.Payload) != "pong" || r.SrcPK != w.far.Key() {
			t.Errorf("reply %+v", r)
		}
		state(t, near, "0123456789abcdef", StateUnknown)
		if _, err := near.Status(t.Context(), "odd"); err == nil {
			t.Error("an id that is none")
		}
		if err := far.Reply(t.Context(), Message{ID: "odd", SrcPK: w.near.Key()}, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("reply to an id that is none: %v", err)
		}
	})
}

func pop(t *testing.T, api API, topic string) *Message {
	t.Helper()
	m, err := api.Pop(t.Context(), &topic, 0)
	testkit.Must(t, err)
	return m
}

func state(t *testing.T, api API, id string, want State) {
	t.Helper()
	if s, err := api.Status(t.Context(), id); err != nil || s != want {
		t.Errorf("state %s, %v, want %s", s, err, want)
	}
}

func TestPushThatWaitsHasTheReply(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		near, far := w.dial(w.near), w.dial(w.far)
		var other sync.WaitGroup
		defer other.Wait()
		other.Go(func() {
			m, err := far.Pop(t.Context(), nil, 10*time.Second)
			if err == nil && m != nil {
				err = far.Reply(t.Context(), *m, []byte("pong"))
			}
			if err != nil || m == nil {
				t.Error("far:", m, err)
			}
		})
		pushed, err := near.Push(t.Context(), w.dst(), "", []byte("ping"), 10*time.Second)
		if err != nil || pushed.Reply == nil || string(pushed.Reply.Payload) != "pong" || pushed.Reply.ID != pushed.ID {
			t.Fatalf("push %+v, %v", pushed, err)
		}
		if n := w.near.Unread(); n != 0 {
			t.Errorf("%d in the inbox", n)
		}
	})
}

func TestReplyAfterTheWaitLiesInTheInbox(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		near, far := w.dial(w.near), w.dial(w.far)
		pushed, err := near.Push(t.Context(), w.dst(), topic, []byte("ping"), time.Millisecond) // one second
		if err != nil || pushed.Reply != nil || pushed.ID == "" {
			t.Fatalf("push %+v, %v", pushed, err)
		}
		testkit.Must(t, far.Reply(t.Context(), *pop(t, far, topic), []byte("late")))
		if r := pop(t, near, ""); r == nil || r.ID != pushed.ID || string(r.Payload) != "late" {
			t.Errorf("inbox %+v", r)
		}
	})
}

// A hub that popped with a wait would keep its own pushes waiting.
func TestPopThatWaitsKeepsOthersWaiting(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		near := w.dial(w.near)
		popped := make(chan error, 1)
		go func() {
			m, err := near.Pop(t.Context(), nil, time.Second)
			if m != nil {
				err = errors.New("popped something")
			}
			popped <- err
		}()
		testkit.Until(t, patience, "a push is kept waiting", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := near.Push(ctx, w.dst(), topic, nil, 0)
			return errors.Is(err, context.DeadlineExceeded)
		})
		if err := <-popped; err != nil {
			t.Error(err)
		}
		if _, err := near.Push(t.Context(), w.dst(), topic, nil, 0); err != nil {
			t.Error(err)
		}
	})
}

// By JSON-RPC ten MiB are possible, as that room's tests show.
func TestMessageThatIsTooBigForREST(t *testing.T) {
	w := newWorld(t, nil)
	api := NewREST(serve(t, w.near.REST()))
	if _, err := api.Push(t.Context(), w.dst(), topic, make([]byte, 2<<20), 0); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	if _, err := api.Push(t.Context(), w.dst(), topic, make([]byte, 1<<20), 0); err != nil {
		t.Error(err)
	}
}

func TestClientsOfOddNodes(t *testing.T) {
	dst := Peer{PK: strings.Repeat("ab", 32)}
	tests := []struct {
		name         string
		status       int
		rpc, rest    string
		wantPush     string // "" where any error will do
		wantPop      string
		refused, not bool // ErrRefused, ErrUnsent
	}{
		{"garbage", 200, "<html>", "<html>", "", "", false, false},
		{"no id", 200, `{"jsonrpc":"2.0","id":"1","result":{}}`, `{}`, "no id", "", false, false},
		{"busy", 503, "busy", "busy", "", "", false, true},
		{"broken", 500, "broken", "broken", "500", "500", false, false},
		{"gone", 404, "gone", "gone", "404", "404", false, true},
		{"too big", 413, `{"jsonrpc":"2.0","id":null,"error":{"code":-32007,"message":"big"}}`, "big", "", "", true, false},
		{"refused", 400, `{"jsonrpc":"2.0","id":"1","error":{"code":-32015,"message":"Server error"}}`, "x", "", "", true, false},
	}
	for _, tt := range tests {
		for name, api := range map[string]API{"rpc": NewRPC(odd(t, tt.status, tt.rpc)), "rest": NewREST(odd(t, tt.status, tt.rest))} {
			_, err := api.Push(t.Context(), dst, topic, nil, 0)
			if err == nil || !strings.Contains(err.Error(), tt.wantPush) || errors.Is(err, ErrRefused) != tt.refused || errors.Is(err, ErrUnsent) != tt.not {
				t.Errorf("%s, %s: push %v", tt.name, name, err)
			}
			if _, err := api.Pop(t.Context(), nil, 0); tt.name != "no id" && (err == nil || !strings.Contains(err.Error(), tt.wantPop)) {
				t.Errorf("%s, %s: pop %v", tt.name, name, err)
			}
			if s, err := api.Status(t.Context(), "0123456789abcdef"); err == nil && s != StateUnknown {
				t.Errorf("%s, %s: status %s", tt.name, name, s)
			}
		}
	}
}

func odd(t *testing.T, status int, body string) string {
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}))
}

// Nodes before 0.6 answer an error where there is no message.
func TestOlderNodeHasNoMessage(t *testing.T) {
	api := NewRPC(odd(t, 200, `{"jsonrpc":"2.0","id":"1","error":{"code":-32014,"message":"Server error"}}`))
	if m, err := api.Pop(t.Context(), nil, 0); m != nil || err != nil {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestStates(t *testing.T) {
	for text, want := range map[string]State{
		`"pending"`: StatePending, `{"sending":{"pending":1,"sent":2,"acked":3}}`: StateSending, `"received"`: StateReceived, `"read"`: StateRead, `"aborted"`: StateAborted,
		`"lost"`: "", `{"lost":{}}`: "", `5`: "", `{}`: "", `{"sending":{},"more":1}`: "",
	} {
		for name, api := range map[string]API{
			"rpc":  NewRPC(odd(t, 200, `{"jsonrpc":"2.0","id":"1","result":{"dst":"400::1","state":`+text+`,"created":1,"deadline":2,"msgLen":3}}`)),
			"rest": NewREST(odd(t, 200, `{"dst":"400::1","state":`+text+`,"created":1,"deadline":2,"msgLen":3}`)),
		} {
			got, err := api.Status(t.Context(), "0123456789abcdef")
			if got != want || (err == nil) != (want != "") {
				t.Errorf("%s, %s: %s, %v", name, text, got, err)
			}
		}
	}
}

func TestWaitsAreWholeSecondsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]uint64{-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %d", d, got)
		}
	}
}
