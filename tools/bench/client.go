package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// client is a NATS client as anybody's service has one: it publishes events and
// hears the facts by which sagas say that they ended.
type client struct {
	nc *nats.Conn
	js jetstream.JetStream

	mu   sync.Mutex // guards what follows
	now  *listener  // takes the facts; nil between two phases
	lost error      // the first event that was not stored
}

const (
	prefix = "tenant.default."
	// pending is how many events may wait for the server's word that they are stored.
	pending = 8192
)

func connect(url string) (*client, error) {
	c := &client{}
	var err error
	if c.nc, err = nats.Connect(url, nats.Name("edda bench")); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	c.js, err = jetstream.New(c.nc, jetstream.WithPublishAsyncMaxPending(pending), jetstream.WithPublishAsyncErrHandler(c.notStored))
	if err != nil {
		c.nc.Close()
		return nil, err
	}
	sub, err := c.nc.Subscribe(prefix+"workflow_event.>", c.fact)
	if err == nil {
		err = errors.Join(sub.SetPendingLimits(-1, -1), c.nc.Flush())
	}
	if err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return c, nil
}

func (c *client) notStored(_ jetstream.JetStream, _ *nats.Msg, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = fmt.Errorf("an event was not stored: %w", err)
	}
}

func (c *client) fact(m *nats.Msg) {
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		c.now.take(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], at, m.Data)
	}
}

// publish sends one event without waiting for the server's word.
func (c *client) publish(event, key string, payload []byte) error {
	return publish(c.js, event, key, payload)
}

func publish(js jetstream.JetStream, event, key string, payload []byte) error {
	body := fmt.Appendf(nil, `{"event_id":"%s-%s","tenant_id":"default","aggregate_type":"Order","aggregate_id":%q,"event_type":%q,"timestamp":%q,"payload":%s}`,
		event, key, key, event, time.Now().UTC().Format(time.RFC3339Nano), payload)
	_, err := js.PublishAsync(prefix+"aggregate.Order."+key, body, jetstream.WithStallWait(settleFor))
	return err
}

// stored waits until every event is stored.
func (c *client) stored(ctx context.Context) error {
	if err := allStored(ctx, c.js); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func allStored(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the events to be stored: %w", ctx.Err())
	}
}

// listener takes the facts of one phase.
type listener struct {
	client *client
	begun  map[string]time.Time // when each operation began, or was due
	ended  map[string]int       // how often each has ended
	times  []time.Duration      // of the first ends
	first  time.Time            // of the ends
	last   time.Time
	from   func(data []byte) (time.Time, error) // the beginning, where the fact itself tells it
	wrong  error
	slots  chan struct{} // what ends takes one; nil in an open loop
	more   chan struct{} // capacity 1: something ended
	idle   time.Duration // how long nothing need end
}

// listen hears the facts of a phase from now on.
func (c *client) listen(concurrency int) *listener {
	l := &listener{client: c, begun: map[string]time.Time{}, ended: map[string]int{}, more: make(chan struct{}, 1), idle: idleFor}
	if concurrency > 0 {
		l.slots = make(chan struct{}, concurrency)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = l
	return l
}

// take is called with the client's mutex held.
func (l *listener) take(key string, at time.Time, data []byte) {
	began, known := l.begun[key]
	if !known {
		l.wrong = errors.Join(l.wrong, fmt.Errorf("a fact about %s, which was never sent", key))
		return
	}
	if l.ended[key]++; l.ended[key] > 1 {
		return // counted when all have ended
	}
	if l.from != nil {
		var err error
		if began, err = l.from(data); err != nil && l.wrong == nil {
			l.wrong = fmt.Errorf("the fact about %s: %w", key, err)
		}
	}
	if l.first.IsZero() {
		l.first = at
	}
	l.times, l.last = append(l.times, at.Sub(began)), at
	select {
	case l.more <- struct{}{}:
	default:
	}
	if l.slots != nil {
		<-l.slots // never waits: begin put it there
	}
}

// begin notes an operation; it waits for a free slot in a closed loop.
func (l *listener) begin(ctx context.Context, key string, due time.Time) error {
	if l.slots != nil {
		select {
		case l.slots <- struct{}{}:
			due = time.Now()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(idleFor):
			return fmt.Errorf("nothing ended for %v; %d have", idleFor, l.count())
		}
	}
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.begun[key] = due
	return nil
}

func (l *listener) count() int {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return len(l.ended)
}

// await returns when n operations have ended, once each.
func (l *listener) await(ctx context.Context, n int) error {
	for l.count() < n {
		select {
		case <-l.more:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(l.idle):
			return fmt.Errorf("%d of %d have ended, and nothing more for %v", l.count(), n, l.idle)
		}
	}
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	for key, times := range l.ended {
		if times != 1 {
			l.wrong = errors.Join(l.wrong, fmt.Errorf("%s ended %d times", key, times))
		}
	}
	return l.wrong
}

// due reads when a timer was due from the fact that it rang.
func due(data []byte) (time.Time, error) {
	var fact struct {
		Payload struct {
			Due time.Time `json:"due"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(data, &fact); err != nil {
		return time.Time{}, err
	}
	if fact.Payload.Due.IsZero() {
		return time.Time{}, errors.New("it does not say when the timer was due")
	}
	return fact.Payload.Due, nil
}
