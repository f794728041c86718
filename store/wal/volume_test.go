//go:build !race

package wal

import (
	"testing"
	"time"
)

// TestACrashAtAnyStep of writing, flushing, beginning a WAL, copying, closing and opening
// again: the file is copied as it lies there, and also without what was not synced. Every
// transaction that was answered is there, and of the one under way all or nothing.
//
// Where all is kept, every transaction is found there again.
func TestACrashAtAnyStep(t *testing.T) {
	t.Run("nothing is kept", func(t *testing.T) { crashAtAnyStep(t, byHand) })
	t.Run("all is kept", func(t *testing.T) {
		o := byHand
		o.Keep = func() time.Time { return time.Time{} }
		crashAtAnyStep(t, o)
	})
}
