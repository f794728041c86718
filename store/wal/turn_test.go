package wal

import (
	"os"
	"strings"
	"testing"
)

// TestReadersDoNotWaitForASwitchOfTheWAL, though a file that one transaction made large is
// made short then, which takes its time.
func TestReadersDoNotWaitForASwitchOfTheWAL(t *testing.T) {
	turned := 0
	var db *DB
	db, set := testDB(t, Options{Bound: 2 << 10, passed: func(point string) {
		if point != "logTurned" {
			return
		}
		turned++
		if !db.switching.TryLock() {
			t.Error("who begins or ends reading waits for it")
			return
		}
		db.switching.Unlock()
	}})
	path := db.path
	set(1, strings.Repeat("x", keptBytes+1)) // rotates its memtable, and the WAL turns
	flush := func() {
		t.Helper()
		if more, err := db.flushChunk(); more || err != nil {
			t.Fatal(more, err)
		}
	}
	flush()
	set(2, strings.Repeat("y", 2<<10))
	flush()
	db.writer.Lock()
	db.rotateNow() // nothing is in the active memtable
	db.writer.Unlock()
	set(3, "z")
	db.writer.Lock()
	db.rotateNow()
	db.writer.Unlock()
	if turned != 3 {
		t.Errorf("the log turned %d times", turned)
	}
	for slot := range 2 {
		if info, err := os.Stat(walPath(path, slot)); err != nil || info.Size() > keptBytes {
			t.Errorf("file %d: %v, %v", slot, info, err)
		}
	}
}
