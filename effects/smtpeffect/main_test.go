package smtpeffect

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain gives the property tests the same seed in every run, and many cheap
// checks; -rapid.seed and -rapid.checks on the command line give others.
func TestMain(m *testing.M) {
	if err := errors.Join(flag.Set("rapid.seed", "1"), flag.Set("rapid.checks", "1000")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
