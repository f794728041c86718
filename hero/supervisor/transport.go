package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"edda"
	"edda/hero"
	"edda/hero/mycelium"
)

// maxAnswer bounds the answer of a supervisor, like a request to it.
const maxAnswer = 10 << 20

// HTTP carries requests to the supervisor at the address. A secret is the bearer token.
func HTTP(address, secret string, client *http.Client) Transport {
	return &overHTTP{address: address, secret: secret, client: client}
}

type overHTTP struct {
	address, secret string
	client          *http.Client
}

func (h *overHTTP) Carry(ctx context.Context, request []byte, _ string, seen func(Progress)) ([]byte, error) {
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { wrote.Store(true) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil { // there is no better sign before the answer
				seen(Progress{Status: hero.TransportDelivered, Acknowledged: true})
			}
		},
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.address, bytes.NewReader(request))
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "%w: bad address %q", ErrRefused, h.address)
	}
	r.Header.Set("Content-Type", "application/json")
	if h.secret != "" {
		r.Header.Set("Authorization", "Bearer "+h.secret)
	}
	answer, err := h.client.Do(r)
	if err != nil {
		reached := ErrUnsent
		if wrote.Load() || errors.Is(err, context.DeadlineExceeded) {
			reached = ErrUnsure
		}
		return nil, edda.Classify(edda.Temporary, "%w: %w", reached, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return nil, edda.Classify(edda.Temporary, "%w: its answer broke off: %w", ErrUnsure, err)
	}
	if len(body) > maxAnswer {
		return nil, edda.Classify(edda.Temporary, "%w: its answer is larger than %d bytes", ErrUnsure, maxAnswer)
	}
	if answer.StatusCode == http.StatusOK {
		return body, nil
	}
	// An answer that is not a 200 is no JSON-RPC. After 3xx or 4xx the supervisor did not take
	// the request; after 429 and 503 it did not take it now.
	code := answer.StatusCode
	said := fmt.Sprintf("HTTP %d %s", code, http.StatusText(code))
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return nil, edda.Classify(edda.Temporary, "%w: %s", ErrUnsent, said)
	case code >= 300 && code < 500 && code != http.StatusRequestTimeout:
		return nil, edda.Classify(edda.Permanent, "%w: %s", ErrRefused, said)
	}
	return nil, edda.Classify(edda.Temporary, "%w: %s", ErrUnsure, said)
}

// Caller makes calls over Mycelium; *mycelium.Hub is one. The methods are as its own, and
// may be used from many goroutines.
type Caller interface {
	Call(ctx context.Context, dst mycelium.Peer, topic string, payload []byte, id string, o mycelium.CallOptions) ([]byte, error)
	Resume(ctx context.Context, c mycelium.Call, only bool) ([]byte, error)
}

// Mycelium carries requests to the supervisor that listens there on the topic.
func Mycelium(over Caller, to mycelium.Peer, topic string) Transport {
	return &overMycelium{over: over, to: to, topic: topic}
}

type overMycelium struct {
	over  Caller
	to    mycelium.Peer
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

// progress translates a state of Mycelium. An unknown state changes nothing: the last
// known one still holds.
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
