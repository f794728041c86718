package store

import (
	"bytes"
	"fmt"
	"maps"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Queues counts parked and held events, and dead letters.
type Queues struct {
	Parked   int
	Held     int // with the poison events
	HeldKeys int
	Dead     map[string]int // by reason
	Cut      int            // of them, those without their payload
}

// queueCounts are the queues, and the bytes of each tenant's dead letters. No number in a map
// is zero.
type queueCounts struct {
	Queues
	Letters map[string]int
}

// Queues counts without a scan: every commit keeps the counts.
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

// add adds what a transaction changed.
func (q *queueCounts) add(other queueCounts) {
	q.Parked += other.Parked
	q.Held += other.Held
	q.HeldKeys += other.HeldKeys
	q.Cut += other.Cut
	for tenant, n := range other.Letters {
		raise(&q.Letters, tenant, n)
	}
	for reason, n := range other.Dead {
		raise(&q.Dead, reason, n)
	}
}

// raise adds n to m[k], and deletes it at zero.
func raise(m *map[string]int, k string, n int) {
	set(m, k, (*m)[k]+n)
	if (*m)[k] == 0 {
		delete(*m, k)
	}
}

// row counts a row of a queue n times; nil is none. The first event that is held for a key names
// a dead letter.
func (q *queueCounts) row(name format.Keyspace, value []byte, n int) error {
	if value == nil {
		return nil
	}
	switch name {
	case format.Parked:
		q.Parked += n
	case format.Held:
		e, err := format.Decode[format.EntryPart]("held event", value)
		if err != nil {
			return err
		}
		q.Held += n
		if e.DeadLetter != "" {
			q.HeldKeys += n
		}
	case format.DeadLetter:
		d, err := format.Decode[format.LetterPart]("dead letter", value)
		if err != nil {
			return err
		}
		raise(&q.Dead, d.Reason, n)
		raise(&q.Letters, d.Tenant(), n*len(value))
		if d.Cut > 0 {
			q.Cut += n
		}
	}
	return nil
}

// loadQueues counts the queues when the store opens.
func (x *index) loadQueues(tx *wal.Tx, s format.Seal) error {
	for _, name := range []format.Keyspace{format.Parked, format.Held, format.DeadLetter} {
		if err := tx.Bucket([]byte(name)).ForEach(func(k, v []byte) error {
			v, err := s.Open(name, k, v, 0)
			if err == nil {
				err = x.queues.row(name, v, 1)
			}
			if err == nil && name == format.Parked {
				var tenant string
				tenant, _, err = format.CutText(k)
				x.parked[tenant]++
			}
			if err != nil {
				return fmt.Errorf("%s %x: %w", name, k, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// WaitingKey is a key with events that are held or parked.
type WaitingKey struct {
	Key    edda.Key
	Events int
	First  edda.Entry // of held events, the poison one
}

// HeldKeys lists the keys that a poison event holds, in key order, after a key: at most limit and
// maxLimit. An empty saga selects all.
func (d *DB) HeldKeys(tenant, saga string, after edda.Key, limit int) ([]WaitingKey, error) {
	return d.waitingKeys(format.Held, tenant, saga, after, limit)
}

// ParkedKeys lists the keys for which events are parked, as [DB.HeldKeys] does.
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
