package standin

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// window is for how long Mycelium tries to send a message. After twice as long it
// forgets it.
const window = 5 * time.Minute

// Options say how a bus behaves. The zero value is as Mycelium is.
type Options struct {
	// Window is for how long a message is tried; five minutes unless said.
	Window time.Duration
	// Now tells the time of the windows; time.Now unless said.
	Now func() time.Time
	// Fault says what is to happen to a message; nothing out of the ordinary unless
	// said. It may be called concurrently.
	Fault func(Envelope) Fault
}

// Envelope is a message on its way.
type Envelope struct {
	ID       string
	From, To string // keys; To is "" where there is no such node
	Topic    string
	Payload  []byte
	Reply    bool
}

// Fault is what happens to a message on its way.
type Fault struct {
	Drop      bool          // it does not arrive: pending until its window ends, then aborted
	Abort     bool          // it does not arrive and is aborted at once
	Duplicate bool          // it arrives twice, as it never does with Mycelium itself
	Delay     time.Duration // it arrives later, if its window is not over by then
	// CutAnswer breaks the connection of who pushes it, after it was pushed: who
	// pushes never learns its id.
	CutAnswer bool
}

// Bus is the network of the nodes. Its methods may be called concurrently.
type Bus struct {
	options Options

	mu     sync.Mutex // guards what follows, and everything in the nodes
	nodes  map[netip.Prefix]*Node
	held   []transit // for nodes that are not there or down
	timers map[*time.Timer]bool
	closed bool
}

// New makes a bus without nodes.
func New(o Options) *Bus {
	if o.Window <= 0 {
		o.Window = window
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Fault == nil {
		o.Fault = func(Envelope) Fault { return Fault{} }
	}
	return &Bus{options: o, nodes: map[netip.Prefix]*Node{}, timers: map[*time.Timer]bool{}}
}

// Close ends the deliveries that are delayed.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for t := range b.timers {
		t.Stop()
	}
}

// Node is the node of a key, of 64 hexadecimal digits; of any other name it is one
// whose key is made from the name. It is made when first asked for, and gets what
// was sent to it before.
func (b *Bus) Node(name string) *Node {
	key := keyOf(name)
	ip := addressOf(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nodes[rangeOf(ip)]; n != nil {
		return n
	}
	n := newNode(b, key, ip)
	b.nodes[rangeOf(ip)] = n
	b.deliverHeld(n)
	return n
}

func keyOf(name string) string {
	if raw, err := hex.DecodeString(name); err == nil && len(raw) == 32 {
		return strings.ToLower(name)
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// addressOf is formed as Mycelium's: 400::/7, the rest from a hash of the key.
func addressOf(key string) netip.Addr {
	sum := sha256.Sum256([]byte("address " + key))
	var a [16]byte
	copy(a[:], sum[:])
	a[0] = 0x04 | byte(bits.OnesCount8(a[0])%2)
	return netip.AddrFrom16(a)
}

// rangeOf is what of an address belongs to one node.
func rangeOf(ip netip.Addr) netip.Prefix {
	return netip.PrefixFrom(ip, 64).Masked()
}

// transit is a message between two nodes.
type transit struct {
	from    *Node
	life    int // of the sender: a node that was restarted sends nothing of before
	to      netip.Addr
	id      string
	topic   []byte
	payload []byte
}

// send sets a message on its way. It is called with the lock held.
func (b *Bus) send(t transit, f Fault) {
	out := t.from.outbox[t.id]
	switch {
	case f.Abort:
		out.aborted = true
	case f.Drop:
	case f.Delay > 0:
		b.later(t, f)
	default:
		b.arrive(t, f)
	}
}

// later delivers after a delay, unless the bus is closed. It is called with the
// lock held.
func (b *Bus) later(t transit, f Fault) {
	var timer *time.Timer
	timer = time.AfterFunc(f.Delay, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.timers, timer)
		if !b.closed {
			b.arrive(t, f)
		}
	})
	b.timers[timer] = true
}

// arrive delivers the message, or holds it for a node that is not there: its
// sender would try again and again. It is called with the lock held.
func (b *Bus) arrive(t transit, f Fault) {
	to := b.nodes[rangeOf(t.to)]
	if to == nil || to.down {
		b.hold(t)
		return
	}
	b.handOver(to, t)
	if f.Duplicate {
		to.complete(to.received(t))
	}
}

// handOver gives the message to its node if its sender still tries. It is called
// with the lock held.
func (b *Bus) handOver(to *Node, t transit) {
	if !b.tried(t) || to.has(t.id) {
		return // aborted, forgotten, or unread over there with the same id
	}
	t.from.outbox[t.id].received = true
	to.complete(to.received(t))
}

// pruneHeld is how many held messages there are before the expired ones
// are thrown away.
const pruneHeld = 1024

// hold keeps a message for a node that is not there. It is called with the lock
// held.
func (b *Bus) hold(t transit) {
	b.held = append(b.held, t)
	if len(b.held)%pruneHeld == 0 {
		b.held = slices.DeleteFunc(b.held, func(t transit) bool { return !b.tried(t) })
	}
}

// tried tells whether the sender still tries. It is called with the lock held.
func (b *Bus) tried(t transit) bool {
	out := t.from.outbox[t.id]
	return t.from.life == t.life && out != nil && b.state(out) == statePending
}

// deliverHeld gives a node what was held for it. It is called with the lock held.
func (b *Bus) deliverHeld(n *Node) {
	held := b.held
	b.held = nil
	for _, t := range held {
		if rangeOf(t.to) == rangeOf(n.ip) {
			b.handOver(n, t)
		} else if b.tried(t) {
			b.held = append(b.held, t)
		}
	}
}
