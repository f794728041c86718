package harness

import (
	"net"
	"testing"
)

// TestAFreePortIsReserved: a server can listen on it, and no other call returns it.
func TestAFreePortIsReserved(t *testing.T) {
	seen := map[string]bool{}
	for range 500 { // two of them would be the same, were they random only
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %s was returned twice", port)
		}
		seen[port] = true
	}
	for port := range seen {
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
