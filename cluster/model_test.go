package cluster

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
)

// model is a bounded model of the protocol: nodes, a network and a server that appends by
// compare-and-set. It is the code of the product that decides; the model only carries out.
//
// The network is as bad as can be. A message that was sent once may arrive at any later time, any
// number of times, or never; the model never takes it back. An acknowledgement may come at any time
// after its message was stored, or never. A look may show any earlier end of the log, as a deposed
// leader does.
type model struct {
	nodes   int
	takes   int    // takeovers of each node
	crashes int    // of each node; it starts again without any memory
	records uint64 // highest LSN
	parts   int    // of each record
	retries int    // records that a node appends although it must have stopped
	rules   rules

	messages []Message // by number, from 1
	numbers  map[identity]uint16
	checked  map[string]logCheck
}

// rules are those of the protocol, or of a variation of it.
type rules struct {
	depth    int  // appends in flight; above 1 with predicted sequences
	filter   bool // readers leave out records of an epoch behind a later one's Own, instead of failing
	inOrder  bool // a pipelined append counts only when all before it were acknowledged
	freshest bool // a node that takes over reads the real end of the log
	noOwn    bool // a node serves once it has read the log, without an Own record
	subject  bool // the server compares as it does for Nats-Expected-Last-Subject-Sequence
	patient  bool // it is no violation that the server refuses what arrives in order
}

// protocol is what the product does.
var protocol = rules{depth: 1}

const maxNodes = 3

type phase uint8

const (
	standby phase = iota
	taking        // its Own record is in flight
	owner         // it serves; records may be in flight
)

// place is a node.
type place struct {
	phase   phase
	run     uint8
	takes   uint8
	retries uint8
	read    uint8 // the end of the log that it had read when it began to serve
	mark    Mark  // behind its own last acknowledged record
	flights []*flight
}

// flight is an append of a node, with the number of its message.
type flight struct {
	Append
	number uint16
}

func (md *model) flight(a Append) *flight { return &flight{a, md.number(a.message())} }

// send is a message on the network.
type send struct{ expected, message uint16 }

type state struct {
	log     []uint16 // numbers of messages; the first has sequence 1
	network []send   // sorted
	acked   []uint16 // last messages of the records whose append was answered, sorted
	pending uint16   // the server has accepted this message and not stored it yet; only with rules.subject
	nodes   [maxNodes]place
}

// step is what happens between two states. broken says what it violates by itself.
type step struct {
	what   string
	node   int
	order  Instruction
	number uint64
	broken string
}

// identity tells messages apart; Sum covers the entry.
type identity struct {
	epoch, lsn uint64
	prev, sum  uint32
	kind       Kind
	node       string
	part       int
}

func (md *model) number(m Message) uint16 {
	key := identity{m.Epoch, m.LSN, m.Prev, m.Sum, m.Kind, m.Node, m.Part}
	if n, ok := md.numbers[key]; ok {
		return n
	}
	md.messages = append(md.messages, m)
	n := uint16(len(md.messages) - 1)
	md.numbers[key] = n
	return n
}

func (md *model) name(i int, p place) string { return fmt.Sprintf("%c%d", 'A'+i, p.run+1) }

// last is the last message of the log when it had n messages.
func (md *model) last(s *state, n int) Last {
	if n == 0 {
		return Last{}
	}
	return Last{Seq: uint64(n), Message: md.messages[s.log[n-1]]}
}

// next calls visit with every state that may follow.
func (md *model) next(s *state, visit func(state, step)) {
	for i := range md.nodes {
		md.nodeSteps(s, i, visit)
	}
	if s.pending != 0 {
		md.store(s, s.pending, visit)
	}
	for _, on := range s.network {
		m := md.messages[on.message]
		node := int(m.Node[0] - 'A')
		switch {
		case md.rules.subject && s.pending != 0:
			// The server refuses at once what comes while another message of the subject is under way.
			before := md.messages[s.pending]
			if m.LSN == before.LSN+1 && m.Node == before.Node && md.alone(s) && !md.rules.patient {
				order := Instruction{Message: m, Expected: uint64(on.expected)}
				visit(*s, step{what: "refused", node: node, order: order,
					broken: "a record of the only owner is refused, although it arrives in order"})
			}
		case int(on.expected) != len(s.log): // refused; the sender sees that as any other doubt
		case md.rules.subject:
			after := *s
			after.pending = on.message
			visit(after, step{what: "accepted", node: node, order: Instruction{Message: m, Expected: uint64(on.expected)}})
		default:
			md.store(s, on.message, visit)
		}
	}
}

