package wire

import (
	"testing"
)

func TestTenantsOverlap(t *testing.T) {
	tests := []struct {
		p, q string
		want bool
	}{
		{"acme", "acme", true}, {"acme", "beta", false}, {"a*", "acme", true}, {"acme", "a*", true},
		{"a*", "b*", false}, {"a*", "ab*", true}, {"*a", "*b", false}, {"a*x", "ab*", true}, {"*", "b", true},
	}
	for _, test := range tests {
		if got := (Tenants{test.p}).Overlap(Tenants{test.q}); got != test.want {
			t.Errorf("%s and %s: %v", test.p, test.q, got)
		}
	}
}
