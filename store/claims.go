package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Claim finds an entry of the effect ledger. A worker calls it before every call of an effect:
// most commands have no claim, and need no look into the file.
func (d *DB) Claim(tenant, commandID string) (claim edda.Claim, found bool, err error) {
	command := recentOf(commandID)
	first := uint32(command.millis / format.HourMillis)
	if d.hours.recent.lacks(command) {
		return claim, false, d.hours.now.Load().readable(first)
	}
	key := format.Texts(tenant, commandID)
	err = d.read(format.Claim, func(b *wal.Bucket) error {
		ledger := d.hours.now.Load()
		for _, hour := range ledger.from(first) {
			claims := b.Bucket(format.HourKey(hour))
			if claims == nil {
				continue
			}
			value := claims.Get(key)
			if value == nil {
				continue
			}
			if value, err = d.seal.Open(format.Claim, key, value, 0); err != nil {
				return err
			}
			found = true
			claim, err = format.Decode[edda.Claim]("claim "+commandID, value)
			return err
		}
		return ledger.readable(first)
	})
	return claim, found && err == nil, err
}

// claimHours has the hours with claims and the latest claims. Each hour is a bucket.
//
// The committer adds an hour before its first claim is visible. So a reader that opens its snapshot
// before it loads the hours has all hours of the snapshot.
type claimHours struct {
	now    atomic.Pointer[hourSet]
	recent recentClaims
}

// hourSet is an immutable list of the hour buckets. Some may have been removed since.
type hourSet struct {
	hours   []uint32 // sorted
	strange []byte   // the last key that is no hour; may be nil
}

// from returns the hours at and after the first.
func (l *hourSet) from(first uint32) []uint32 {
	at, _ := slices.BinarySearch(l.hours, first)
	return l.hours[at:]
}

// readable returns an error if a later key is no hour.
func (l *hourSet) readable(first uint32) error {
	if l.strange == nil || bytes.Compare(l.strange, format.HourKey(first)) < 0 {
		return nil
	}
	return fmt.Errorf("%s: %x is no bucket of a day or an hour: %w", format.Claim, l.strange, format.ErrKey)
}

// add adds the claims of a transaction. The committer calls it before they are visible.
func (h *claimHours) add(s *staged) {
	for _, hour := range s.hours {
		l := *h.now.Load()
		if at, there := slices.BinarySearch(l.hours, hour); !there {
			l.hours = slices.Insert(slices.Clone(l.hours), at, hour)
			h.now.Store(&l)
		}
	}
	h.recent.add(s.claimed)
}

// begin reads the hours when the store opens. No claim is in an hour before its command's time,
// so the end of the last hour bounds the commands that may have claims.
func (h *claimHours) begin(tx *wal.Tx) error {
	err := h.load(tx)
	if err != nil {
		return err
	}
	if all := h.now.Load().hours; len(all) > 0 {
		h.recent.floor = (uint64(all[len(all)-1])+1)*format.HourMillis - 1
	}
	return nil
}

// load reads the hours. While the store is open only the committer may call it.
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

// maxGeneration bounds each of the two generations of claims. Both hold the claims of several
// seconds at full load, in less than a megabyte.
const maxGeneration = 16 << 10

// recentClaims is a two-generation set of the commands of the latest claims, each as a hash of
// its id. Two ids with one hash cost a lookup.
//
// A full newer generation replaces the older one. The set may have dropped commands at or before
// floor, and knows nothing of these. Of all others it has each that has a claim.
type recentClaims struct {
	mu           sync.Mutex // guards the fields below
	newer, older claimGeneration
	floor        uint64 // milliseconds
}

type claimGeneration struct {
	ids    map[uint64]struct{}
	latest uint64 // the time of the latest command, in milliseconds
}

// recentCommand is the hash of a command id, and the time in the id in milliseconds.
type recentCommand struct{ id, millis uint64 }

// recentSeed is random, because the set does not outlive the process.
var recentSeed = maphash.MakeSeed()

func recentOf(commandID string) recentCommand {
	return recentCommand{maphash.String(recentSeed, commandID), format.CommandMillis(commandID)}
}

// add adds the commands of claims. It is called before readers see the claims.
func (c *recentClaims) add(commands []recentCommand) {
	if len(commands) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, command := range commands {
		if command.millis <= c.floor {
			continue // lacks is false for it
		}
		if len(c.newer.ids) >= maxGeneration {
			c.floor = max(c.floor, c.older.latest)
			c.newer, c.older = claimGeneration{}, c.newer
		}
		set(&c.newer.ids, command.id, struct{}{})
		c.newer.latest = max(c.newer.latest, command.millis)
	}
}

// lacks reports that a command surely has no claim.
func (c *recentClaims) lacks(command recentCommand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if command.millis <= c.floor {
		return false
	}
	_, newer := c.newer.ids[command.id]
	_, older := c.older.ids[command.id]
	return !newer && !older
}
