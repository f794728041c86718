package effecttest

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// FakeDNS is a DNS server for a test. Each lookup of a name takes the next of its answers; the last
// one repeats. A name without answers is unknown.
type FakeDNS struct {
	conn net.PacketConn

	mu      sync.Mutex // guards answers
	answers map[string][][]netip.Addr
}

// NewNames serves until the test ends.
func NewNames(t testing.TB) *FakeDNS {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &FakeDNS{conn: conn, answers: map[string][][]netip.Addr{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.serve()
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return n
}

// Set sets the answers of a name. Each is one address, or several with blanks between.
func (n *FakeDNS) Set(name string, answers ...string) {
	var list [][]netip.Addr
	for _, answer := range answers {
		var addresses []netip.Addr
		for a := range strings.FieldsSeq(answer) {
			addresses = append(addresses, netip.MustParseAddr(a))
		}
		list = append(list, addresses)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name+"."] = list
}

// Resolver returns a resolver that asks this server.
func (n *FakeDNS) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *FakeDNS) serve() {
	packet := make([]byte, 1500) // larger than any question
	for {
		size, from, err := n.conn.ReadFrom(packet)
		if err != nil {
			return
		}
		if reply, err := n.reply(packet[:size]); err == nil {
			_, _ = n.conn.WriteTo(reply, from)
		}
	}
}

func (n *FakeDNS) reply(packet []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || len(m.Questions) != 1 {
		return nil, err
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}
	m.Additionals = nil
	addresses, known := n.next(q)
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}

// next answers a question. A lookup asks for A and AAAA, and A takes an answer: a name with several
// answers has IPv4 addresses.
func (n *FakeDNS) next(q dnsmessage.Question) ([]netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := strings.ToLower(q.Name.String())
	answers := n.answers[name]
	if len(answers) == 0 {
		return nil, false
	}
	if len(answers) > 1 && q.Type == dnsmessage.TypeA {
		n.answers[name] = answers[1:]
	}
	return answers[0], true
}
