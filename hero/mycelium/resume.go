package mycelium

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrNoReply means that the node holds no reply to a call.
var ErrNoReply = errors.New("no reply is there")

// Call names a call of an earlier process: the called node, and the ids that a reply may
// have. One id is enough.
type Call struct {
	Dst       Peer
	Requests  []string // the ids of the JSON-RPC requests
	MessageID string   // of the pushed message
}

// Resume waits for the reply to a call of an earlier process until the context ends. With
// only it considers only the messages that the node held when the hub began, and returns
// ErrNoReply if the reply is not among them.
func (h *Hub) Resume(ctx context.Context, c Call, only bool) ([]byte, error) {
	w, err := h.expectAgain(c)
	if err != nil {
		return nil, err
	}
	defer h.forget(w)
	seen := h.seen
	if !only {
		seen = nil
	}
	select {
	case reply := <-w.reply:
		return reply, nil
	case <-seen:
	case <-ctx.Done():
	}
	select { // the reply may have come at the same moment
	case reply := <-w.reply:
		return reply, nil
	default:
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("no reply: %w", ctx.Err())
	}
	return nil, ErrNoReply
}

// expectAgain registers a resumed call, and matches a reply that came before.
func (h *Hub) expectAgain(c Call) (*waiter, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &waiter{pushed: c.MessageID, dst: c.Dst, reply: make(chan []byte, 1)}
	for _, id := range c.Requests {
		if id == "" {
			continue
		}
		if h.byID[id] != nil {
			return nil, fmt.Errorf("a call with the id %s waits already", id)
		}
		w.ids = append(w.ids, id)
	}
	if w.pushed == "" && len(w.ids) == 0 {
		return nil, errors.New("a call is resumed by the id of its request or of its message")
	}
	for _, id := range w.ids {
		h.byID[id] = w
	}
	if w.pushed != "" {
		h.byPush[w.pushed] = w
	}
	h.claim(w)
	return w, nil
}

// claim passes the first late reply to the call to its waiter.
func (h *Hub) claim(w *waiter) {
	for i, m := range h.late {
		id, response := responseID(m.Payload)
		mine := m.ID == w.pushed || response && slices.Contains(w.ids, id)
		if !mine || !w.dst.Sent(m) {
			continue
		}
		w.reply <- m.Payload
		h.late, h.lateSize = slices.Delete(h.late, i, i+1), h.lateSize-len(m.Payload)
		h.options.Count(CountReply)
		return
	}
}

// keep keeps a reply without a call, and drops the oldest ones beyond the bounds.
func (h *Hub) keep(m Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late, h.lateSize = append(h.late, m), h.lateSize+len(m.Payload)
	for len(h.late) > lateReplies || h.lateSize > lateBytes {
		h.lateSize -= len(h.late[0].Payload)
		h.late = slices.Delete(h.late, 0, 1)
	}
}
