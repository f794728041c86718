package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"edda/store/format"
	"edda/store/wal"
)

// claimHours are the hours in which claims were made: each has a bucket. A worker looks a
// command up before every call, and need not ask the file which buckets there are. Some may
// have been removed since.
//
// The committer adds an hour before its first claim is visible. So a reader that opens its
// snapshot first, and asks then, knows all hours of the snapshot.
type claimHours struct {
	now atomic.Pointer[hourSet]
	// latest is the time of the latest command of which there may be a claim, in
	// milliseconds: as its id says it, whenever the claim was made. Most commands are
	// looked up when they are later than all that have a claim, and need not be.
	latest atomic.Uint64
	// recent knows which of the commands that are not later than that have a claim.
	recent recentClaims
}

// hourSet are the buckets in the keyspace of the claims. It is never changed.
type hourSet struct {
	hours   []uint32 // sorted
	strange []byte   // the last key that is no hour; nil: all are
}

// from are the hours that are not before the first.
func (l *hourSet) from(first uint32) []uint32 {
	at, _ := slices.BinarySearch(l.hours, first)
	return l.hours[at:]
}

// readable tells whether what lies behind the first hour is all ours.
func (l *hourSet) readable(first uint32) error {
	if l.strange == nil || bytes.Compare(l.strange, format.HourKey(first)) < 0 {
		return nil
	}
	return fmt.Errorf("%s: %x is no bucket of a day or an hour: %w", format.Claim, l.strange, format.ErrKey)
}

// none tells that there is no claim of a command of that time, nor of any later one.
func (h *claimHours) none(millis uint64) bool { return millis > h.latest.Load() }

// add is for the committer alone, before what is staged can be seen.
func (h *claimHours) add(s *staged) {
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

// begin reads the hours when the store is opened. The latest command is not searched: no
// claim lies in an hour before its command's, so the end of the last hour bounds it.
func (h *claimHours) begin(tx *wal.Tx) error {
	err := h.load(tx)
	if err != nil {
		return err
	}
	if all := h.now.Load().hours; len(all) > 0 {
		h.recent.floor = (uint64(all[len(all)-1])+1)*format.HourMillis - 1
		h.latest.Store(h.recent.floor)
	}
	return nil
}

// load reads the hours. While the store is open it is for the committer alone.
func (h *claimHours) load(tx *wal.Tx) error {
	l := &hourSet{}
	err := tx.Bucket([]byte(format.Claim)).ForEach(func(k, v []byte) error {
		if v == nil && len(k) == format.PartSize {
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
