package standin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// States of a message, as the APIs name them. A message that is sent is there at
// once, so none is ever seen sending.
const (
	statePending  = "pending"
	stateReceived = "received"
	stateRead     = "read"
	stateAborted  = "aborted"
	stateGone     = ""
)

// maxTopic is how many bytes a topic has at most.
const maxTopic = 255

var errTopic = errors.New("the topic is too long")

// Node is one Mycelium node. Its methods may be called concurrently.
type Node struct {
	bus *Bus
	key string
	ip  netip.Addr
	// call holds the one call that is served: Mycelium locks its node for each, and
	// for as long as a pop waits.
	call chan struct{}

	// What follows the bus's lock guards.
	down    bool
	life    int // counts the restarts
	inbox   []received
	outbox  map[string]*outbound
	waiting map[string]*subscriber // for the message of an id
	arrived chan struct{}          // closed when a message has come into the inbox
	ended   chan struct{}          // closed when the node goes down
	sweepAt time.Time
}

// received is a message that arrived whole.
type received struct {
	id      string
	from    *Node
	life    int // of the sender
	topic   []byte
	payload []byte
}

// outbound is a message that was pushed here.
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
	gone  bool // it gave up; the message is for the inbox then
	reply chan received
}

func newNode(b *Bus, key string, ip netip.Addr) *Node {
	n := &Node{bus: b, key: key, ip: ip, call: make(chan struct{}, 1)}
	n.forget()
	return n
}

// forget empties the memory, which is all that a node has.
func (n *Node) forget() {
	n.inbox, n.outbox, n.waiting = nil, map[string]*outbound{}, map[string]*subscriber{}
	n.arrived, n.ended = make(chan struct{}), make(chan struct{})
}

// Key is the node's public key, 64 hexadecimal digits.
func (n *Node) Key() string { return n.key }

// IP is the node's address.
func (n *Node) IP() string { return n.ip.String() }

// Stop ends the node as a crash does: connections break, and what it had received
// and not handed out, or sent and not delivered, is gone.
func (n *Node) Stop() {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	if !n.down {
		n.down = true
		n.life++
		close(n.ended)
	}
}

// Start brings a stopped node up, empty. What others still try to send it gets.
func (n *Node) Start() {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	if n.down {
		n.down = false
		n.forget()
		n.bus.deliverHeld(n)
	}
}

// Unread is how many messages lie in the inbox.
func (n *Node) Unread() int {
	n.bus.mu.Lock()
	defer n.bus.mu.Unlock()
	return len(n.inbox)
}

// enter waits until no other call is served.
func (n *Node) enter(ctx context.Context) (leave func(), err error) {
	select {
	case n.call <- struct{}{}:
		return func() { <-n.call }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// push sets a message on its way; an id makes it a reply. With subscribe the
// message that comes with its id is waited for.
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

// sweep deletes expired messages from time to time, and subscribers that
// gave up.
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

// keyAt is the key of the node at an address.
func (b *Bus) keyAt(ip netip.Addr) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nodes[rangeOf(ip)]; n != nil {
		return n.key
	}
	return ""
}

// reply waits for the message that a push subscribed to.
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
	case m := <-sub.reply: // it came at the last moment
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

// has tells whether a message of the id lies unread. It is called with the lock
// held.
func (n *Node) has(id string) bool {
	return slices.ContainsFunc(n.inbox, func(m received) bool { return m.id == id })
}

func (n *Node) received(t transit) received {
	return received{id: t.id, from: t.from, life: t.life, topic: t.topic, payload: t.payload}
}

// complete gives a message to the subscriber of its id, whether it is a reply or
// not, else into the inbox. It is called with the lock held.
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

// pop takes the first message, of exactly the topic where one is given, and lets
// no other call in while it waits for one.
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

// status is what is known of a message that was pushed here.
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

// state is how far a message is; stateGone when it is forgotten.
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
