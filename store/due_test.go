package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"edda/store/format"
)

func TestDueStartsAfterFiredRows(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	at := func(i int) Due { return Due{Time: noon.Add(time.Duration(i) * time.Second), Key: key("1")} }
	first := func(want Due) {
		t.Helper()
		got, _, err := db.Due(noon.Add(time.Hour), 1)
		same(t, "error", err, nil)
		same(t, "first", got, []Due{want})
		same(t, "front", db.dues.key, format.DueKey(want.Time, format.InstanceKey(want.Key)))
	}
	db.commit(t, Change{Arm: []Due{at(3), at(2), at(5)}})
	first(at(2))
	db.commit(t, Change{Disarm: []Due{at(2)}})
	first(at(3))
	db.commit(t, Change{Arm: []Due{at(4)}}) // behind the front
	first(at(3))
	db.commit(t, Change{Arm: []Due{at(6), at(1)}, Disarm: []Due{at(3)}})
	first(at(1))
	db.commit(t, Change{Disarm: []Due{at(1), at(4), at(5), at(6)}})
	rows, next, err := db.Due(noon.Add(time.Hour), 1)
	same(t, "none left", rows, []Due(nil))
	same(t, "next", next, time.Time{})
	same(t, "error", err, nil)
	db.commit(t, Change{Arm: []Due{at(0)}})
	first(at(0))
}

// A look has a snapshot without rows that are committed before it has found its first row.
func TestDueFindsARowCommittedDuringAScan(t *testing.T) {
	var f dueFront
	_, arms := f.look()
	f.armed([]byte("b"))
	f.found([]byte("c"), arms)
	from, arms := f.look()
	same(t, "where the next one begins", from, []byte(nil))
	f.found([]byte("b"), arms)
	_, late := f.look()
	f.armed([]byte("a"))
	f.found([]byte("b"), late)
	from, _ = f.look()
	same(t, "where the one after it begins", from, []byte("a"))
}

// Rows come at any time, before and behind those there are, while somebody else looks.
func TestDueFindsARowAfterItsCommit(t *testing.T) {
	db := open(t, t.TempDir(), Options{flushAt: 16 << 10})
	var over atomic.Bool
	looked := make(chan error)
	go func() {
		for !over.Load() {
			if _, _, err := db.Due(noon.Add(time.Hour), 3); err != nil {
				looked <- err
				return
			}
		}
		looked <- nil
	}()
	var last Due
	for i := range 500 {
		row := Due{Time: noon.Add(time.Duration(i*7919%1000) * time.Second), Key: key(fmt.Sprint(i))}
		db.commit(t, Change{Arm: []Due{row}, Disarm: []Due{last}})
		got, _, err := db.Due(noon.Add(time.Hour), 3)
		same(t, "error", err, nil)
		same(t, "rows", got, []Due{row})
		last = row
	}
	over.Store(true)
	same(t, "the other", <-looked, error(nil))
}