// alone reports whether only one node has ever taken over.
func (md *model) alone(s *state) bool {
	n := 0
	for _, p := range s.nodes {
		n += int(p.takes)
	}
	return n == 1
}

func (md *model) store(s *state, number uint16, visit func(state, step)) {
	after := *s
	after.pending = 0
	after.log = append(slices.Clip(s.log), number)
	m := md.messages[number]
	what := step{what: "stored", node: int(m.Node[0] - 'A'), order: Instruction{Message: m}}
	what.number = uint64(len(after.log))
	visit(after, what)
}

func (md *model) nodeSteps(s *state, i int, visit func(state, step)) {
	p := s.nodes[i]
	with := func(p place, what step) {
		after := *s
		after.nodes[i] = p
		what.node = i
		visit(after, what)
	}
	if int(p.run) < md.crashes && p.takes > 0 {
		with(place{run: p.run + 1, takes: p.takes}, step{what: "crash"})
	}
	if int(p.takes) < md.takes {
		for n := range len(s.log) + 1 {
			if uint64(n) >= p.mark.Seq && (n == len(s.log) || !md.rules.freshest) {
				md.take(s, i, n, visit)
			}
		}
	}
	if p.phase == owner && len(p.flights) < md.rules.depth {
		md.append(s, i, visit)
	}
	for at, f := range p.flights {
		if stored := slices.Index(s.log, f.number); stored >= 0 && (at == 0 || !md.rules.inOrder) {
			changed, order := f.Acked(uint64(stored + 1))
			md.act(s, i, at, changed, order, step{what: "ack"}, visit)
		}
	}
	if len(p.flights) > 0 {
		for n := range len(s.log) + 1 {
			unsure, _ := p.flights[0].Unsure()
			changed, order := unsure.Looked(md.last(s, n))
			md.act(s, i, 0, changed, order, step{what: "look", number: uint64(n)}, visit)
		}
		if p.phase == owner && int(p.retries) < md.retries {
			p.retries++
			p.flights = nil
			with(p, step{what: "defies"})
		}
	}
}

// take lets a node read the log up to n messages and take over.
func (md *model) take(s *state, i, n int, visit func(state, step)) {
	p := s.nodes[i]
	p.takes++
	p.flights = nil
	at, epoch := md.readTo(s, n)
	name := md.name(i, p)
	if md.rules.noOwn {
		p.phase, p.mark, p.read = owner, at, uint8(n)
		p.mark.Epoch = epoch + 1
		after := *s
		after.nodes[i] = p
		visit(after, step{what: "serves", node: i, number: uint64(n), order: Instruction{Mark: p.mark}})
		return
	}
	p.phase = taking
	at, own := barrier(at, uint64(n), name, 1)
	md.begin(s, i, p, at, own, step{what: "take", number: uint64(n)}, visit)
}

// readTo reads the first n messages as a standby does.
func (md *model) readTo(s *state, n int) (Mark, uint64) {
	if md.rules != protocol {
		c := md.check(s.log[:n])
		return c.end, c.end.Epoch
	}
	r := NewReader(Mark{})
	for seq, number := range s.log[:n] {
		if _, _, err := r.Message(uint64(seq+1), md.messages[number]); err != nil {
			panic(err) // the check of the log comes before
		}
	}
	return r.Mark(), r.Mark().Epoch
}

