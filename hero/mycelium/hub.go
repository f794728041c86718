package mycelium

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/internal/backoff"
)

const (
	// popSoon is the pause between pops while messages come, popLater the longest one
	// while none come. A pop does not wait in the node, where it would block others.
	popSoon  = 5 * time.Millisecond
	popLater = 100 * time.Millisecond
	// downSoon and downLater bound the back-off while the node does not answer.
	downSoon  = 100 * time.Millisecond
	downLater = 5 * time.Second
	// defaultLook is the interval of polls for the state of a message; firstLook comes
	// before the first.
	defaultLook = time.Second
	firstLook   = 50 * time.Millisecond
	// defaultServing bounds the concurrent requests; further ones wait in the node. A
	// running job is one, so there may be many.
	defaultServing = 1024
	// lastTry bounds a request to the node after the hub is told to end.
	lastTry = 2 * time.Second
	// remembered bounds the ids of messages by which repeats are known.
	remembered = 8192
	// earlyReplies bounds the replies that came before their push returned.
	earlyReplies = 256
	// lateReplies and lateBytes bound the replies without a call. At the start the node
	// holds replies whose calls are about to be resumed.
	lateReplies = 4096
	lateBytes   = 32 << 20
)

// The outcomes of an arrived message, which Options.Count gets.
const (
	CountReply    = "reply"    // passed to its call
	CountStray    = "stray"    // no call waits for it: late, repeated or unknown
	CountStranger = "stranger" // not from the called node; dropped
	CountRequest  = "request"  // passed to a handler
	CountRepeat   = "repeat"   // a request that was handled before; dropped
)

// Options configure a hub. The zero value works.
type Options struct {
	Log *zap.Logger
	// Look is the interval of polls for the state of a message without a reply; a second by
	// default.
	Look time.Duration
	// Serving bounds the concurrent requests; 1024 by default.
	Serving int
	// Listen lists topics on which replies arrive besides the empty one: some programs
	// answer by a new message, with a topic.
	Listen []string
	// Stray gets the replies that no call waits for: a caller that gave up may use a late
	// one. It may be called concurrently.
	Stray func(Message)
	// Count gets the outcome of each arrived message. It may be called concurrently.
	Count func(what string)
}

func (o *Options) validate() {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Look <= 0 {
		o.Look = defaultLook
	}
	if o.Serving <= 0 {
		o.Serving = defaultServing
	}
	if o.Stray == nil {
		o.Stray = func(Message) {}
	}
	if o.Count == nil {
		o.Count = func(string) {}
	}
}

// Handler answers a request, or returns nil. Its context ends with the hub.
type Handler func(ctx context.Context, m Message) (reply []byte)

// Hub makes calls over a node and serves the calls of other nodes. Make it with NewHub. Call
// and Serve may be called concurrently.
type Hub struct {
	api     API
	options Options
	working sync.WaitGroup // handlers
	slots   chan struct{}  // one for each running handler

	mu       sync.Mutex // guards the fields below
	running  bool
	handlers map[string]Handler
	loops    []chan struct{}    // wakes the loops
	byID     map[string]*waiter // by JSON-RPC id
	byPush   map[string]*waiter // by the id of the message
	pushing  int                // pushes that have not returned
	early    []Message          // replies that came meanwhile
	late     []Message          // replies without a call, oldest first
	lateSize int                // the bytes of their payloads
	looking  int                // topics that have not been empty since the start
	seen     chan struct{}      // closed when looking is 0
	requests *memory
}

// NewHub makes a hub, to be run by Run.
func NewHub(api API, o Options) *Hub {
	o.validate()
	return &Hub{
		api: api, options: o, slots: make(chan struct{}, o.Serving),
		handlers: map[string]Handler{}, byID: map[string]*waiter{}, byPush: map[string]*waiter{}, seen: make(chan struct{}), requests: newMemory(remembered),
	}
}

