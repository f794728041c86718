package standin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// The states of a message, as the APIs name them. A message arrives at once, so none is
// sending.
const (
	statePending  = "pending"
	stateReceived = "received"
	stateRead     = "read"
	stateAborted  = "aborted"
	stateGone     = ""
)

// maxTopic bounds a topic, in bytes.
const maxTopic = 255

var errTopic = errors.New("the topic is too long")

// Node is one Mycelium node. Its methods may be called concurrently.
type Node struct {
	bus *Bus
	key string
	ip  netip.Addr
	// call is the lock of the node: Mycelium serves one call at a time, also while a pop
	// waits.
	call chan struct{}

	// The bus's lock guards the fields below.
	down    bool
	life    int // counts the restarts
	inbox   []received
	outbox  map[string]*outbound
	waiting map[string]*subscriber // by message id
	arrived chan struct{}          // closed when a message comes into the inbox
	ended   chan struct{}          // closed when the node goes down
	sweepAt time.Time
}

// received is an arrived message.
type received struct {
	id      string
	from    *Node
	life    int // of the sender
	topic   []byte
	payload []byte
}

// outbound is a message that was pushed at this node.
type outbound struct {
	to       netip.Addr
	created  time.Time
	size     int
	received bool
	read     bool
	aborted  bool
}

// subscriber is a push that waits for a reply.
type subscriber struct {
	gone  bool // it gave up: the message goes to the inbox
	reply chan received
}

func newNode(b *Bus, key string, ip netip.Addr) *Node {
	n := &Node{bus: b, key: key, ip: ip, call: make(chan struct{}, 1)}
	n.forget()
	return n
}

// forget empties the node's memory: it stores nothing else.
func (n *Node) forget() {
	n.inbox, n.outbox, n.waiting = nil, map[string]*outbound{}, map[string]*subscriber{}
	n.arrived, n.ended = make(chan struct{}), make(chan struct{})
}

// Key returns the node's public key, 64 hexadecimal digits.
func (n *Node) Key() string { return n.key }

// IP returns the node's address.
func (n *Node) IP() string { return n.ip.String() }

// Stop ends the node as a crash does: connections break, and messages that were not popped,
// or not delivered, are lost.
func (n *Node) Stop() {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	if !n.down {
		n.down = true
		n.life++
		close(n.ended)
	}
}

// Start starts a stopped node, empty. It gets the messages that others still try to send.
func (n *Node) Start() {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	if n.down {
		n.down = false
		n.forget()
		n.bus.deliverHeld(n)
	}
}

// Unread returns the number of messages in the inbox.
func (n *Node) Unread() int {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	return len(n.inbox)
}

// enter waits for the lock of the node.
func (n *Node) enter(ctx context.Context) (leave func(), err error) {
	select {
	case n.call <- struct{}{}:
		return func() { <-n.call }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// push sends a message; an id makes it a reply. With subscribe it returns a subscriber for
// the message of its id.
func (n *Node) push(ctx context.Context, id string, to netip.Addr, topic, payload []byte, subscribe bool) (string, *subscriber, error) {
	leave, err := n.enter(ctx)
	if err != nil {
		return "", nil, err
	}
	defer leave()
	if len(topic) > maxTopic {
		return "", nil, errTopic
	}
	reply := id != ""
	if !reply {
		id = newID()
	}
	fault := n.bus.options.Fault(Envelope{ID: id, From: n.key, To: n.bus.keyAt(to), Topic: string(topic), Payload: payload, Reply: reply})
	sub, err := n.dispatch(transit{to: to, id: id, topic: topic, payload: payload}, fault, subscribe)
	if fault.CutAnswer && err == nil {
		return "", nil, errCut
	}
	return id, sub, err
}

func (n *Node) dispatch(t transit, f Fault, subscribe bool) (*subscriber, error) {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	if n.down {
		return nil, errDown
	}
	n.sweep()
	t.from, t.life = n, n.life
	n.outbox[t.id] = &outbound{to: t.to, created: n.bus.options.Now(), size: len(t.payload)}
	var sub *subscriber
	if subscribe {
		sub = &subscriber{reply: make(chan received, 1)}
		n.waiting[t.id] = sub
	}
	n.bus.send(t, f)
	return sub, nil
}

// sweep deletes expired messages, and subscribers that gave up, from time to time.
func (n *Node) sweep() {
	now := n.bus.options.Now()
	if now.Before(n.sweepAt) {
		return
	}
	n.sweepAt = now.Add(n.bus.options.Window / 8)
	for id, out := range n.outbox {
		if n.bus.state(out) == stateGone {
			delete(n.outbox, id)
		}
	}
	for id, sub := range n.waiting {
		if _, tried := n.outbox[id]; sub.gone && !tried {
			delete(n.waiting, id)
		}
	}
}

// keyAt returns the key of the node at an address.
func (b *Bus) keyAt(ip netip.Addr) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nodes[rangeOf(ip)]; n != nil {
		return n.key
	}
	return ""
}

// reply waits for the message of a subscriber.
func (n *Node) reply(ctx context.Context, sub *subscriber, wait time.Duration) (m received, ok bool, err error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case m := <-sub.reply:
		return m, true, nil
	case <-t.C:
	case <-ctx.Done():
	case <-n.end():
		err = errDown
	}
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	select {
	case m := <-sub.reply: // at the last moment
		return m, true, err
	default:
		sub.gone = true
		return received{}, false, err
	}
}