// append lets an owner append the next record, behind the predicted marks of those in flight.
func (md *model) append(s *state, i int, visit func(state, step)) {
	p := s.nodes[i]
	mark := p.mark
	for _, f := range p.flights {
		_, done := f.Acked(f.seq + 1)
		mark = done.Mark
	}
	if mark.LSN >= md.records {
		return
	}
	entry := slices.Repeat([]byte{'0' + p.retries}, md.parts)
	md.begin(s, i, p, mark, mark.Next(Entry, md.name(i, p), 1, entry), step{what: "append"}, visit)
}

func (md *model) begin(s *state, i int, p place, at Mark, r Record, what step, visit func(state, step)) {
	f, order := Begin(at, r, 1)
	p.flights = append(slices.Clip(p.flights), md.flight(f))
	after := *s
	after.nodes[i] = p
	after.network = md.sent(s.network, order)
	what.node, what.order = i, order
	visit(after, what)
}

func (md *model) sent(network []send, a Instruction) []send {
	on := send{uint16(a.Expected), md.number(a.Message)}
	at, found := slices.BinarySearchFunc(network, on, func(x, y send) int {
		return cmp.Or(cmp.Compare(x.expected, y.expected), cmp.Compare(x.message, y.message))
	})
	if found {
		return network
	}
	return slices.Insert(slices.Clone(network), at, on)
}

// act carries out what the protocol says to a flight of a node.
func (md *model) act(s *state, i, at int, f Append, a Instruction, what step, visit func(state, step)) {
	after := *s
	p := &after.nodes[i]
	p.flights = slices.Clone(p.flights)
	if a.Do == Send && f.part != p.flights[at].part {
		p.flights[at] = md.flight(f)
	}
	switch a.Do {
	case Send:
		after.network = md.sent(s.network, a)
	case Committed:
		if f.record.Kind == Own {
			p.phase, p.read = owner, uint8(a.Mark.Seq)
		} else {
			number := p.flights[at].number
			if k, found := slices.BinarySearch(s.acked, number); !found {
				after.acked = slices.Insert(slices.Clone(s.acked), k, number)
			}
		}
		if a.Mark.Seq > p.mark.Seq {
			p.mark = a.Mark
		}
		p.flights = slices.Delete(p.flights, at, at+1)
	case Fenced, Moved:
		p.flights = nil
		if p.phase == owner && int(p.retries) < md.retries {
			p.retries++ // it goes on all the same
		} else {
			p.phase, p.mark = standby, Mark{}
		}
	}
	what.node, what.order = i, a
	if what.order.Do == Committed {
		what.order.Message = f.message()
	}
	visit(after, what)
}

// logCheck is what a log holds, checked without the code of the product.
type logCheck struct {
	broken  string
	records []uint16 // the last messages of the records that count
	end     Mark
}

func (md *model) check(log []uint16) logCheck {
	key := string(appendNumbers(nil, log))
	if c, ok := md.checked[key]; ok {
		return c
	}
	c := md.checkLog(log)
	if md.rules == protocol && c.broken == "" {
		c.broken = md.checkReader(log, c)
	}
	md.checked[key] = c
	return c
}

func (md *model) checkLog(log []uint16) logCheck {
	var c logCheck
	var part int
	for i, number := range log {
		m := md.messages[number]
		switch {
		case slices.Contains(log[:i], number):
			c.broken = "a message is in the log twice: " + say(m)
			return c
		case m.Epoch < c.end.Epoch && md.rules.filter:
			continue
		case m.Epoch < c.end.Epoch:
			c.broken = fmt.Sprintf("a record of an older owner stands behind the Own record of epoch %d: %s",
				c.end.Epoch, say(m))
			return c
		case m.Kind == Own || m.Epoch > c.end.Epoch && md.rules.noOwn:
			part = 0
		}
		if part++; m.Part != part {
			c.broken = "a part is missing before " + say(m)
			return c
		}
		if m.Prev != c.end.Sum {
			c.broken = "the chain of checksums is broken at " + say(m)
			return c
		}
		if m.Part < m.Parts {
			continue
		}
		part = 0
		if m.Kind == Entry {
			if m.LSN != c.end.LSN+1 {
				c.broken = fmt.Sprintf("record %d follows record %d", m.LSN, c.end.LSN)
				return c
			}
			c.records = append(c.records, number)
		}
		c.end = Mark{Seq: uint64(i + 1), LSN: m.LSN, Epoch: m.Epoch, Sum: m.Sum}
	}
	return c
}

