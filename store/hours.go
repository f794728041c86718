package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"edda/store/wal"
)

// hours are those in which claims were made: of each there is a bucket. Whoever looks
// a command up, as a worker does before every call, does so in those that there are,
// without asking the file which. Some may be there no more.
//
// The committer adds an hour before its first claim can be seen, so that who has a
// snapshot first and asks then knows all hours that it has.
type hours struct {
	now atomic.Pointer[ledger]
	// latest is the time of the latest command of which there may be a claim, in
	// milliseconds: as its id says it, whenever the claim was made. Most commands are
	// looked up when they are later than all that have a claim, and need not be.
	latest atomic.Uint64
	// recent knows which of the commands that are not later than that have a claim.
	recent recent
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

// none tells that there is no claim of a command of that time, nor of any later one.
func (h *hours) none(millis uint64) bool { return millis > h.latest.Load() }

// add is for the committer alone, before what is staged can be seen.
func (h *hours) add(s *staged) {
	for _, hour := range s.hours {
		l := *h.now.Load()
		if at, there := slices.BinarySearch(l.hours, hour); !there {
			l.hours = slices.Insert(slices.Clone(l.hours), at, hour)
			h.now.Store(&l)
		}
	}
	latest := h.latest.Load()
	for _, c := range s.claimed {
		latest = max(latest, c.millis)
	}
	h.recent.add(s.claimed)
	h.latest.Store(latest)
}

// begin reads which there are when the store is opened. Their last command is not looked
// for: it is as late as the last hour allows, since no claim lies in an hour before its
// command's.
func (h *hours) begin(tx *wal.Tx) error {
	err := h.load(tx)
	if err != nil {
		return err
	}
	if all := h.now.Load().hours; len(all) > 0 {
		h.recent.floor = (uint64(all[len(all)-1])+1)*hourMillis - 1
		h.latest.Store(h.recent.floor)
	}
	return nil
}

// load reads which there are. While the store is open it is for the committer alone.
func (h *hours) load(tx *wal.Tx) error {
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
