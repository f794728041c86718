// Package dial connects providers to servers: through a guard that refuses addresses that are not
// public, and with the TLS of a manifest. The guard checks an address when it is dialled, so that a
// name that resolves to a private address does not help.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Timeout bounds the dialling of one connection.
const Timeout = 10 * time.Second

// ErrForbidden marks the error of a connection that the guard refused.
var ErrForbidden = errors.New("not an allowed host")

// Options say what may be reached. The zero value allows every public address.
type Options struct {
	// AllowLoopback allows this machine, for edda dev.
	AllowLoopback bool
	// Allow lists what may be reached at any address: "pay.example", "pay.example:8443",
	// "*.example", an address, a network "10.1.0.0/16", or the path of a file or a unix socket. A
	// path that ends with / allows all below it.
	Allow []string
	// ListedOnly refuses what Allow does not list.
	ListedOnly bool
	// Resolver resolves names; nil is the system's.
	Resolver *net.Resolver
}

// Guard dials for providers. It is safe for concurrent use.
type Guard struct {
	o        Options
	hosts    []string
	paths    []string
	networks []netip.Prefix
	public   *ssrf.Guardian
}

// New makes a guard. It returns an error for an invalid entry of Allow.
func New(o Options) (*Guard, error) {
	g := &Guard{o: o, public: public(o)}
	for _, word := range o.Allow {
		if network, err := netip.ParsePrefix(word); err == nil {
			g.networks = append(g.networks, network.Masked())
			continue
		}
		if strings.HasPrefix(word, "/") {
			g.paths = append(g.paths, word)
			continue
		}
		if word == "" || strings.ContainsAny(word, "/@ ") || strings.Contains(strings.TrimPrefix(word, "*."), "*") {
			return nil, fmt.Errorf("%q is neither a host such as pay.example, pay.example:8443 or *.example nor a network such as 10.1.0.0/16 nor a path such as /run/db.sock", word)
		}
		g.hosts = append(g.hosts, strings.ToLower(word))
	}
	return g, nil
}

// wireServer is the address where Azure gives machines their secrets. It only looks public.
const wireServer = "168.63.129.16/32"

func public(o Options) *ssrf.Guardian {
	allowed := []ssrf.Option{ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix(wireServer))}
	if o.AllowLoopback {
		allowed = append(allowed, ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")), ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	return ssrf.New(allowed...)
}

// DialContext connects to host:port. The error is ErrForbidden if the guard refuses it. The caller
// must give the name, not an address that was resolved before.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: Timeout, Resolver: g.o.Resolver}
	if network == "unix" {
		if err := g.File(address); err != nil {
			return nil, err
		}
		return d.DialContext(ctx, network, address)
	}
	if !g.Listed(address) {
		if err := plainHost(address); err != nil {
			return nil, err
		}
		d.Control = g.control
	}
	conn, err := d.DialContext(ctx, network, address)
	if refused(err) {
		return nil, forbidden(address)
	}
	return conn, err
}

func forbidden(address string) error {
	return fmt.Errorf("%s: %w; effects.allow can list it", address, ErrForbidden)
}

// Check reports whether host:port may be called through a proxy, which dials by itself: a name that
// is not listed must resolve here, and all its addresses must be allowed. The proxy may resolve it
// differently.
func (g *Guard) Check(ctx context.Context, address string) error {
	if g.Listed(address) {
		return nil
	}
	if err := plainHost(address); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return forbidden(address)
	}
	found, err := g.lookUp(ctx, host)
	if err != nil {
		return err
	}
	for _, a := range found {
		if g.allowed(a) != nil {
			return forbidden(address)
		}
	}
	return nil
}

func (g *Guard) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	found, err := cmp.Or(g.o.Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", host)
	var unknown *net.DNSError
	if errors.As(err, &unknown) && unknown.IsNotFound {
		return nil, fmt.Errorf("%s: %w: its address cannot be looked up here; effects.allow can list it", host, ErrForbidden)
	}
	return found, err
}

// plainHost refuses numbers in other forms than today's addresses: some resolvers read 2130706433,
// 0177.0.0.1 and 0x7f.1 as 127.0.0.1.
func plainHost(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return forbidden(address)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	if number(labels[len(labels)-1]) {
		return fmt.Errorf("%s: %w: neither a name nor an address such as 192.0.2.1", host, ErrForbidden)
	}
	return nil
}

// number reports whether a label is a number in any base.
func number(label string) bool {
	if hex, is := strings.CutPrefix(strings.ToLower(label), "0x"); is {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// control checks a resolved address.
func (g *Guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ErrForbidden
	}
	return g.allowed(at.Addr())
}

func (g *Guard) allowed(a netip.Addr) error {
	if a = a.Unmap(); g.within(a) {
		return nil
	}
	if g.o.ListedOnly {
		return ErrForbidden
	}
	return g.public.SafeAddr(a)
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
	return errors.Is(err, ErrForbidden) || errors.Is(err, ssrf.ErrProhibitedIP)
}

// Listed reports whether Allow lists the host of host:port by name.
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

// File returns ErrForbidden unless a file or unix socket may be used: listed ones, and all with
// AllowLoopback.
func (g *Guard) File(path string) error {
	if !filepath.IsAbs(path) || path != filepath.Clean(path) {
		return fmt.Errorf("%q is no plain path: %w", path, ErrForbidden)
	}
	for _, p := range g.paths {
		if p == path || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) {
			return nil
		}
	}
	if g.o.AllowLoopback && !g.o.ListedOnly {
		return nil
	}
	return forbidden(path)
}