func (n *Node) end() <-chan struct{} {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	return n.ended
}

// has reports whether the inbox has a message of the id. The caller holds the lock.
func (n *Node) has(id string) bool {
	return slices.ContainsFunc(n.inbox, func(m received) bool { return m.id == id })
}

func (n *Node) received(t transit) received {
	return received{id: t.id, from: t.from, life: t.life, topic: t.topic, payload: t.payload}
}

// complete passes a message to the subscriber of its id, even if it is no reply, or to the
// inbox. The caller holds the lock.
func (n *Node) complete(m received) {
	sub := n.waiting[m.id]
	delete(n.waiting, m.id)
	if sub != nil && !sub.gone {
		sub.reply <- m
		return
	}
	n.inbox = append(n.inbox, m)
	close(n.arrived)
	n.arrived = make(chan struct{})
}

// pop takes the first message, of exactly the topic if one is given. It holds the node's lock
// while it waits.
func (n *Node) pop(ctx context.Context, peek bool, topic *[]byte, wait time.Duration) (received, bool, error) {
	leave, err := n.enter(ctx)
	if err != nil {
		return received{}, false, err
	}
	defer leave()
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		m, ok, arrived, ended := n.first(peek, topic)
		if ok || wait <= 0 {
			return m, ok, nil
		}
		select {
		case <-arrived:
		case <-t.C:
			return received{}, false, nil
		case <-ended:
			return received{}, false, errDown
		case <-ctx.Done():
			return received{}, false, ctx.Err()
		}
	}
}

func (n *Node) first(peek bool, topic *[]byte) (m received, ok bool, arrived, ended <-chan struct{}) {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	i := slices.IndexFunc(n.inbox, func(m received) bool { return topic == nil || string(m.topic) == string(*topic) })
	if i < 0 {
		return received{}, false, n.arrived, n.ended
	}
	m = n.inbox[i]
	if !peek {
		n.inbox = slices.Delete(n.inbox, i, i+1)
	}
	if out := m.from.outbox[m.id]; out != nil && m.from.life == m.life && out.received {
		out.read = true
	}
	return m, true, nil, nil
}

// status returns the state of a message that was pushed at this node.
func (n *Node) status(ctx context.Context, id string) (outbound, string, error) {
	leave, err := n.enter(ctx)
	if err != nil {
		return outbound{}, "", err
	}
	defer leave()
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	out := n.outbox[id]
	if out == nil {
		return outbound{}, stateGone, nil
	}
	return *out, n.bus.state(out), nil
}

// state returns the state of a message, or stateGone once it is forgotten.
func (b *Bus) state(out *outbound) string {
	age := b.options.Now().Sub(out.created)
	switch {
	case age >= 2*b.options.Window:
		return stateGone
	case out.read:
		return stateRead
	case out.received:
		return stateReceived
	case out.aborted || age >= b.options.Window:
		return stateAborted
	}
	return statePending
}

func newID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

var (
	errCut  = errors.New("the answer is not to arrive")
	errDown = errors.New("the node is down")
)

// cutKey is the key of the flag, in a request's context, that cuts its connection.
type cutKey struct{}

// cut breaks the connection of a request if the error is errCut or errDown.
func cut(ctx context.Context, err error) {
	if errors.Is(err, errCut) || errors.Is(err, errDown) {
		ctx.Value(cutKey{}).(*atomic.Bool).Store(true)
	}
}

// crashing breaks the connections to a node that is down, and of answers that a Fault cuts.
func (n *Node) crashing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.isDown() {
			panic(http.ErrAbortHandler)
		}
		w2 := &cutting{ResponseWriter: w}
		h.ServeHTTP(w2, r.WithContext(context.WithValue(r.Context(), cutKey{}, &w2.cut)))
	})
}

func (n *Node) isDown() bool {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	return n.down
}

// cutting is a ResponseWriter whose connection may be cut before the answer.
type cutting struct {
	http.ResponseWriter
	cut atomic.Bool
}

func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutting) WriteHeader(status int) {
	if c.cut.Load() {
		panic(http.ErrAbortHandler)
	}
	c.ResponseWriter.WriteHeader(status)
}