// Serve passes the requests of a topic to a handler. Call it before Run.
func (h *Hub) Serve(topic string, handle Handler) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.running:
		return errors.New("serve a topic before the hub runs")
	case h.handlers[topic] != nil:
		return fmt.Errorf("the topic %q is served already", topic)
	case len(topic) > MaxTopic:
		return fmt.Errorf("a topic has at most %d bytes", MaxTopic)
	}
	h.handlers[topic] = handle
	return nil
}

// Run handles arriving messages until the context ends, and waits for the handlers. It
// retries while the node does not answer.
func (h *Hub) Run(ctx context.Context) error {
	topics, err := h.start()
	if err != nil {
		return err
	}
	var loops sync.WaitGroup
	for topic, wake := range topics {
		loops.Go(func() { h.pop(ctx, topic, wake) })
	}
	loops.Wait()
	h.working.Wait()
	return nil
}

// start returns the topics to pop and the channels that wake their loops: the served ones,
// the empty one and those of Listen.
func (h *Hub) start() (map[string]chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running {
		return nil, errors.New("the hub runs already, or did")
	}
	h.running = true
	topics := map[string]chan struct{}{"": make(chan struct{}, 1)}
	for topic := range h.handlers {
		topics[topic] = make(chan struct{}, 1)
	}
	for _, topic := range h.options.Listen {
		if topics[topic] == nil {
			topics[topic] = make(chan struct{}, 1)
			h.handlers[topic] = h.refuse
		}
	}
	h.looking = len(topics)
	for _, wake := range topics {
		h.loops = append(h.loops, wake)
	}
	return topics, nil
}

// pop handles the messages of one topic until the context ends.
func (h *Hub) pop(ctx context.Context, topic string, wake <-chan struct{}) {
	looks := backoff.Exponential{First: popSoon, Most: popLater}
	down := backoff.Exponential{First: downSoon, Most: downLater}
	caughtUp := false
	for ctx.Err() == nil {
		m, err := h.popOnce(ctx, topic)
		switch {
		case err != nil:
			if !down.Failing() && ctx.Err() == nil {
				h.options.Log.Warn("mycelium does not answer, asking again", zap.String("topic", topic), zap.Error(err))
			}
			_ = backoff.Wait(ctx, down.Next())
			continue
		case down.Failing():
			h.options.Log.Info("mycelium answers again", zap.String("topic", topic))
			down.Reset()
		}
		if m != nil {
			h.arrived(ctx, *m)
			looks.Reset()
			continue
		}
		if !caughtUp {
			caughtUp = true
			h.caughtUp()
		}
		if waitOrWake(ctx, looks.Next(), wake) {
			looks.Reset()
		}
	}
}

// caughtUp records that a topic was empty for the first time.
func (h *Hub) caughtUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looking--; h.looking == 0 {
		close(h.seen)
	}
}

// popOnce pops one message. It does not end with the hub at once: a message whose pop is cut
// off would be lost.
func (h *Hub) popOnce(ctx context.Context, topic string) (*Message, error) {
	ctx, cancel := outlasting(ctx, lastTry)
	defer cancel()
	return h.api.Pop(ctx, &topic, 0)
}

// outlasting returns a context that ends some time after another one.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// waitOrWake waits for the pause. It returns true if it was woken.
func waitOrWake(ctx context.Context, pause time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-wake:
		return true
	}
	return false
}

// wake has the loops pop at once: a reply is likely to come.
func (h *Hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, wake := range h.loops {
		select {
		case wake <- struct{}{}:
		default: // the loop is awake
		}
	}
}

// memory remembers the last keys that were added.
type memory struct {
	keys map[string]struct{}
	ring []string
	next int
}

func newMemory(size int) *memory {
	return &memory{keys: map[string]struct{}{}, ring: make([]string, size)}
}

// add reports whether the key is new. If it is, add drops the oldest one.
func (m *memory) add(key string) bool {
	if _, ok := m.keys[key]; ok {
		return false
	}
	delete(m.keys, m.ring[m.next])
	m.keys[key], m.ring[m.next] = struct{}{}, key
	m.next = (m.next + 1) % len(m.ring)
	return true
}
