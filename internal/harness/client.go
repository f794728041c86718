package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxPending is how many events may wait until the server says that they are stored.
	maxPending = 8192
	// storeWithin bounds that wait.
	storeWithin = time.Minute
	// pingEvery lets a frozen server be noticed within three pings.
	pingEvery = 3 * time.Second
	// idleFor bounds how long nothing at all may end while something should.
	idleFor = time.Minute
)

// Client is the NATS client of a service. It publishes events and hears the facts that
// end sagas.
type Client struct {
	JS jetstream.JetStream

	nc   *nats.Conn
	mu   sync.Mutex // guards the fields below, and those of ends
	ends *Ends      // hears the facts; nil before Listen
	lost error      // the first event that was not stored
}

// Connect connects a client, and subscribes to all facts of the tenant "default".
func Connect(url string) (*Client, error) {
	nc, err := nats.Connect(url, nats.Name("edda harness"), nats.PingInterval(pingEvery))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	c := &Client{nc: nc}
	c.JS, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncErrHandler(c.notStored))
	if err == nil {
		var sub *nats.Subscription
		if sub, err = nc.Subscribe("tenant.default.workflow_event.>", c.fact); err == nil {
			err = errors.Join(sub.SetPendingLimits(-1, -1), nc.Flush())
		}
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("subscribe to the facts: %w", err)
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error {
	c.nc.Close()
	return nil
}

func (c *Client) notStored(_ jetstream.JetStream, _ *nats.Msg, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = fmt.Errorf("an event was not stored: %w", err)
	}
}

func (c *Client) fact(m *nats.Msg) {
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends != nil {
		c.ends.hear(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], at, m.Data)
	}
}

// Publish publishes an event of an aggregate without waiting until it is stored.
func (c *Client) Publish(aggregate, id, event string, payload []byte) error {
	return Publish(c.JS, aggregate, id, event, payload)
}

// Publish publishes an event without waiting until it is stored. Its id is the event's
// name and the aggregate's id.
func Publish(js jetstream.JetStream, aggregate, id, event string, payload []byte) error {
	body := fmt.Appendf(nil, `{"event_id":"%s-%s","tenant_id":"default","aggregate_type":%q,"aggregate_id":%q,"event_type":%q,"timestamp":%q,"payload":%s}`,
		event, id, aggregate, id, event, time.Now().UTC().Format(time.RFC3339Nano), payload)
	if _, err := js.PublishAsync("tenant.default.aggregate."+aggregate+"."+id, body, jetstream.WithStallWait(storeWithin)); err != nil {
		return fmt.Errorf("publish %s of %s: %w", event, id, err)
	}
	return nil
}

// Stored waits until every event is stored.
func (c *Client) Stored(ctx context.Context) error {
	if err := Stored(ctx, c.JS); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Stored waits until every message that was published is acknowledged.
func Stored(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the events to be stored: %w", ctx.Err())
	}
}

// Ends keeps the books of operations: when each began, and the facts that ended it.
type Ends struct {
	// Idle bounds how long nothing may end: one minute.
	Idle time.Duration
	// Repeats allows facts that come again, as at-least-once delivery may bring them.
	Repeats bool
	// From returns the beginning of an operation, where the fact itself tells it.
	From func(fact []byte) (time.Time, error)

	client      *Client
	begun       map[string]time.Time // when each operation began, or was due
	ended       map[string]int       // how often each has ended
	took        map[string]time.Duration
	first, last time.Time // of the ends
	wrong       error
	slots       chan struct{} // an end frees one; nil in an open loop
	more        chan struct{} // capacity 1: something ended
}

// Listen hears the facts from now on. With a concurrency above 0, Begin waits until so
// many operations at most are under way.
func (c *Client) Listen(concurrency int) *Ends {
	e := &Ends{client: c, begun: map[string]time.Time{}, ended: map[string]int{}, took: map[string]time.Duration{}, more: make(chan struct{}, 1), Idle: idleFor}
	if concurrency > 0 {
		e.slots = make(chan struct{}, concurrency)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = e
	return e
}

// hear takes a fact about a key. The client's mutex is held.
func (e *Ends) hear(key string, at time.Time, fact []byte) {
	began, known := e.begun[key]
	if !known {
		e.wrong = errors.Join(e.wrong, fmt.Errorf("a fact about %s, which was never sent", key))
		return
	}
	if e.ended[key]++; e.ended[key] > 1 {
		return // Await counts it
	}
	if e.From != nil {
		var err error
		if began, err = e.From(fact); err != nil && e.wrong == nil {
			e.wrong = fmt.Errorf("the fact about %s: %w", key, err)
		}
	}
	if e.first.IsZero() {
		e.first = at
	}
	e.took[key], e.last = at.Sub(began), at
	select {
	case e.more <- struct{}{}:
	default:
	}
	if e.slots != nil {
		<-e.slots // never waits: Begin put it there
	}
}

// Begin notes an operation that is due at a time. In a closed loop it waits for a free
// slot, and the operation is due then.
func (e *Ends) Begin(ctx context.Context, key string, due time.Time) error {
	if e.slots != nil {
		select {
		case e.slots <- struct{}{}:
			due = time.Now()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(e.Idle):
			return fmt.Errorf("nothing ended for %v; %d have", e.Idle, e.Count())
		}
	}
	e.client.mu.Lock()
	defer e.client.mu.Unlock()
	e.begun[key] = due
	return nil
}

// Count returns how many operations have ended.
func (e *Ends) Count() int {
	e.client.mu.Lock()
	defer e.client.mu.Unlock()
	return len(e.ended)
}

// Await returns when n operations have ended, once each. It calls progress, unless that
// is nil, with their number.
func (e *Ends) Await(ctx context.Context, n int, progress func(int)) error {
	for count := e.Count(); ; count = e.Count() {
		if progress != nil {
			progress(count)
		}
		if count >= n {
			break
		}
		select {
		case <-e.more:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d have ended: %w", count, n, ctx.Err())
		case <-time.After(e.Idle):
			return fmt.Errorf("%d of %d have ended, and nothing more for %v", count, n, e.Idle)
		}
	}
	e.client.mu.Lock()
	defer e.client.mu.Unlock()
	for key, times := range e.ended {
		if times != 1 && !e.Repeats {
			e.wrong = errors.Join(e.wrong, fmt.Errorf("%s ended %d times", key, times))
		}
	}
	return e.wrong
}

// Took returns the time of each operation, by key, and when the first and the last
// ended. Call it after Await.
func (e *Ends) Took() (took map[string]time.Duration, first, last time.Time) {
	e.client.mu.Lock()
	defer e.client.mu.Unlock()
	return e.took, e.first, e.last
}
