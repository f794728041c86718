package mycelium

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"edda/hero/mycelium/standin"
	"edda/internal/testkit"
)

// An earlier process made the call, and its reply waits in the node. Only a reply from the
// called node counts.
func TestAReplyThatLayInTheNodeAtTheStartIsFound(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		near, far, third := w.dial(w.near), w.dial(w.far), w.dial(w.thirds)
		pushed, err := near.Push(t.Context(), w.dst(), topic, request("1"), 0)
		testkit.Must(t, err)
		if _, err := third.Push(t.Context(), Peer{PK: w.near.Key()}, "", []byte(`{"jsonrpc":"2.0","id":"1","result":"forged"}`), 0); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, far.Reply(t.Context(), Message{ID: pushed.ID, SrcPK: w.near.Key()}, result("1")))
		testkit.Until(t, patience, "both lie in the node", func() bool { return w.near.Unread() == 2 })
		var c counts
		h := w.caller(Options{Count: c.add})
		testkit.Until(t, patience, "both were popped", func() bool { return c.of(CountStray) == 2 })
		call := Call{Dst: w.dst(), MessageID: pushed.ID, Requests: []string{"1"}}
		if reply, err := h.Resume(within(t, patience), call, true); err != nil || string(reply) != string(result("1")) {
			t.Errorf("%s, %v", reply, err)
		}
		if reply, err := h.Resume(within(t, patience), call, true); !errors.Is(err, ErrNoReply) {
			t.Errorf("the second time: %s, %v", reply, err)
		}
		if _, err := far.Push(t.Context(), Peer{PK: w.near.Key()}, "", result("2"), 0); err != nil {
			t.Fatal(err)
		}
		if reply, err := h.Resume(within(t, patience), Call{Dst: w.dst(), Requests: []string{"2", "2.flat"}}, false); err != nil || string(reply) != string(result("2")) {
			t.Errorf("by the id of its request: %s, %v", reply, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Resume(ctx, Call{Dst: w.dst(), Requests: []string{"3"}}, false); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := h.Resume(ctx, Call{Dst: w.dst()}, false); err == nil || errors.Is(err, context.Canceled) {
			t.Error("a call that nothing names was resumed:", err)
		}
	})
}

// Before the node has answered, no caller knows whether there is a reply.
func TestWhileTheNodeIsDownItIsNotSaidThatNoReplyIsThere(t *testing.T) {
	w := newWorld(t, func(t *testing.T, n *standin.Node) API { return NewRPC("http://127.0.0.1:1") })
	h := w.caller(Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*popLater)
	defer cancel()
	if _, err := h.Resume(ctx, Call{Dst: w.dst(), MessageID: "x"}, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestRepliesThatNoCallWaitsForHaveABound(t *testing.T) {
	h := NewHub(nil, Options{})
	for i := range lateReplies + 10 {
		h.keep(Message{ID: fmt.Sprint(i), Payload: []byte("x")})
	}
	if len(h.late) != lateReplies || h.late[0].ID != "10" || h.lateSize != lateReplies {
		t.Errorf("%d replies of %d bytes, the first is %s", len(h.late), h.lateSize, h.late[0].ID)
	}
	h.keep(Message{ID: "large", Payload: []byte(strings.Repeat("x", lateBytes))})
	if len(h.late) != 1 || h.late[0].ID != "large" {
		t.Errorf("%d replies of %d bytes", len(h.late), h.lateSize)
	}
}

// A hub that only listens for replies on a topic refuses a request there, so that its sender
// does not wait in vain.
func TestARequestOnATopicThatIsOnlyListenedToIsRefused(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		testkit.Run(t, NewHub(w.dial(w.far), Options{Listen: []string{topic}}).Run)
		reply, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{})
		if err != nil || !strings.Contains(string(reply), `"code":-32601`) || !strings.Contains(string(reply), `"id":"1"`) {
			t.Errorf("%s, %v", reply, err)
		}
	})
}
