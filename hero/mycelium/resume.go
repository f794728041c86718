package mycelium

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrNoReply says that no reply to a call lies in the node.
var ErrNoReply = errors.New("no reply is there")

// Call names a call that an earlier process made: whom it asked, and what a reply is
// known by. Either is enough.
type Call struct {
	Dst       Destination
	Requests  []string // the ids of its JSON-RPC requests
	MessageID string   // of the message that carried it
}

// Resume waits for the reply to a call of an earlier process, as Call does. With only
// is what lay in the node when the hub began; else it waits until the context ends.
// ErrNoReply comes with only, once all of that is seen.
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
	select { // it may have come at the same moment
	case reply := <-w.reply:
		return reply, nil
	default:
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("no reply: %w", ctx.Err())
	}
	return nil, ErrNoReply
}

// expectAgain takes note of a call that is resumed, and of a reply that is there.
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

// claim gives a waiter the first reply to it that came before it.
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

// keep keeps a reply that no call waits for, and drops the oldest one.
func (h *Hub) keep(m Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late, h.lateSize = append(h.late, m), h.lateSize+len(m.Payload)
	for len(h.late) > lateReplies || h.lateSize > lateBytes {
		h.lateSize -= len(h.late[0].Payload)
		h.late = slices.Delete(h.late, 0, 1)
	}
}
