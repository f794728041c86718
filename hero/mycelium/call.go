package mycelium

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"edda/internal/backoff"
)

// CallOptions configure a call.
type CallOptions struct {
	// Observe is called with each new state of the message, and its id, on the caller's
	// goroutine. The first state is StatePending, when the message was pushed.
	Observe func(s State, messageID string)
}

// waiter is a call that waits for its reply.
type waiter struct {
	ids    []string // of the JSON-RPC requests
	pushed string   // the message's id; "" before the push returned
	dst    Peer
	reply  chan []byte // has room for one
}

// Call pushes one JSON-RPC request with the given id, once, and waits for the reply until the
// context ends. The id must never be used again: Call would take a late reply to it. After
// ErrUnsent, ErrRefused and ErrAborted the request was not received; after any other
// error it may have been.
func (h *Hub) Call(ctx context.Context, dst Peer, topic string, payload []byte, id string, o CallOptions) ([]byte, error) {
	w, err := h.expect(id, dst)
	if err != nil {
		return nil, err
	}
	defer h.forget(w)
	pushed, err := h.api.Push(ctx, dst, topic, payload, 0)
	h.pushReturned(w, pushed.ID)
	if err != nil {
		return nil, fmt.Errorf("call %s at %s: %w", id, dst, err)
	}
	reply, err := h.await(ctx, w, o.Observe)
	if err != nil {
		return nil, fmt.Errorf("call %s at %s: %w", id, dst, err)
	}
	return reply, nil
}

// expect registers a call before its push: the reply may come before the push returns.
func (h *Hub) expect(id string, dst Peer) (*waiter, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == "" {
		return nil, errors.New("a call needs the id of its request")
	}
	if h.byID[id] != nil {
		return nil, fmt.Errorf("a call with the id %s waits already", id)
	}
	w := &waiter{ids: []string{id}, dst: dst, reply: make(chan []byte, 1)}
	h.byID[id] = w
	h.pushing++
	return w, nil
}

// pushReturned registers the message's id, and matches the replies that came before it.
func (h *Hub) pushReturned(w *waiter, messageID string) {
	for _, m := range h.returned(w, messageID) {
		if m.ID == messageID && w.dst.Sent(m) {
			h.hand(w, m)
		} else {
			h.stray(m)
		}
	}
	h.wake()
}

// returned removes the replies to the message from the early ones. When no push is in flight
// it removes all: the others belong to no call.
func (h *Hub) returned(w *waiter, messageID string) (taken []Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushing--
	if messageID != "" {
		w.pushed = messageID
		h.byPush[messageID] = w
	}
	var left []Message
	for _, m := range h.early {
		if h.pushing == 0 || m.ID == messageID {
			taken = append(taken, m)
		} else {
			left = append(left, m)
		}
	}
	h.early = left
	return taken
}

func (h *Hub) forget(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range w.ids {
		if h.byID[id] == w {
			delete(h.byID, id)
		}
	}
	if h.byPush[w.pushed] == w {
		delete(h.byPush, w.pushed)
	}
}

// await waits for the reply, and polls the state of the message.
func (h *Hub) await(ctx context.Context, w *waiter, observe func(State, string)) ([]byte, error) {
	if observe == nil {
		observe = func(State, string) {}
	}
	seen := StatePending
	observe(seen, w.pushed)
	for looks := (backoff.Exponential{First: min(firstLook, h.options.Look), Most: h.options.Look}); ; {
		t := time.NewTimer(looks.Next())
		select {
		case reply := <-w.reply:
			t.Stop()
			return reply, nil
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("no reply: %w", ctx.Err())
		case <-t.C:
		}
		if seen == StateRead {
			continue // the last state
		}
		state := h.look(ctx, w, seen)
		if state != seen {
			seen = state
			observe(seen, w.pushed)
		}
		if seen == StateAborted {
			select { // the message may have been received all the same
			case reply := <-w.reply:
				return reply, nil
			default:
				return nil, ErrAborted
			}
		}
	}
}

// look asks the node for the state. If that fails the state stays as it was: the message may
// arrive although the node does not answer.
func (h *Hub) look(ctx context.Context, w *waiter, seen State) State {
	state, err := h.api.Status(ctx, w.pushed)
	if err != nil {
		h.options.Log.Debug("the state of a message cannot be seen", zap.String("message", w.pushed), zap.Error(err))
		return seen
	}
	return state
}

// hand passes a reply to its call. A second reply is a stray.
func (h *Hub) hand(w *waiter, m Message) {
	select {
	case w.reply <- m.Payload:
		h.options.Count(CountReply)
	default:
		h.stray(m)
	}
}
