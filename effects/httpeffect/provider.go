// Package httpeffect calls effects over HTTP: method, url, headers, query and a
// JSON body.
//
// Every call carries its idempotency key as Idempotency-Key and the trace as
// traceparent. Redirects are not followed, an answer is read up to 1 MiB, and
// addresses that are not public are refused when dialled, so that a name which
// resolves to one does not help, unless the options allow them. 408, 429 and
// 5xx may be answered otherwise later; after 502 and 504 the call may have had
// its effect; after 429 it surely had none.
package httpeffect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/expression"
)

// The bounds of a call.
const (
	// maxAnswer bytes of an answer are read: what one NATS message holds.
	maxAnswer = 1 << 20
	// maxRetryAfter seconds are believed: longer than any step waits.
	maxRetryAfter = 7 * 24 * 60 * 60
)

// Provider makes HTTP calls over connections that it keeps.
type Provider struct{ client *http.Client }

// New makes a provider; nothing is called yet.
func New(o Options) *Provider {
	return &Provider{&http.Client{Transport: o.transport(), CheckRedirect: stayHere}}
}

// stayHere hands a redirect back as the answer: secrets go nowhere else.
func stayHere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close closes idle connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Call makes one call; see effects.Provider.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := request(ctx, c)
	if err != nil {
		return effects.Response{}, edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return effects.Response{}, lost(err, connected.Load())
	}
	defer resp.Body.Close()
	return response(resp, time.Now())
}

// lost says what a call without an answer may have done. The URL is left out:
// it may hold a secret.
func lost(err error, connected bool) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	switch {
	case connected:
		return edda.Classify(edda.Temporary, "no answer: %w", err)
	case errors.Is(err, dial.ErrForbidden):
		return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
	default:
		return edda.Classify(edda.Temporary, "%w: %w", effects.ErrNotSent, err)
	}
}

// request builds the call from the evaluated map of the manifest.
func request(ctx context.Context, c effects.Call) (*http.Request, error) {
	target, err := address(c.Config)
	if err != nil {
		return nil, err
	}
	header, err := header(c)
	if err != nil {
		return nil, err
	}
	body, err := encode(c.Config, header)
	if err != nil {
		return nil, err
	}
	method := strings.ToUpper(cmp.Or(expression.Text(c.Config["method"]), http.MethodPost))
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, errors.New("method or url is none") // its text may hold a secret
	}
	req.GetBody = nil // or the transport would send again by itself what it cannot know to be unsent
	req.Header, req.Host = header, header.Get("Host")
	return req, nil
}

// address is the url with the query added.
func address(config map[string]any) (string, error) {
	u, err := url.Parse(expression.Text(config["url"]))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("url is no http or https address")
	}
	query, isMap := config["query"].(map[string]any)
	if !isMap && config["query"] != nil {
		return "", errors.New("query is no map")
	}
	values := u.Query()
	for name, v := range query {
		addTo(values, name, v)
	}
	if len(query) > 0 {
		u.RawQuery = values.Encode()
	}
	return u.String(), nil
}

// addTo adds a value, each item of a list, and nothing for null.
func addTo(values map[string][]string, name string, v any) {
	switch v := v.(type) {
	case nil:
	case []any:
		for _, item := range v {
			addTo(values, name, item)
		}
	default:
		values[name] = append(values[name], expression.Text(v))
	}
}

func header(c effects.Call) (http.Header, error) {
	given, isMap := c.Config["headers"].(map[string]any)
	if !isMap && c.Config["headers"] != nil {
		return nil, errors.New("headers is no map")
	}
	h := http.Header{}
	for name, v := range given {
		addTo(h, http.CanonicalHeaderKey(name), v)
	}
	for name, values := range h {
		if !validHeader(name, values) {
			return nil, fmt.Errorf("header %q has a name or a value that HTTP does not allow", name)
		}
	}
	ours(h, "Idempotency-Key", c.Key)
	ours(h, "User-Agent", "edda")
	if traceparent.MatchString(c.Trace) {
		ours(h, "Traceparent", c.Trace)
	}
	return h, nil
}

func validHeader(name string, values []string) bool {
	for _, v := range values {
		if !httpguts.ValidHeaderFieldValue(v) {
			return false
		}
	}
	return httpguts.ValidHeaderFieldName(name)
}

// ours sets a header that the manifest does not.
func ours(h http.Header, name, v string) {
	if h.Get(name) == "" {
		h.Set(name, v)
	}
}

// traceparent is the W3C form; a bare trace id is no header.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// encode is the body as JSON; a text goes out as it is under a content type of
// its own.
func encode(config map[string]any, h http.Header) (io.Reader, error) {
	body, given := config["body"]
	if !given {
		return nil, nil
	}
	kind := h.Get("Content-Type")
	if text, isText := body.(string); isText && kind != "" && !strings.Contains(kind, "json") {
		return strings.NewReader(text), nil
	}
	ours(h, "Content-Type", "application/json")
	encoded, err := edda.Encode(body)
	return bytes.NewReader(encoded), err
}

// response reads the answer. One that is too long is an outcome that nobody
// can tell; of a failure only its body is left out.
func response(resp *http.Response, now time.Time) (effects.Response, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return effects.Response{}, edda.Classify(edda.Temporary, "answer broke off: %w", err)
	}
	if len(raw) > maxAnswer {
		if resp.StatusCode < http.StatusMultipleChoices {
			return effects.Response{}, edda.Classify(edda.Permanent, "answer is larger than 1 MiB")
		}
		raw = nil
	}
	s := resp.StatusCode
	return effects.Response{
		Status: s, Headers: flat(resp.Header), Body: decode(raw),
		Retry:   s == http.StatusRequestTimeout || s == http.StatusTooManyRequests || s >= http.StatusInternalServerError,
		Refused: s == http.StatusTooManyRequests,
		Unknown: s == http.StatusBadGateway || s == http.StatusGatewayTimeout,
		After:   retryAfter(resp.Header.Get("Retry-After"), now),
	}, nil
}

func flat(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

// decode reads JSON; what is none is a text, and nothing is null.
func decode(raw []byte) any {
	if v, err := edda.Decode(raw); err == nil {
		return v
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}

// retryAfter reads seconds or an HTTP date; 0 when there is none.
func retryAfter(header string, now time.Time) time.Duration {
	if s, err := strconv.Atoi(header); err == nil {
		return time.Duration(min(max(s, 0), maxRetryAfter)) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter*time.Second)
}
