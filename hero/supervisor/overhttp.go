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
)

// maxAnswer bounds the answer of a supervisor: as much as it may be sent.
const maxAnswer = 10 << 20

// HTTP carries requests to the supervisor at the address, with the secret as a
// bearer token too where there is one.
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
			if info.Err == nil { // it read the whole request: there is no better sign before the answer
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
		return nil, unreached(err, wrote.Load())
	}
	defer answer.Body.Close()
	return read(answer)
}

// unreached tells a supervisor that got nothing from one that may have.
func unreached(err error, wrote bool) error {
	if wrote || errors.Is(err, context.DeadlineExceeded) {
		return edda.Classify(edda.Temporary, "%w: %w", ErrUnsure, err)
	}
	return edda.Classify(edda.Temporary, "%w: %w", ErrUnsent, err)
}

func read(answer *http.Response) ([]byte, error) {
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
	return nil, httpStatus(answer.StatusCode)
}

// httpStatus: what is not a 200 is no JSON-RPC. Whoever says 3xx or 4xx did not
// take the request; 429 and 503 did not take it now.
func httpStatus(code int) error {
	said := fmt.Sprintf("HTTP %d %s", code, http.StatusText(code))
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return edda.Classify(edda.Temporary, "%w: %s", ErrUnsent, said)
	case code >= 300 && code < 500 && code != http.StatusRequestTimeout:
		return edda.Classify(edda.Permanent, "%w: %s", ErrRefused, said)
	}
	return edda.Classify(edda.Temporary, "%w: %s", ErrUnsure, said)
}
