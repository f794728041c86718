package outbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"edda"
)

// The bounds of the gateway.
const (
	// DefaultGatewayTimeout bounds one call, reading the answer included. The service only accepts
	// a command during the call and executes it later.
	DefaultGatewayTimeout = 15 * time.Second
	// gatewayParallel bounds the calls in flight, each of another instance.
	gatewayParallel = 32
	// gatewayAnswer bounds the bytes read of an answer: enough for a code and a message.
	gatewayAnswer = 64 << 10
	// gatewayMessage bounds the message of a rejection, which the saga stores.
	gatewayMessage = 1000
)

// GatewayOptions says where the gateway posts commands. URL is required.
type GatewayOptions struct {
	URL  string
	Path string // /v1/commands when empty
	// Token returns the bearer token. It is called before every call, so that a replaced token is
	// used at once. nil sends none. See TokenFile.
	Token    func() (string, error)
	TLS      *tls.Config   // client certificates, roots
	Timeout  time.Duration // of one call
	Parallel int           // bound of the concurrent calls
	// Transport replaces the HTTP transport, for tests and tracing.
	Transport http.RoundTripper
}

// TokenFile returns a function that reads a bearer token from a file, for every call anew.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		b, err := os.ReadFile(path)
		return strings.TrimSpace(string(b)), err
	}
}

// Gateway posts aggregate commands over HTTP.
type Gateway struct {
	o      GatewayOptions
	url    string
	client *http.Client
}

// NewGateway returns the destination. It connects to nothing yet.
func NewGateway(o GatewayOptions) (*Gateway, error) {
	base, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("gateway: %q is no http or https address", o.URL)
	}
	o.Timeout, o.Parallel = cmp.Or(o.Timeout, DefaultGatewayTimeout), cmp.Or(o.Parallel, gatewayParallel)
	return &Gateway{o: o, url: base.JoinPath(cmp.Or(o.Path, "/v1/commands")).String(), client: gatewayClient(o)}, nil
}

func gatewayClient(o GatewayOptions) *http.Client {
	transport := o.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = o.TLS
		t.MaxIdleConnsPerHost = o.Parallel // otherwise the transport closes most connections after each call
		transport = t
	}
	return &http.Client{Transport: transport, Timeout: o.Timeout, CheckRedirect: noRedirect}
}

// noRedirect returns a redirect as the answer, so that credentials go to no other host.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Route is the route of commands. A batch is one call, so that a slow call delays only its own
// instance.
func (g *Gateway) Route() Route {
	return Route{Name: "gateway", Kinds: []edda.WorkKind{edda.WorkCommand}, Destination: g, Batch: 1, Parallel: g.o.Parallel}
}

// Close closes idle connections.
func (g *Gateway) Close() { g.client.CloseIdleConnections() }

// Deliver posts the commands of the batch concurrently.
func (g *Gateway) Deliver(ctx context.Context, batch []edda.Work) []error {
	errs := make([]error, len(batch))
	var calls sync.WaitGroup
	for i, w := range batch {
		calls.Go(func() { errs[i] = g.post(ctx, w) })
	}
	calls.Wait()
	return errs
}

func (g *Gateway) post(ctx context.Context, w edda.Work) error {
	req, err := g.request(ctx, w)
	if err != nil {
		return err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return edda.Classify(edda.Temporary, "post command: %w", err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, gatewayAnswer)) // the status decides; without a body only the message is missing
	return classifyAnswer(resp, body, time.Now())
}

func (g *Gateway) request(ctx context.Context, w edda.Work) (*http.Request, error) {
	body, err := CommandBody(w)
	if err != nil {
		return nil, &Rejection{Code: "malformed", Message: err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("post command: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", w.ID)
	if w.From.Tenant != "" {
		req.Header.Set("x-tenant-id", w.From.Tenant)
	}
	if traceparent.MatchString(w.Trace) {
		req.Header.Set("traceparent", w.Trace)
	}
	return req, g.authorize(req)
}

// traceparent matches the W3C header; a bare trace id does not become a header.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

func (g *Gateway) authorize(req *http.Request) error {
	if g.o.Token == nil {
		return nil
	}
	token, err := g.o.Token()
	if err != nil {
		return edda.Classify(edda.Temporary, "gateway token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// classifyAnswer returns nil, a rejection or a temporary error. Our own or the network's fault,
// such as an expired token or a redirect, is never a rejection, because a rejection makes every
// saga compensate.
func classifyAnswer(resp *http.Response, body []byte, now time.Time) error {
	switch s := resp.StatusCode; {
	case s/100 == 2, s == http.StatusConflict:
		return nil
	case s/100 == 4 && !retryable(s):
		return rejection(s, body)
	default:
		return &edda.Classified{Class: edda.Temporary, Err: errors.New("gateway answered " + resp.Status),
			After: retryAfter(resp.Header.Get("Retry-After"), now)}
	}
}

func retryable(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// rejection reads the code and the message from the answer, if it has them.
func rejection(status int, body []byte) *Rejection {
	var said struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
		Error   any    `json:"error"`
		Detail  string `json:"detail"`
	}
	_ = json.Unmarshal(body, &said) // if the body is no JSON, the status is the code
	code, message := strconv.Itoa(status), cmp.Or(said.Message, said.Detail)
	if s, ok := said.Code.(string); ok && s != "" {
		code = s
	}
	if s, ok := said.Error.(string); ok && message == "" {
		message = s
	}
	message = cmp.Or(message, http.StatusText(status))
	return &Rejection{Code: code, Message: strings.ToValidUTF8(message[:min(len(message), gatewayMessage)], ""), Status: status}
}

// retryAfter parses seconds or an HTTP date; 0 when the header is missing or malformed.
func retryAfter(header string, now time.Time) time.Duration {
	if header == "" {
		return 0
	}
	if s, err := strconv.Atoi(header); err == nil {
		return time.Duration(min(max(s, 0), maxRetryAfter)) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter*time.Second)
}

// maxRetryAfter bounds a Retry-After, in seconds. It is a day, so that an error in a header cannot
// stop a destination for good.
const maxRetryAfter = 24 * 60 * 60
