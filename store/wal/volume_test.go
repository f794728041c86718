//go:build !race

package wal

import (
	"testing"
	"time"
)

// TestACrashAtAnyStep: of writing, flushing, creating a WAL, copying, closing and opening. The test
// copies the file as it is, and also without unsynced writes. Every acknowledged transaction is
// there, and the one in progress entirely or not at all.
func TestACrashAtAnyStep(t *testing.T) {
	t.Run("nothing is kept", func(t *testing.T) { crashAtAnyStep(t, byHand) })
	t.Run("all is kept", func(t *testing.T) {
		o := byHand
		o.Keep = func() time.Time { return time.Time{} }
		crashAtAnyStep(t, o)
	})
}
