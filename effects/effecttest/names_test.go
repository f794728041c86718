package effecttest

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	n := NewNames(t)
	n.Set("shop.test", "192.0.2.1", "192.0.2.2 192.0.2.3")
	n.Set("six.test", "2001:db8::1")
	r := n.Resolver()
	for _, tt := range []struct{ name, want string }{
		{"shop.test", "192.0.2.1"}, {"SHOP.test", "192.0.2.2 192.0.2.3"}, {"shop.test", "192.0.2.2 192.0.2.3"}, {"six.test", "2001:db8::1"},
	} {
		got, err := r.LookupHost(t.Context(), tt.name)
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%s is %q %v, want %s", tt.name, got, err, tt.want)
		}
	}
	var unknown *net.DNSError
	if _, err := r.LookupHost(t.Context(), "nobody.test"); !errors.As(err, &unknown) || !unknown.IsNotFound {
		t.Errorf("nobody: %v", err)
	}
}
