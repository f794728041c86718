// Package dial is how providers reach others: through a guard that refuses
// addresses which are not public, looked at when they are dialled, so that a
// name which resolves to one does not help; and with the TLS that a manifest asks for.
package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Timeout bounds the making of one connection.
const Timeout = 10 * time.Second

// ErrForbidden marks the error of a connection that the guard refused.
var ErrForbidden = errors.New("not an allowed host")

// Options say what may be reached. The zero value allows every public address.
type Options struct {
	// AllowLoopback allows this machine, for edda dev.
	AllowLoopback bool
	// Allow lists what may be reached wherever it is: "pay.example",
	// "pay.example:8443", "*.example", an address, or a network "10.1.0.0/16".
	Allow []string
	// ListedOnly refuses everything that Allow does not list, public or not.
	ListedOnly bool
}

// Guard dials for providers. It is safe for concurrent use.
type Guard struct {
	o        Options
	hosts    []string
	networks []netip.Prefix
	public   *ssrf.Guardian
}

// New makes a guard; a word of Allow that is neither host nor network is an error.
func New(o Options) (*Guard, error) {
	g := &Guard{o: o, public: public(o)}
	for _, word := range o.Allow {
		if network, err := netip.ParsePrefix(word); err == nil {
			g.networks = append(g.networks, network.Masked())
			continue
		}
		if word == "" || strings.ContainsAny(word, "/@ ") || strings.Contains(strings.TrimPrefix(word, "*."), "*") {
			return nil, fmt.Errorf("%q is neither a host such as pay.example, pay.example:8443 or *.example nor a network such as 10.1.0.0/16", word)
		}
		g.hosts = append(g.hosts, strings.ToLower(word))
	}
	return g, nil
}

func public(o Options) *ssrf.Guardian {
	allowed := []ssrf.Option{ssrf.WithAnyPort()}
	if o.AllowLoopback {
		allowed = append(allowed, ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")), ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	return ssrf.New(allowed...)
}

// DialContext connects to host:port, where that is allowed; else the error is
// ErrForbidden. Give it the name, not an address that somebody else has looked up.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: Timeout}
	if !g.Listed(address) {
		d.Control = g.control
	}
	conn, err := d.DialContext(ctx, network, address)
	if refused(err) {
		return nil, fmt.Errorf("%s: %w; effects.allow can list it", address, ErrForbidden)
	}
	return conn, err
}

// control looks at an address that a name has led to.
func (g *Guard) control(network, address string, conn syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err == nil && g.within(at.Addr().Unmap()) {
		return nil
	}
	if g.o.ListedOnly {
		return ErrForbidden
	}
	return g.public.Safe(network, address, conn)
}

func (g *Guard) within(a netip.Addr) bool {
	for _, n := range g.networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

func refused(err error) bool {
	for _, no := range []error{ErrForbidden, ssrf.ErrProhibitedIP, ssrf.ErrProhibitedNetwork, ssrf.ErrProhibitedPort, ssrf.ErrInvalidHostPort} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// Listed tells whether host:port is a host that Allow lists by its name.
func (g *Guard) Listed(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for _, h := range g.hosts {
		if matches(h, strings.ToLower(host), port) {
			return true
		}
	}
	return false
}

func matches(pattern, host, port string) bool {
	if h, p, err := net.SplitHostPort(pattern); err == nil {
		if p != port {
			return false
		}
		pattern = h
	}
	if suffix, wild := strings.CutPrefix(pattern, "*"); wild {
		return strings.HasSuffix(host, suffix)
	}
	return host == strings.Trim(pattern, "[]")
}
