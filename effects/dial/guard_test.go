package dial

import (
	"errors"
	"net"
	"strings"
	"testing"
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
