package mycelium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"edda/hero/jsonrpc"
)

// The codes that a node answers. Any other code of a push means that it was not taken.
const (
	codeNoMessage   = -32014 // popMessage found none, before version 0.6
	codeReplyBroken = -32016 // pushed, but the wait for the reply failed
	codeReplyEnded  = -32017
	codeNoInfo      = -32019
)

// RPC is a client of the JSON-RPC API.
type RPC struct {
	client *jsonrpc.Client
}

// NewRPC makes a client of the node at a URL, usually http://127.0.0.1:8990.
func NewRPC(url string) *RPC {
	return &RPC{client: jsonrpc.NewClient(url, jsonrpc.ClientOptions{MaxBody: maxAnswer})}
}

// Push implements API.
func (c *RPC) Push(ctx context.Context, dst Peer, topic string, payload []byte, wait time.Duration) (Pushed, error) {
	ctx, cancel := bounded(ctx, wait)
	defer cancel()
	m, err := newOutgoing(dst, topic, payload)
	if err != nil {
		return Pushed{}, err
	}
	params := []any{m}
	if wait > 0 {
		params = append(params, seconds(wait))
	}
	var raw json.RawMessage
	if err := c.client.Call(ctx, "pushMessage", params, &raw); err != nil {
		return Pushed{}, pushError(err)
	}
	return pushAnswer(raw)
}

// pushError tells a message that was not taken from one that may have been sent.
func pushError(err error) error {
	var e *jsonrpc.Error
	var h *jsonrpc.HTTPError
	switch {
	case unsent(err), errors.As(err, &h) && untaken(h.Status):
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	case !errors.As(err, &e) || e.Code == jsonrpc.InternalError || e.Code == codeReplyBroken || e.Code == codeReplyEnded:
		return err
	case e.Code == jsonrpc.Busy:
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

// Pop implements API.
func (c *RPC) Pop(ctx context.Context, topic *string, wait time.Duration) (*Message, error) {
	ctx, cancel := bounded(ctx, wait)
	defer cancel()
	params := []any{false, seconds(wait)}
	if topic != nil {
		params = append(params, []byte(*topic))
	}
	var m *Message
	err := c.client.Call(ctx, "popMessage", params, &m)
	var e *jsonrpc.Error
	if errors.As(err, &e) && e.Code == codeNoMessage {
		return nil, nil
	}
	return m, err
}

// Reply implements API.
func (c *RPC) Reply(ctx context.Context, to Message, payload []byte) error {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	m, err := newOutgoing(Peer{PK: to.SrcPK}, "", payload)
	if err != nil {
		return err
	}
	if err := c.client.Call(ctx, "pushMessageReply", []any{to.ID, m}, nil); err != nil {
		return pushError(err)
	}
	return nil
}

// Status implements API.
func (c *RPC) Status(ctx context.Context, id string) (State, error) {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	var i info
	err := c.client.Call(ctx, "getMessageInfo", []any{id}, &i)
	var e *jsonrpc.Error
	if errors.As(err, &e) && e.Code == codeNoInfo {
		return StateUnknown, nil
	}
	if err != nil {
		return "", err
	}
	return i.known()
}
