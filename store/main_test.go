package store

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain gives the property tests the same seed in every run; -rapid.seed on
// the command line gives another.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
