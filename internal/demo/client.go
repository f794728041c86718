package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// client is the NATS client of a service. It publishes events and receives the facts about
// the ends of sagas.
type client struct {
	nc *nats.Conn
	js jetstream.JetStream

	mu   sync.Mutex // guards sent and took
	sent map[string]time.Time
	took map[string]time.Duration // from publish to the ended fact, by key
	more chan struct{}            // capacity 1: took grew
}

const prefix = "tenant.default."

func connect(url string) (*client, error) {
	nc, err := nats.Connect(url, nats.Name("edda demo"))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &client{nc: nc, js: js, sent: map[string]time.Time{}, took: map[string]time.Duration{}, more: make(chan struct{}, 1)}, nil
}

// listen subscribes to the facts that sagas publish at their end.
func (c *client) listen() error {
	_, err := c.nc.Subscribe(prefix+"workflow_event.>", func(m *nats.Msg) {
		tokens := strings.Split(m.Subject, ".")
		c.ended(tokens[len(tokens)-1])
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return c.nc.Flush()
}

func (c *client) ended(key string) {
	c.mu.Lock()
	if _, again := c.took[key]; !again {
		c.took[key] = time.Since(c.sent[key])
	}
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// count returns how many sagas have ended.
func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.took)
}

type envelope struct {
	EventID       string         `json:"event_id"`
	TenantID      string         `json:"tenant_id"`
	AggregateType string         `json:"aggregate_type"`
	AggregateID   string         `json:"aggregate_id"`
	EventType     string         `json:"event_type"`
	Timestamp     time.Time      `json:"timestamp"`
	Payload       map[string]any `json:"payload"`
}

// publish sends one event, without waiting for its acknowledgement.
func (c *client) publish(aggregate, id, event string, payload map[string]any) error {
	body, err := json.Marshal(envelope{
		EventID: event + "-" + id, TenantID: "default", AggregateType: aggregate, AggregateID: id,
		EventType: event, Timestamp: time.Now().UTC(), Payload: payload,
	})
	if err != nil {
		return err
	}
	_, err = c.js.PublishAsync(prefix+"aggregate."+aggregate+"."+id, body)
	return err
}

// begin publishes the event that starts a saga. It publishes some twice, because a real
// publisher is at-least-once.
func (c *client) begin(i int, aggregate, id, event string, payload map[string]any) error {
	c.mu.Lock()
	c.sent[id] = time.Now()
	c.mu.Unlock()
	times := 1
	if i%duplicates == 0 {
		times = 2
	}
	for range times {
		if err := c.publish(aggregate, id, event, payload); err != nil {
			return fmt.Errorf("publish %s of %s: %w", event, id, err)
		}
	}
	return nil
}

// flush waits until every event is stored.
func (c *client) flush(ctx context.Context) error {
	select {
	case <-c.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the events to be stored: %w", ctx.Err())
	}
}
