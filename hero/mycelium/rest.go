package mycelium

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// REST is a client of the REST API.
type REST struct {
	base   string
	client *http.Client
}

// NewREST makes a client of the node at a URL, usually http://127.0.0.1:8989.
func NewREST(url string) *REST {
	base := strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/api/v1")
	return &REST{base: base + "/api/v1/messages", client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// StatusError is an HTTP status that the API does not define for the request.
type StatusError struct {
	Status int
	Body   string // its beginning
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s: %s", e.Status, http.StatusText(e.Status), e.Body)
}

// Push implements API.
func (c *REST) Push(ctx context.Context, dst Peer, topic string, payload []byte, wait time.Duration) (Pushed, error) {
	ctx, cancel := bounded(ctx, wait)
	defer cancel()
	query := ""
	if wait > 0 {
		query = "?reply_timeout=" + strconv.FormatUint(seconds(wait), 10)
	}
	raw, err := c.send(ctx, query, dst, topic, payload, http.StatusCreated, http.StatusOK, http.StatusRequestTimeout)
	if err != nil {
		return Pushed{}, fmt.Errorf("push a message: %w", err)
	}
	return pushAnswer(raw)
}

// send posts a message.
func (c *REST) send(ctx context.Context, path string, dst Peer, topic string, payload []byte, good ...int) ([]byte, error) {
	m, err := newOutgoing(dst, topic, payload)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	_, raw, err := c.do(ctx, http.MethodPost, path, body, good...)
	if err != nil {
		return nil, sendError(err)
	}
	return raw, nil
}

func sendError(err error) error {
	var e *StatusError
	if unsent(err) {
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge, e.Status == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case untaken(e.Status):
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	return err
}

// Pop implements API.
func (c *REST) Pop(ctx context.Context, topic *string, wait time.Duration) (*Message, error) {
	ctx, cancel := bounded(ctx, wait)
	defer cancel()
	query := url.Values{"peek": {"false"}, "timeout": {strconv.FormatUint(seconds(wait), 10)}}
	if topic != nil {
		query.Set("topic", base64.StdEncoding.EncodeToString([]byte(*topic)))
	}
	status, raw, err := c.do(ctx, http.MethodGet, "?"+query.Encode(), nil, http.StatusOK, http.StatusNoContent)
	if err != nil || status == http.StatusNoContent {
		return nil, wrap("pop a message", err)
	}
	m := new(Message)
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	return m, nil
}

// Reply implements API.
func (c *REST) Reply(ctx context.Context, to Message, payload []byte) error {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	_, err := c.send(ctx, "/reply/"+url.PathEscape(to.ID), Peer{PK: to.SrcPK}, "", payload, http.StatusNoContent)
	return wrap("reply to a message", err)
}

// Status implements API.
func (c *REST) Status(ctx context.Context, id string) (State, error) {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	status, raw, err := c.do(ctx, http.MethodGet, "/status/"+url.PathEscape(id), nil, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return "", wrap("status of a message", err)
	}
	if status == http.StatusNotFound {
		return StateUnknown, nil
	}
	var i info
	if err := json.Unmarshal(raw, &i); err != nil {
		return "", fmt.Errorf("read the status of a message: %w", err)
	}
	return i.known()
}

func (c *REST) do(ctx context.Context, method, path string, body []byte, good ...int) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(raw) > maxAnswer {
		return 0, nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	for _, status := range good {
		if res.StatusCode == status {
			return status, raw, nil
		}
	}
	return 0, nil, &StatusError{Status: res.StatusCode, Body: fmt.Sprintf("%.80s", strings.ToValidUTF8(string(raw), "?"))}
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
