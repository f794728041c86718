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

// window is the time for which Mycelium tries to send a message. After twice that time it
// forgets the message.
const window = 5 * time.Minute

// Options configure a bus. The zero value behaves as Mycelium.
type Options struct {
	// Window bounds the tries of a message; five minutes by default.
	Window time.Duration
	// Now is the clock of the windows; time.Now by default.
	Now func() time.Time
	// Fault decides the fault of a message; none by default. It may be called
	// concurrently.
	Fault func(Envelope) Fault
}

// Envelope is a message in transit.
type Envelope struct {
	ID       string
	From, To string // keys; To is "" if there is no such node
	Topic    string
	Payload  []byte
	Reply    bool
}

// Fault is a fault of the network, for one message.
type Fault struct {
	Drop      bool          // lost: pending until its window ends, then aborted
	Abort     bool          // lost, and aborted at once
	Duplicate bool          // it arrives twice, which Mycelium itself never does
	Delay     time.Duration // it arrives later, within its window
	// CutAnswer breaks the connection of the push after the message was sent: the caller
	// never gets its id.
	CutAnswer bool
}

// Bus is the network of the nodes. Its methods may be called concurrently.
type Bus struct {
	options Options

	mu     sync.Mutex // guards the fields below and the nodes' state
	nodes  map[netip.Prefix]*Node
	held   []transit // for nodes that are missing or down
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

// Close cancels delayed deliveries.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for t := range b.timers {
		t.Stop()
	}
}

// Node returns the node of a key of 64 hexadecimal digits. Any other name makes a key. The
// first call makes the node, which gets the messages that were sent to it before.
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

// addressOf returns the address of a key, in Mycelium's form: 400::/7 and a hash of the key.
func addressOf(key string) netip.Addr {
	sum := sha256.Sum256([]byte("address " + key))
	var a [16]byte
	copy(a[:], sum[:])
	a[0] = 0x04 | byte(bits.OnesCount8(a[0])%2)
	return netip.AddrFrom16(a)
}

// rangeOf returns the range of addresses of one node.
func rangeOf(ip netip.Addr) netip.Prefix {
	return netip.PrefixFrom(ip, 64).Masked()
}

// transit is a message in transit between two nodes.
type transit struct {
	from    *Node
	life    int // of the sender: a restarted node does not send its earlier messages
	to      netip.Addr
	id      string
	topic   []byte
	payload []byte
}

// send sends a message. The caller holds the lock.
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

// later delivers after a delay, unless the bus is closed. The caller holds the lock.
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

// arrive delivers the message, or holds it for a node that is missing or down, whose sender
// would retry. The caller holds the lock.
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

// handOver passes the message to its node if the sender still tries. The caller holds the
// lock.
func (b *Bus) handOver(to *Node, t transit) {
	if !b.tried(t) || to.has(t.id) {
		return // aborted, forgotten, or in the inbox already
	}
	t.from.outbox[t.id].received = true
	to.complete(to.received(t))
}

// pruneHeld is the number of held messages after which expired ones are dropped.
const pruneHeld = 1024

// hold keeps a message for a node that is missing or down. The caller holds the lock.
func (b *Bus) hold(t transit) {
	b.held = append(b.held, t)
	if len(b.held)%pruneHeld == 0 {
		b.held = slices.DeleteFunc(b.held, func(t transit) bool { return !b.tried(t) })
	}
}

// tried reports whether the sender still tries. The caller holds the lock.
func (b *Bus) tried(t transit) bool {
	out := t.from.outbox[t.id]
	return t.from.life == t.life && out != nil && b.state(out) == statePending
}

// deliverHeld delivers the messages held for a node. The caller holds the lock.
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
