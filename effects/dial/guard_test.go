package dial

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"edda/effects/effecttest"
)

func TestWordsThatAreNoHostAreRefused(t *testing.T) {
	for _, bad := range []string{"", "http://x", "a*b", "*.*", "10.0.0.0/99"} {
		if _, err := New(Options{Allow: []string{bad}}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestListedOnly refuses a public address before anything is sent to it.
func TestListedOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tt := range []struct {
		o       Options
		allowed bool
	}{
		{Options{AllowLoopback: true}, true},
		{Options{AllowLoopback: true, ListedOnly: true}, false},
		{Options{ListedOnly: true, Allow: []string{"127.0.0.1"}}, true},
		{Options{ListedOnly: true, Allow: []string{"127.0.0.0/8"}}, true},
		{Options{}, false},
	} {
		g, err := New(tt.o)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := g.DialContext(t.Context(), "tcp", l.Addr().String())
		if (err == nil) != tt.allowed || err != nil && (!errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "effects.allow")) {
			t.Errorf("%+v: %v", tt.o, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// never are addresses that no effect may reach, however they are written.
func never() []string {
	return []string{
		"127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "localhost.", "::1", "0.0.0.0", "::", "", ".",
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.100.100.200", "169.254.0.1", "fe80::1", "fe80::1%lo", "fd00::1",
		"169.254.169.254", "fd00:ec2::254", "192.0.0.192", "168.63.129.16", // where clouds tell machines their secrets
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::169.254.169.254", "64:ff9b:1::1",
		"2002:7f00:1::", "2001:0:7f00:1::", "224.0.0.1", "ff02::1", "255.255.255.255",
		"2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "0x7f.1", "127.1", "127.0.1", "0xA9FEA9FE", "169.254.43518", "1.2.3.4.5", "127.0.0.1.",
	}
}

func TestAddressesThatAreNotPublicAreRefused(t *testing.T) {
	names := effecttest.NewNames(t)
	names.Set("localhost", "127.0.0.1")
	g := guard(t, Options{Resolver: names.Resolver()})
	for _, host := range never() {
		address := net.JoinHostPort(host, "1")
		conn, err := g.DialContext(t.Context(), "tcp", address)
		if !errors.Is(err, ErrForbidden) {
			t.Errorf("dial %s: %v", host, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		if err := g.Check(t.Context(), address); !errors.Is(err, ErrForbidden) {
			t.Errorf("check %s: %v", host, err)
		}
	}
	if _, err := g.DialContext(t.Context(), "unix", "/run/docker.sock"); !errors.Is(err, ErrForbidden) {
		t.Errorf("a socket: %v", err)
	}
}

func guard(t *testing.T, o Options) *Guard {
	t.Helper()
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestANameIsLookedAtWhenItIsDialled: what it resolved to before is not asked.
func TestANameIsLookedAtWhenItIsDialled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := effecttest.NewNames(t)
	names.Set("rebind.test", "8.8.8.8", "127.0.0.1")
	g := guard(t, Options{Resolver: names.Resolver()})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	address := net.JoinHostPort("rebind.test", port)
	if err := g.Check(t.Context(), address); err != nil {
		t.Fatalf("its first answer is public: %v", err)
	}
	if _, err := g.DialContext(t.Context(), "tcp", address); !errors.Is(err, ErrForbidden) {
		t.Errorf("dialled: %v", err)
	}
}

func TestCheck(t *testing.T) {
	names := effecttest.NewNames(t)
	names.Set("public.test", "8.8.8.8 2606:4700::1111")
	names.Set("mixed.test", "8.8.8.8 10.0.0.1")
	names.Set("private.test", "10.0.0.1")
	allow := []string{"listed.test", "*.wild.test", "ported.test:8443", "10.2.0.0/16"}
	names.Set("within.test", "10.2.3.4")
	names.Set("0x7f.1", "8.8.8.8") // here; the other may read 127.0.0.1
	for _, tt := range []struct {
		address  string
		o        Options
		mayReach bool
	}{
		{"public.test:443", Options{}, true},
		{"8.8.8.8:443", Options{}, true},
		{"[2606:4700::1111]:443", Options{}, true},
		{"[::ffff:8.8.8.8]:443", Options{}, true},
		{"mixed.test:443", Options{}, false},
		{"private.test:443", Options{}, false},
		{"unknown.test:443", Options{}, false},
		{"0x7f.1:443", Options{}, false},
		{"no port", Options{}, false},
		{"listed.test:443", Options{Allow: allow}, true}, // and unknown here
		{"a.wild.test:443", Options{Allow: allow}, true},
		{"ported.test:8443", Options{Allow: allow}, true},
		{"ported.test:443", Options{Allow: allow}, false},
		{"within.test:443", Options{Allow: allow}, true},
		{"10.2.3.4:443", Options{Allow: allow}, true},
		{"10.3.3.4:443", Options{Allow: allow}, false},
		{"public.test:443", Options{Allow: allow, ListedOnly: true}, false},
		{"8.8.8.8:443", Options{Allow: allow, ListedOnly: true}, false},
		{"127.0.0.1:443", Options{AllowLoopback: true}, true},
		{"10.0.0.1:443", Options{AllowLoopback: true}, false},
	} {
		tt.o.Resolver = names.Resolver()
		err := guard(t, tt.o).Check(t.Context(), tt.address)
		if (err == nil) != tt.mayReach || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s with %+v: %v", tt.address, tt.o, err)
		}
	}
}

// TestCheckOfALostLookUpMayHelpLater: no answer is not the same as no name.
func TestCheckOfALostLookUpMayHelpLater(t *testing.T) {
	lost := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") }}
	err := guard(t, Options{Resolver: lost}).Check(t.Context(), "pay.test:443")
	if err == nil || errors.Is(err, ErrForbidden) {
		t.Errorf("error %v", err)
	}
}

func TestFilesAndSockets(t *testing.T) {
	for _, tt := range []struct {
		o       Options
		path    string
		allowed bool
	}{
		{Options{}, "/data/shop.db", false},
		{Options{AllowLoopback: true}, "/data/shop.db", true},
		{Options{AllowLoopback: true, ListedOnly: true}, "/data/shop.db", false},
		{Options{Allow: []string{"/data/shop.db"}}, "/data/shop.db", true},
		{Options{Allow: []string{"/data/shop.db"}}, "/data/shop.db2", false},
		{Options{Allow: []string{"/data/"}}, "/data/sub/shop.db", true},
		{Options{Allow: []string{"/data"}}, "/data/shop.db", false},
		{Options{Allow: []string{"/data/"}}, "/data/../etc/shop.db", false},
		{Options{AllowLoopback: true}, "shop.db", false},
	} {
		g, err := New(tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.File(tt.path); (err == nil) != tt.allowed || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%+v: %s: %v", tt.o, tt.path, err)
		}
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, allow := range [][]string{nil, {socket}} {
		g, err := New(Options{Allow: allow})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := g.DialContext(t.Context(), "unix", socket)
		if (err == nil) != (allow != nil) {
			t.Errorf("%v: %v", allow, err)
		}
		if conn != nil {
			conn.Close()
		}
	}
}
