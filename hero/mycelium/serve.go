package mycelium

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"

	"go.uber.org/zap"

	"edda/hero/jsonrpc"
	"edda/internal/backoff"
)

// replyTries bounds the tries of a reply while the node does not answer, about a minute with
// the pauses. After that the caller asks for the result.
const replyTries = 16

// arrived passes a message to its call or to a handler.
func (h *Hub) arrived(ctx context.Context, m Message) {
	id, response := responseID(m.Payload)
	w, known := h.waiting(m, id, response)
	switch {
	case w != nil && w.dst.Sent(m):
		h.hand(w, m)
	case w != nil:
		h.options.Count(CountStranger)
		h.options.Log.Warn("reply dropped: its sender is not the node that was asked",
			zap.Strings("call", w.ids), zap.Stringer("asked", w.dst), zap.String("from", m.SrcPK))
	case known:
		// waiting keeps it until the pushes have returned
	case response || h.handler(m) == nil:
		h.stray(m)
	default:
		h.serve(ctx, m)
	}
}

// waiting returns the call that the message replies to, by its message id or its JSON-RPC
// id. While a push is in flight, whose message id is not known yet, it keeps a message that
// may be the reply.
func (h *Hub) waiting(m Message, id string, response bool) (w *waiter, kept bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.byPush[m.ID]; w != nil {
		return w, false
	}
	if w := h.byID[id]; response && w != nil {
		return w, false
	}
	if h.pushing > 0 && len(m.Topic) == 0 && h.handlers[""] == nil && len(h.early) < earlyReplies {
		h.early = append(h.early, m)
		return nil, true
	}
	return nil, false
}

// responseID returns the id in a JSON-RPC response, a string or a number, as a text.
func responseID(payload []byte) (id string, response bool) {
	var r struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(payload, &r) != nil || r.Method != nil || r.Result == nil && r.Error == nil {
		return "", false
	}
	if json.Unmarshal(r.ID, &id) == nil {
		return id, true
	}
	return string(bytes.TrimSpace(r.ID)), true
}

// refuse answers the requests on a topic of Listen with an error, for which their senders
// would wait in vain.
func (h *Hub) refuse(_ context.Context, m Message) []byte {
	h.options.Log.Warn("a request on a topic that nothing serves here is refused: is this node shared with another program?",
		zap.ByteString("topic", m.Topic), zap.String("message", m.ID), zap.String("from", m.SrcPK))
	var request struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(m.Payload, &request) != nil || request.ID == nil {
		return nil
	}
	answer, _ := json.Marshal(struct { // plain values always have JSON
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", request.ID, jsonrpc.Errorf(jsonrpc.MethodNotFound, "nothing is served on this topic here")})
	return answer
}

// stray keeps a reply without a call for a while: the call of an earlier process may be
// about to be resumed.
func (h *Hub) stray(m Message) {
	h.keep(m)
	h.options.Count(CountStray)
	h.options.Log.Debug("a message that nobody waits for", zap.String("message", m.ID), zap.String("from", m.SrcPK), zap.Int("bytes", len(m.Payload)))
	h.options.Stray(m)
}

func (h *Hub) handler(m Message) Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handlers[string(m.Topic)]
}

// serve passes a request to its handler, once: it drops a repeated message of the same node.
// It waits while too many handlers run.
func (h *Hub) serve(ctx context.Context, m Message) {
	h.mu.Lock()
	fresh := h.requests.add(m.SrcPK + m.ID)
	h.mu.Unlock()
	if !fresh {
		h.options.Count(CountRepeat)
		return
	}
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		// A handler would answer for good that it was cancelled. The caller
		// repeats the call.
		h.options.Log.Warn("a request was popped and not handled: the hub ends", zap.String("message", m.ID), zap.String("from", m.SrcPK))
		return
	}
	h.options.Count(CountRequest)
	h.working.Go(func() {
		defer func() { <-h.slots }()
		if out := h.handle(ctx, m); out != nil {
			h.reply(ctx, m, out)
		}
	})
}

func (h *Hub) handle(ctx context.Context, m Message) (reply []byte) {
	defer func() {
		if p := recover(); p != nil {
			h.options.Log.Error("the handler of a topic panicked", zap.ByteString("topic", m.Topic), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			reply = nil
		}
	}()
	return h.handler(m)(ctx, m)
}

// reply sends the reply until the node takes it, also when the hub ends, because the work is
// done. The receiver drops a second reply.
func (h *Hub) reply(ctx context.Context, m Message, out []byte) {
	down := backoff.Exponential{First: downSoon, Most: downLater}
	for try := 1; ; try++ {
		last := ctx.Err() != nil || try == replyTries
		err := h.offer(ctx, m, out)
		if err == nil {
			return
		}
		if last || errors.Is(err, ErrRefused) {
			h.options.Log.Error("a reply could not be sent", zap.String("message", m.ID), zap.String("to", m.SrcPK), zap.Error(err))
			return
		}
		_ = backoff.Wait(ctx, down.Next())
	}
}

func (h *Hub) offer(ctx context.Context, m Message, out []byte) error {
	ctx, cancel := outlasting(ctx, lastTry)
	defer cancel()
	return h.api.Reply(ctx, m, out)
}