// checkReader compares what the product's reader returns.
func (md *model) checkReader(log []uint16, c logCheck) string {
	r := NewReader(Mark{})
	var records []uint16
	for i, number := range log {
		rec, whole, err := r.Message(uint64(i+1), md.messages[number])
		if err != nil {
			return "the reader fails: " + err.Error()
		}
		if !whole || rec.Kind != Entry {
			continue
		}
		if len(rec.Entry) != md.parts {
			return "the reader returns a record that is not whole"
		}
		records = append(records, number)
	}
	if r.Mark() != c.end || !slices.Equal(records, c.records) {
		return fmt.Sprintf("the reader returns %d records and ends at %+v; the log has %d and ends at %+v",
			len(records), r.Mark(), len(c.records), c.end)
	}
	return ""
}

// violation checks the invariants of a state; empty when all hold.
func (md *model) violation(s *state) string {
	c := md.check(s.log)
	if c.broken != "" {
		return c.broken
	}
	for _, number := range s.acked {
		if !slices.Contains(c.records, number) {
			return "an acknowledged record is lost: " + say(md.messages[number])
		}
	}
	for i, p := range s.nodes[:md.nodes] {
		if p.phase != owner {
			continue
		}
		for _, number := range s.acked {
			m := md.messages[number]
			older := m.Epoch < p.mark.Epoch || m.Epoch == p.mark.Epoch && m.Node[0] != byte('A'+i)
			if at := slices.Index(s.log, number); older && at >= int(p.read) {
				return fmt.Sprintf("%s serves in epoch %d, and has not read an acknowledged record: %s",
					md.name(i, p), p.mark.Epoch, say(m))
			}
		}
	}
	return ""
}

func appendNumbers(b []byte, numbers []uint16) []byte {
	for _, n := range numbers {
		b = append(b, byte(n), byte(n>>8))
	}
	return b
}

// hash is a state in 64 bits. Among ten million states the chance that any two collide, and one is
// left out, is about one in a million.
func (md *model) hash(s *state, seed maphash.Seed, b []byte) (uint64, []byte) {
	b = append(b[:0], byte(len(s.log)), byte(len(s.network)), byte(len(s.acked)))
	b = appendNumbers(appendNumbers(append(b, byte(s.pending), byte(s.pending>>8)), s.log), s.acked)
	for _, on := range s.network {
		b = append(b, byte(on.expected), byte(on.message), byte(on.message>>8))
	}
	for _, p := range s.nodes[:md.nodes] {
		b = append(b, byte(p.phase), p.run, p.takes, p.retries, p.read, byte(len(p.flights)))
		b = append(b, byte(p.mark.Seq), byte(p.mark.LSN), byte(p.mark.Epoch))
		b = binary.BigEndian.AppendUint32(b, p.mark.Sum)
		for _, f := range p.flights {
			b = append(b, byte(f.number), byte(f.number>>8), byte(f.seq))
		}
	}
	return maphash.Bytes(seed, b), b
}

// found is what an exploration has found.
type found struct {
	states  int
	cut     bool   // the bound on states was reached
	most    uint64 // records acknowledged in one state
	shared  int    // states in which two nodes believe that they own the log
	broken  string // empty if every invariant holds
	example []string
}

