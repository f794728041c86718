package store

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"edda/store/wal"
)

// TestMain gives the property tests the same seed in every run; -rapid.seed changes it. Memory of
// committed changes is overwritten, so that a test which still reads it fails.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	wal.Poison = func(b []byte) {
		// The race detector sees one write a copy. It would see one a byte in a loop.
		for n := copy(b, "\xA5"); n > 0 && n < len(b); n *= 2 {
			copy(b[n:], b[:n])
		}
	}
	os.Exit(m.Run())
}
