package store

import (
	"bytes"
	"fmt"
	"maps"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Queues says how much lies aside: parked and held events, dead letters.
type Queues struct {
	Parked   int
	Held     int // the poison events included
	HeldKeys int
	Dead     map[string]int // by reason
	Cut      int            // of them, those without their payload
}

// aside is that, and how many bytes of dead letters each tenant has; none is zero.
type aside struct {
	Queues
	Letters map[string]int
}

// Queues is kept up to date by every commit; it costs no scan.
func (d *DB) Queues() Queues {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	q := d.index.queues.Queues
	q.Dead = maps.Clone(q.Dead)
	return q
}

// DeadBytes is how many bytes the dead letters of all tenants have.
func (d *DB) DeadBytes() (n int) {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	for _, of := range d.index.queues.Letters {
		n += of
	}
	return n
}

// add is what a transaction changed, or the sum of all.
func (q *aside) add(other aside) {
	q.Parked += other.Parked
	q.Held += other.Held
	q.HeldKeys += other.HeldKeys
	q.Cut += other.Cut
	for tenant, n := range other.Letters {
		q.grow(tenant, n)
	}
	for reason, n := range other.Dead {
		q.dead(reason, n)
	}
}

func (q *Queues) dead(reason string, n int) {
	if q.Dead == nil {
		q.Dead = map[string]int{}
	}
	if q.Dead[reason] += n; q.Dead[reason] == 0 {
		delete(q.Dead, reason)
	}
}

// grow counts bytes of a tenant's dead letters.
func (q *aside) grow(tenant string, bytes int) {
	if q.Letters == nil {
		q.Letters = map[string]int{}
	}
	if q.Letters[tenant] += bytes; q.Letters[tenant] == 0 {
		delete(q.Letters, tenant)
	}
}

// entry counts one row of a queue. The head of what is held names its dead
// letter: there is one for each key.
func (q *Queues) entry(name format.Keyspace, value []byte, n int) error {
	if value == nil {
		return nil
	}
	if name == format.Parked {
		q.Parked += n
		return nil
	}
	e, err := format.Decode[format.EntryPart]("held event", value)
	if err != nil {
		return err
	}
	q.Held += n
	if e.DeadLetter != "" {
		q.HeldKeys += n
	}
	return nil
}

func (q *aside) letter(value []byte, n int) error {
	if value == nil {
		return nil
	}
	d, err := format.Decode[format.LetterPart]("dead letter", value)
	if err != nil {
		return err
	}
	q.dead(d.Reason, n)
	q.grow(d.Tenant(), n*len(value))
	if d.Cut > 0 {
		q.Cut += n
	}
	return nil
}

// countEntry counts a row of a queue that is put, replaced or deleted.
func (w *writer) countEntry(r row) error {
	if r.bucket != format.Parked && r.bucket != format.Held {
		return nil
	}
	was, err := w.seal.Open(r.bucket, r.key, w.bucket(r.bucket).Get(r.key), 0)
	if err != nil {
		return err
	}
	if err := w.staged.queues.entry(r.bucket, was, -1); err != nil {
		return err
	}
	return w.staged.queues.entry(r.bucket, r.value, 1)
}

// loadQueues counts what is there when the store opens.
func loadQueues(tx *wal.Tx, s format.Seal) (q aside, err error) {
	for _, name := range []format.Keyspace{format.Parked, format.Held, format.DeadLetter} {
		if err := tx.Bucket([]byte(name)).ForEach(func(k, v []byte) error {
			v, err := s.Open(name, k, v, 0)
			switch {
			case err != nil:
			case name == format.DeadLetter:
				err = q.letter(v, 1)
			default:
				err = q.entry(name, v, 1)
			}
			if err != nil {
				return fmt.Errorf("%s %x: %w", name, k, err)
			}
			return nil
		}); err != nil {
			return q, err
		}
	}
	return q, nil
}

// WaitingKey is one key with events that are held or parked.
type WaitingKey struct {
	Key    edda.Key
	Events int
	First  edda.Entry // of held events the poison one
}

// HeldKeys lists keys that a poison event holds, in key order, after one; saga
// may be empty. It looks at no more than maxLimit keys.
func (d *DB) HeldKeys(tenant, saga string, after edda.Key, limit int) ([]WaitingKey, error) {
	return d.waitingKeys(format.Held, tenant, saga, after, limit)
}

// ParkedKeys lists keys for which events are parked, likewise.
func (d *DB) ParkedKeys(tenant, saga string, after edda.Key, limit int) ([]WaitingKey, error) {
	return d.waitingKeys(format.Parked, tenant, saga, after, limit)
}

func (d *DB) waitingKeys(name format.Keyspace, tenant, saga string, from edda.Key, limit int) (out []WaitingKey, err error) {
	prefix := format.Texts(tenant)
	if saga != "" {
		prefix = format.Texts(tenant, saga)
	}
	start := prefix
	if from != (edda.Key{}) {
		start = format.PrefixEnd(format.InstanceKey(from))
	}
	err = d.read(name, func(b *wal.Bucket) error {
		c := b.Cursor()
		for k, v := c.Seek(start); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			key, _, err := format.CutEntryKey(k)
			if err != nil {
				return fmt.Errorf("%s event %x: %w", name, k, err)
			}
			if n := len(out); n > 0 && out[n-1].Key == key {
				out[n-1].Events++
				continue
			}
			if len(out) == min(limit, maxLimit) {
				return nil
			}
			if v, err = d.seal.Open(name, k, v, 0); err != nil {
				return err
			}
			entry, err := format.Decode[edda.Entry](string(name)+" event", v)
			if err != nil {
				return err
			}
			out = append(out, WaitingKey{Key: key, Events: 1, First: entry})
		}
		return nil
	})
	return out, err
}