// explore visits the states breadth first, so a counter-example is a shortest one.
func (md *model) explore(most int) found {
	md.messages, md.numbers, md.checked = make([]Message, 1), map[identity]uint16{}, map[string]logCheck{}
	seed := maphash.MakeSeed()
	type origin struct {
		parent uint32
		via    uint16
	}
	seen, origins, frontier := map[uint64]struct{}{}, []origin{{}}, []state{{}}
	var buffer []byte
	h, buffer := md.hash(&frontier[0], seed, buffer)
	seen[h] = struct{}{}
	out := found{states: 1}
	trace := func(parent uint32, via uint16) []string {
		var path []uint16
		for ; parent != 0 || via != 0; parent, via = origins[parent].parent, origins[parent].via {
			path = append(path, via)
			if parent == 0 {
				break
			}
		}
		slices.Reverse(path)
		return md.replay(path)
	}
	for first := uint32(0); len(frontier) > 0; {
		var next []state
		for k := range frontier {
			parent, via := first+uint32(k), uint16(0)
			md.next(&frontier[k], func(s state, what step) {
				via++
				if out.broken != "" || out.cut {
					return
				}
				h, buffer = md.hash(&s, seed, buffer)
				if _, ok := seen[h]; ok && what.broken == "" {
					return
				}
				out.broken = what.broken
				if out.broken == "" {
					out.broken = md.violation(&s)
				}
				if out.broken != "" {
					out.example = trace(parent, via)
					return
				}
				seen[h] = struct{}{}
				origins = append(origins, origin{parent, via})
				next = append(next, s)
				out.states++
				out.cut = out.states >= most
				out.most = max(out.most, uint64(len(s.acked)))
				if owners(&s) > 1 {
					out.shared++
				}
			})
			if out.broken != "" || out.cut {
				return out
			}
		}
		first += uint32(len(frontier))
		frontier = next
	}
	return out
}

func owners(s *state) int {
	n := 0
	for _, p := range s.nodes {
		if p.phase == owner {
			n++
		}
	}
	return n
}

// replay says in words what happens on a path.
func (md *model) replay(path []uint16) []string {
	var out []string
	s := state{}
	for _, via := range path {
		n := uint16(0)
		var chosen state
		md.next(&s, func(after state, what step) {
			if n++; n == via {
				chosen = after
				out = append(out, md.tell(&s, what))
			}
		})
		s = chosen
	}
	return out
}

func say(m Message) string {
	text := fmt.Sprintf("record %d of %s in epoch %d", m.LSN, m.Node, m.Epoch)
	if m.Kind == Own {
		text = fmt.Sprintf("the Own record of %s for epoch %d", m.Node, m.Epoch)
	}
	if m.Parts > 1 {
		text = fmt.Sprintf("part %d/%d of %s", m.Part, m.Parts, text)
	}
	return text
}

func (md *model) tell(s *state, what step) string {
	who := md.name(what.node, s.nodes[what.node])
	a := what.order
	switch what.what {
	case "crash":
		return who + " crashes and starts again"
	case "take":
		return fmt.Sprintf("%s reads the log up to message %d and sends %s, to be stored as message %d",
			who, what.number, say(a.Message), a.Expected+1)
	case "serves":
		return fmt.Sprintf("%s reads the log up to message %d and serves in epoch %d", who, what.number, a.Mark.Epoch)
	case "append":
		return fmt.Sprintf("%s sends %s, to be stored as message %d", who, say(a.Message), a.Expected+1)
	case "accepted":
		return fmt.Sprintf("the server accepts %s and has not stored it yet", say(a.Message))
	case "refused":
		return fmt.Sprintf("the server refuses %s, because another message of the subject is under way", say(a.Message))
	case "stored":
		return fmt.Sprintf("the server stores %s as message %d", say(a.Message), what.number)
	case "defies":
		return who + " gives up waiting, and goes on behind its last mark with another record"
	case "ack":
		return fmt.Sprintf("%s gets the acknowledgement: %s", who, consequence(a))
	case "look":
		return fmt.Sprintf("%s looks, and sees the log up to message %d: %s", who, what.number, consequence(a))
	}
	return what.what
}

func consequence(a Instruction) string {
	switch a.Do {
	case Send:
		return "sends " + say(a.Message)
	case Look:
		return "that is no answer of the leader"
	case Committed:
		return say(a.Message) + " is committed"
	case Fenced:
		return "it is fenced"
	default:
		return "the log has moved, it steps down"
	}
}
