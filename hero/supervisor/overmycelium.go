package supervisor

import (
	"context"
	"errors"

	"edda"
	"edda/hero"
	"edda/hero/mycelium"
)

// Caller makes calls over Mycelium; *mycelium.Hub is one. The methods are as its own, and
// may be used from many goroutines.
type Caller interface {
	Call(ctx context.Context, dst mycelium.Destination, topic string, payload []byte, id string, o mycelium.CallOptions) ([]byte, error)
	Resume(ctx context.Context, c mycelium.Call, only bool) ([]byte, error)
}

// Mycelium carries requests to the supervisor that listens there on the topic.
func Mycelium(over Caller, to mycelium.Destination, topic string) Transport {
	return &overMycelium{over: over, to: to, topic: topic}
}

type overMycelium struct {
	over  Caller
	to    mycelium.Destination
	topic string
}

func (t *overMycelium) Carry(ctx context.Context, request []byte, id string, seen func(Progress)) ([]byte, error) {
	o := mycelium.CallOptions{Observe: func(s mycelium.State, messageID string) {
		if p, known := progress(s, messageID); known {
			seen(p)
		}
	}}
	reply, err := t.over.Call(ctx, t.to, t.topic, request, id, o)
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, mycelium.ErrUnsent), errors.Is(err, mycelium.ErrAborted):
		return nil, edda.Classify(edda.Temporary, "%w: %w", ErrUnsent, err)
	case errors.Is(err, mycelium.ErrRefused):
		return nil, edda.Classify(edda.Permanent, "%w: %w", ErrUndeliverable, err)
	}
	return nil, edda.Classify(edda.Temporary, "%w: %w", ErrUnsure, err)
}

// Resume waits for the reply to a request that an earlier process sent.
func (t *overMycelium) Resume(ctx context.Context, ids []string, messageID string, only bool) ([]byte, error) {
	reply, err := t.over.Resume(ctx, mycelium.Call{Dst: t.to, Requests: ids, MessageID: messageID}, only)
	if err != nil {
		return nil, edda.Classify(edda.Temporary, "%w: %w", ErrNoReply, err)
	}
	return reply, nil
}

// progress says a state of Mycelium in the words of messages. From one that is not
// known nothing follows: what was seen last still holds.
func progress(s mycelium.State, id string) (p Progress, known bool) {
	p.MessageID = id
	switch s {
	case mycelium.StatePending:
		p.Status = hero.TransportQueued
	case mycelium.StateSending:
		p.Status = hero.TransportSent
	case mycelium.StateReceived:
		p.Status = hero.TransportDelivered
	case mycelium.StateRead:
		p.Status, p.Acknowledged = hero.TransportRead, true
	case mycelium.StateAborted:
		p.Status = hero.TransportFailed
	default:
		return Progress{}, false
	}
	return p, true
}
