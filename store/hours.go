package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"edda/store/changelog"
)

// hours are those in which claims were made: of each there is a bucket. Whoever looks
// a command up, as a worker does before every call, does so in those that there are,
// without asking the file which. Some may be there no more.
//
// The committer adds an hour before its first claim can be seen, so that who has a
// snapshot first and asks then knows all hours that it has.
type hours struct {
	now atomic.Pointer[ledger]
}

// ledger is what lies in the keyspace of the claims. It is never changed.
type ledger struct {
	hours   []uint32 // sorted
	strange []byte   // the last key that is no hour; nil: all are
}

// from are the hours that are not before the first.
func (l *ledger) from(first uint32) []uint32 {
	at, _ := slices.BinarySearch(l.hours, first)
	return l.hours[at:]
}

// readable tells whether what lies behind the first hour is all ours.
func (l *ledger) readable(first uint32) error {
	if l.strange == nil || bytes.Compare(l.strange, hourKey(first)) < 0 {
		return nil
	}
	return fmt.Errorf("%s: %x is no bucket of a day or an hour: %w", bucketClaim, l.strange, errKey)
}

// add is for the committer alone.
func (h *hours) add(hour uint32) {
	l := *h.now.Load()
	if at, there := slices.BinarySearch(l.hours, hour); !there {
		l.hours = slices.Insert(slices.Clone(l.hours), at, hour)
		h.now.Store(&l)
	}
}

// load reads which there are. While the store is open it is for the committer alone.
func (h *hours) load(tx *changelog.Tx) error {
	l := &ledger{}
	err := tx.Bucket([]byte(bucketClaim)).ForEach(func(k, v []byte) error {
		if v == nil && len(k) == partSize {
			l.hours = append(l.hours, binary.BigEndian.Uint32(k))
		} else {
			l.strange = bytes.Clone(k)
		}
		return nil
	})
	if err == nil {
		h.now.Store(l)
	}
	return err
}
