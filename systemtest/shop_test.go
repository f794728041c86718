package systemtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// shop is the world outside that effects call. It answers 200 with the order
// unless a test says otherwise, and keeps its books by idempotency key.
type shop struct {
	mu      sync.Mutex // guards what follows
	answers map[string]func(call) int
	calls   []call
}

// call is one HTTP call as the shop saw it.
type call struct {
	Effect string // the path
	Key    string // Idempotency-Key
	Order  string // body.order
	Status int    // of the answer
	Body   string // as it was sent
}

func newShop() *shop { return &shop{answers: map[string]func(call) int{}} }

// answer sets the status that an effect is answered with.
func (s *shop) answer(effect string, status func(call) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[effect] = status
}

// take books a call and returns the answer.
func (s *shop) take(path, key string, body []byte) (int, string) {
	var payload struct{ Order string }
	_ = json.Unmarshal(body, &payload) // another payload has no order
	c := call{Effect: strings.Trim(path, "/"), Key: key, Order: payload.Order, Status: http.StatusOK, Body: string(body)}
	s.mu.Lock()
	answer := s.answers[c.Effect]
	s.mu.Unlock()
	if answer != nil {
		c.Status = answer(c)
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	return c.Status, `{"tracking": "Z-` + c.Order + `"}`
}

// RoundTrip makes the shop a transport, where there is no network.
func (s *shop) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status, text := s.take(r.URL.Path, r.Header.Get("Idempotency-Key"), body)
	return reply(r, status, text), nil
}

// ServeHTTP makes the shop a server.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller was killed
	}
	status, text := s.take(r.URL.Path, r.Header.Get("Idempotency-Key"), body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// all copies the books.
func (s *shop) all() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// effects lists the calls made for an order, in order.
func (s *shop) effects(order string) (out []string) {
	for _, c := range s.all() {
		if c.Order == order {
			out = append(out, c.Effect)
		}
	}
	return out
}

// gateway takes aggregate commands.
type gateway struct {
	mu       sync.Mutex   // guards commands
	commands []string     // "Order.Cancel O1", in order
	told     func(string) // where set, each command as it comes
	down     atomic.Bool  // nothing answers
}

// RoundTrip accepts every command, unless it is down.
func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.down.Load() {
		return nil, errors.New("nothing answers")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var c struct {
		AggregateType string `json:"aggregate_type"`
		AggregateID   string `json:"aggregate_id"`
		Payload       string `json:"payload_json"`
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return reply(r, http.StatusBadRequest, "{}"), nil
	}
	line := c.AggregateType + "." + field(json.RawMessage(c.Payload), "command") + " " + c.AggregateID
	g.mu.Lock()
	g.commands = append(g.commands, line)
	g.mu.Unlock()
	if g.told != nil {
		g.told(line)
	}
	return reply(r, http.StatusAccepted, "{}"), nil
}

func (g *gateway) all() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.commands)
}

// of lists the commands for one aggregate.
func (g *gateway) of(id string) (out []string) {
	for _, c := range g.all() {
		if name, to, _ := strings.Cut(c, " "); to == id {
			out = append(out, name)
		}
	}
	return out
}

func reply(r *http.Request, status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(text)), ContentLength: int64(len(text))}
}
