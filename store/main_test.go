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
		for i := range b {
			b[i] = 0xA5
		}
	}
	os.Exit(m.Run())
}
