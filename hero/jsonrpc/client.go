package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// defaultTimeout bounds a call whose context has no deadline. A caller that waits for a job
// sets its own.
const defaultTimeout = 30 * time.Second

// ClientOptions configure a client. The zero value works.
type ClientOptions struct {
	// Token is sent as Authorization: Bearer.
	Token string
	// HTTP sends the requests. Redirects are never followed.
	HTTP *http.Client
	// Timeout bounds a call whose context has no deadline; 30 seconds by default.
	Timeout time.Duration
	// MaxBody bounds an answer, in bytes; 10 MiB by default.
	MaxBody int64
}

func (o *ClientOptions) validate() {
	client := http.Client{}
	if o.HTTP != nil {
		client = *o.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.HTTP = &client
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
}

func (o *ClientOptions) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, o.Timeout)
}

func (o *ClientOptions) header() http.Header {
	h := http.Header{"Content-Type": {contentType}, "Accept": {"application/json"}}
	if o.Token != "" {
		h.Set("Authorization", "Bearer "+o.Token)
	}
	return h
}

// Client calls a server over HTTP. Its methods may be called concurrently.
type Client struct {
	url     string
	options ClientOptions
	last    atomic.Uint64
}

// NewClient makes a client of the server at an http or https URL. It sends nothing yet.
func NewClient(url string, o ClientOptions) *Client {
	o.validate()
	return &Client{url: url, options: o}
}

// HTTPError is an answer that is not JSON-RPC: another program listens there, or the server
// is too busy.
type HTTPError struct {
	Status int
	Body   string // its beginning
}

func (e *HTTPError) Error() string {
	return fmt.Sprintf("HTTP status %d %s: %s", e.Status, http.StatusText(e.Status), e.Body)
}

// Call calls a method and decodes its result, unless result is nil. Params are an object, a
// list, or nil for none. An error that the server answers is an *Error. After any other
// error the call may have been made or not.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := c.options.bounded(ctx)
	defer cancel()
	id := strconv.FormatUint(c.last.Add(1), 10)
	raw, err := Request(id, method, params)
	if err != nil {
		return err
	}
	answer, err := c.post(ctx, raw)
	if err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	if err := ReadResponse(answer, id, result); err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	return nil
}

func (c *Client) post(ctx context.Context, raw []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header = c.options.header()
	res, err := c.options.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, c.options.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if int64(len(body)) > c.options.MaxBody {
		return nil, fmt.Errorf("the answer has more than %d bytes", c.options.MaxBody)
	}
	if res.StatusCode != http.StatusOK && !isResponse(body) {
		return nil, &HTTPError{Status: res.StatusCode, Body: short(strings.TrimSpace(strings.ToValidUTF8(string(body), "?")))}
	}
	return body, nil
}

// isResponse reports whether the text is a JSON-RPC response.
func isResponse(raw []byte) bool {
	var r struct {
		Version string `json:"jsonrpc"`
	}
	return json.Unmarshal(raw, &r) == nil && r.Version == version
}

// Request returns the text of a call whose id is a string. The id "" makes a notification.
func Request(id, method string, params any) ([]byte, error) {
	raw, err := encode(struct {
		Version string `json:"jsonrpc"`
		ID      string `json:"id,omitempty"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{version, id, method, params})
	if err != nil {
		return nil, fmt.Errorf("parameters of %s: %w", method, err)
	}
	return raw, nil
}

// ReadResponse reads the answer to the call with the id. It decodes the result into result,
// unless that is nil, and returns the error as *Error. A server that could not read the
// request answers with the id null.
func ReadResponse(raw []byte, id string, result any) error {
	var r struct {
		Version string          `json:"jsonrpc"`
		ID      any             `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   *Error          `json:"error"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the answer is no JSON-RPC: %w", err)
	}
	switch {
	case r.Version != version:
		return errors.New("the answer is no JSON-RPC 2.0")
	case r.Error != nil && (r.ID == nil || r.ID == id):
		return r.Error
	case r.ID != id:
		return fmt.Errorf("the answer is to another call, %s", short(fmt.Sprint(r.ID)))
	case r.Result == nil:
		return errors.New("the answer has neither result nor error")
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(r.Result, result); err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	return nil
}
