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
	// popSoon is the pause between pops while messages come, and popLater when none
	// has come for a while: a pop that waited would keep all others waiting.
	popSoon  = 5 * time.Millisecond
	popLater = 100 * time.Millisecond
	// downSoon and downLater bound the pauses while the node does not answer.
	downSoon  = 100 * time.Millisecond
	downLater = 5 * time.Second
	// defaultLook is how often the state of a message is looked at; the first look
	// is sooner.
	defaultLook = time.Second
	firstLook   = 50 * time.Millisecond
	// defaultServing bounds the requests that are handled at once; the next ones
	// wait in the node. A job that runs is one, so there may be many.
	defaultServing = 1024
	// lastTry is how long a request to the node may take once the hub is to end.
	lastTry = 2 * time.Second
	// remembered is how many ids of messages are kept to tell repeats by.
	remembered = 8192
	// earlyReplies is how many replies are kept that came before their push returned.
	earlyReplies = 256
	// lateReplies and lateBytes bound the replies that are kept although no call waits
	// for them: those that lay in the node at the start, until their calls are resumed.
	lateReplies = 4096
	lateBytes   = 32 << 20
)

// What happened to a message that arrived, as Options.Count is told it.
const (
	CountReply    = "reply"    // taken by the call that waited
	CountStray    = "stray"    // no call waited for it: late, repeated, or unknown
	CountStranger = "stranger" // not from whom was asked; dropped
	CountRequest  = "request"  // given to a handler
	CountRepeat   = "repeat"   // a request that was there before; dropped
)

// Options say how a hub behaves. The zero value works.
type Options struct {
	Log *zap.Logger
	// Look is how often the state of a message is looked at while its reply is
	// waited for; a second unless said.
	Look time.Duration
	// Serving bounds the requests that are handled at once; 1024 unless said.
	Serving int
	// Listen are topics on which replies are heard besides the empty one: some who are
	// called answer by a message of their own, and with a topic.
	Listen []string
	// Stray is given replies that no call waits for: a caller that gave up may still
	// use a late one. It may be called concurrently.
	Stray func(Message)
	// Count is told what happened to each message that arrived. It may be called
	// concurrently.
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

// Handler answers a request; nil is no answer. Its context ends with the hub.
type Handler func(ctx context.Context, m Message) (reply []byte)

// Hub makes calls over a node and serves those of others. Make it with NewHub;
// Call and Serve may be used concurrently.
type Hub struct {
	api     API
	options Options
	working sync.WaitGroup // handlers
	places  chan struct{}  // one for each handler

	mu       sync.Mutex // guards what follows
	running  bool
	handlers map[string]Handler
	loops    []chan struct{}    // wakes each loop
	byID     map[string]*waiter // by JSON-RPC id
	byPush   map[string]*waiter // by the id of the message
	pushing  int                // pushes that have not returned
	early    []Message          // replies that came meanwhile
	late     []Message          // replies that no call waited for, oldest first
	lateSize int                // of their payloads
	looking  int                // topics whose messages of before the start are not all seen
	seen     chan struct{}      // closed once they are
	requests *memory
}

// NewHub makes a hub; nothing runs yet.
func NewHub(api API, o Options) *Hub {
	o.validate()
	return &Hub{
		api: api, options: o, places: make(chan struct{}, o.Serving),
		handlers: map[string]Handler{}, byID: map[string]*waiter{}, byPush: map[string]*waiter{}, seen: make(chan struct{}), requests: newMemory(remembered),
	}
}

// Serve gives the requests of a topic to a handler. It comes before Run.
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

// Run takes what arrives until the context ends, and waits for the handlers. A
// node that does not answer is asked again.
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

// start lists the topics to pop with what wakes their loops: those that are
// served, and the empty one and those listened to, where replies are.
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

// pop takes the messages of one topic until the context ends.
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

// caughtUp notes that a topic was empty for the first time.
func (h *Hub) caughtUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looking--; h.looking == 0 {
		close(h.seen)
	}
}

// popOnce is not broken off when the hub ends: what a pop takes is gone even where
// nobody listens to its answer any more.
func (h *Hub) popOnce(ctx context.Context, topic string) (*Message, error) {
	ctx, cancel := outlasting(ctx, lastTry)
	defer cancel()
	return h.api.Pop(ctx, &topic, 0)
}

// outlasting is a context that ends some time after another one.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// waitOrWake waits for the pause, or until it is woken, which it reports.
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

// wake has the loops look at once: something is likely to come.
func (h *Hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, wake := range h.loops {
		select {
		case wake <- struct{}{}:
		default: // it is awake
		}
	}
}
