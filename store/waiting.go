package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"time"

	bolt "go.etcd.io/bbolt"

	"edda"
)

// Queues says how much lies aside: parked and held events, dead letters.
type Queues struct {
	Parked   int
	Held     int // the poison events included
	HeldKeys int
	Dead     map[string]int // by reason
}

// Queues is kept up to date by every commit; it costs no scan.
func (d *DB) Queues() Queues {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	q := d.index.queues
	q.Dead = maps.Clone(q.Dead)
	return q
}

// add is what a transaction changed, or the sum of all.
func (q *Queues) add(other Queues) {
	q.Parked += other.Parked
	q.Held += other.Held
	q.HeldKeys += other.HeldKeys
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

// entry counts one row of a queue. The head of what is held names its dead
// letter: there is one for each key.
func (q *Queues) entry(name keyspace, value []byte, n int) error {
	if value == nil {
		return nil
	}
	if name == bucketParked {
		q.Parked += n
		return nil
	}
	e, err := decode[struct {
		DeadLetter string `json:"dead_letter"`
	}]("held event", value)
	if err != nil {
		return err
	}
	q.Held += n
	if e.DeadLetter != "" {
		q.HeldKeys += n
	}
	return nil
}

func (q *Queues) letter(value []byte, n int) error {
	if value == nil {
		return nil
	}
	d, err := decode[struct {
		Reason string `json:"reason"`
	}]("dead letter", value)
	if err == nil {
		q.dead(d.Reason, n)
	}
	return err
}

// countEntry counts a row of a queue that is put, replaced or deleted.
func (w *writer) countEntry(r row) error {
	if r.bucket != bucketParked && r.bucket != bucketHeld {
		return nil
	}
	was, err := w.seal.open(r.bucket, r.key, w.buckets[r.bucket].Get(r.key), 0)
	if err != nil {
		return err
	}
	if err := w.staged.queues.entry(r.bucket, was, -1); err != nil {
		return err
	}
	return w.staged.queues.entry(r.bucket, r.value, 1)
}

// loadQueues counts what is there when the store opens.
func loadQueues(tx *bolt.Tx, s seal) (q Queues, err error) {
	for _, name := range []keyspace{bucketParked, bucketHeld, bucketDead} {
		if err := tx.Bucket([]byte(name)).ForEach(func(k, v []byte) error {
			v, err := s.open(name, k, v, 0)
			switch {
			case err != nil:
				return err
			case name == bucketDead:
				return q.letter(v, 1)
			}
			return q.entry(name, v, 1)
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
	return d.waitingKeys(bucketHeld, tenant, saga, after, limit)
}

// ParkedKeys lists keys for which events are parked, likewise.
func (d *DB) ParkedKeys(tenant, saga string, after edda.Key, limit int) ([]WaitingKey, error) {
	return d.waitingKeys(bucketParked, tenant, saga, after, limit)
}

func (d *DB) waitingKeys(name keyspace, tenant, saga string, from edda.Key, limit int) (out []WaitingKey, err error) {
	prefix := texts(tenant)
	if saga != "" {
		prefix = texts(tenant, saga)
	}
	start := prefix
	if from != (edda.Key{}) {
		start = after(instanceKey(from))
	}
	err = d.read(name, func(b *bolt.Bucket) error {
		c := b.Cursor()
		for k, v := c.Seek(start); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			key, rest, err := cutKey(k)
			if err != nil || len(rest) != 8 {
				return fmt.Errorf("%s event: %w", name, errKey)
			}
			if n := len(out); n > 0 && out[n-1].Key == key {
				out[n-1].Events++
				continue
			}
			if len(out) == min(limit, maxLimit) {
				return nil
			}
			if v, err = d.seal.open(name, k, v, 0); err != nil {
				return err
			}
			entry, err := decode[edda.Entry](string(name)+" event", v)
			if err != nil {
				return err
			}
			out = append(out, WaitingKey{Key: key, Events: 1, First: entry})
		}
		return nil
	})
	return out, err
}

// AuditQuery selects operators' acts of one tenant; of none those on the whole
// process.
type AuditQuery struct {
	Tenant string
	Since  time.Time // zero: all
	Limit  int
}

// maxAudits bounds the acts of other tenants that one look passes over.
const maxAudits = 100_000

// AuditsOf lists a tenant's acts, newest first, and tells whether there are more.
func (d *DB) AuditsOf(q AuditQuery) (out []Audit, more bool, err error) {
	err = d.read(bucketAudit, func(b *bolt.Bucket) error {
		c := b.Cursor()
		seen := 0
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			if v, err = d.seal.open(bucketAudit, k, v, 0); err != nil {
				return err
			}
			a, err := decode[Audit]("audit", v)
			if err != nil {
				return fmt.Errorf("commit %d: %w", binary.BigEndian.Uint64(k), err)
			}
			if seen++; a.Key.Tenant != q.Tenant || a.Time.Before(q.Since) {
				if seen > maxAudits {
					return nil
				}
				continue
			}
			if len(out) == q.Limit {
				more = true
				return nil
			}
			out = append(out, a)
		}
		return nil
	})
	return out, more, err
}
