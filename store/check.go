package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	bolt "go.etcd.io/bbolt"

	"edda"
)

// maxFindings ends a check of a store that is wrong all over.
const maxFindings = 100

// checker looks at one snapshot. What it is told to expect by one keyspace it
// finds in another.
type checker struct {
	ctx    context.Context
	tx     *bolt.Tx
	seal   seal
	found  []error
	counts map[countKey]int
	oldest uint32 // day
}

// Check reads the whole store and reports what contradicts itself: rows that do
// not decode, counters and indexes that do not match the rows, broken chains of
// history. It reads one snapshot, beside the committer.
func (d *DB) Check(ctx context.Context) []error {
	tx, err := d.bolt.Begin(false)
	if err != nil {
		return []error{fmt.Errorf("open a snapshot: %w", err)}
	}
	defer func() { _ = tx.Rollback() }()
	c := &checker{ctx: ctx, tx: tx, seal: d.seal, counts: map[countKey]int{}}
	for _, step := range []func() error{
		c.pages, c.instances, c.counters, c.outbox, c.due, c.queues, c.letters, c.claims, c.history, c.small,
	} {
		if err := step(); err != nil {
			return append(c.found, err)
		}
	}
	return c.found
}

func (c *checker) wrong(format string, args ...any) {
	c.found = append(c.found, fmt.Errorf(format, args...))
}

var errEnough = errors.New("and more")

// each calls fn with every row of a bucket; a row that fn cannot read is a finding.
func (c *checker) each(b *bolt.Bucket, what string, fn func(k, v []byte) error) error {
	return b.ForEach(func(k, v []byte) error {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		if len(c.found) > maxFindings {
			return errEnough
		}
		if err := fn(k, v); err != nil {
			c.wrong("%s %x: %w", what, k, err)
		}
		return nil
	})
}

func (c *checker) bucket(name keyspace) *bolt.Bucket { return c.tx.Bucket([]byte(name)) }

func (c *checker) space(name keyspace, fn func(k, v []byte) error) error {
	return c.each(c.bucket(name), string(name), func(k, v []byte) error {
		if name != bucketSaga { // which has a head
			opened, err := c.seal.open(name, k, v, 0)
			if err != nil {
				return err
			}
			v = opened
		}
		return fn(k, v)
	})
}

// within reads the bucket of an hour or a day.
func (c *checker) within(name keyspace, part []byte, what string, fn func(k, v []byte) error) error {
	b := c.bucket(name).Bucket(part)
	if b == nil || len(part) != partSize {
		return errKey
	}
	return c.each(b, what, fn)
}

// pages checks the file below its rows.
func (c *checker) pages() error {
	for err := range c.tx.Check() {
		c.wrong("file: %w", err)
	}
	return nil
}

func (c *checker) instances() error {
	if k, _ := c.bucket(bucketHistory).Cursor().First(); len(k) == partSize {
		c.oldest = binary.BigEndian.Uint32(k)
	}
	return c.space(bucketSaga, func(k, v []byte) error {
		key, rest, err := cutKey(k)
		if err != nil || len(rest) > 0 {
			return errKey
		}
		h, _, err := cutHead(v)
		if err != nil {
			return err
		}
		c.chain(key, h.Last)
		if v, err = c.seal.instance(k, v); err != nil {
			return err
		}
		in, err := cutInstance(key, v)
		if err != nil || in == nil {
			return err
		}
		c.counts[countKey{key.Tenant, key.Saga, h.Version, h.Status}]++
		c.instance(k, h, in)
		return nil
	})
}

func (c *checker) instance(k []byte, h head, in *edda.Instance) {
	if h.Version != in.Version || h.Status != in.Status {
		c.wrong("instance %s: its head says version %d, %s", in.Key, h.Version, h.Status)
	}
	if !in.Armed.IsZero() && c.bucket(bucketDue).Get(dueKey(in.Armed, k)) == nil {
		c.wrong("instance %s: no due row at %s", in.Key, in.Armed)
	}
	if held := c.any(bucketHeld, k); held != (in.Held != "") {
		c.wrong("instance %s: held by %q, and held events: %t", in.Key, in.Held, held)
	}
	if c.any(bucketParked, k) {
		c.wrong("instance %s: events are parked beside it", in.Key)
	}
}

// any tells whether a key's queue holds something.
func (c *checker) any(name keyspace, key []byte) bool {
	k, _ := c.bucket(name).Cursor().Seek(key)
	return bytes.HasPrefix(k, key)
}

// chain follows a key's history to its end, or to where days were dropped.
func (c *checker) chain(key edda.Key, at pointer) {
	for at != (pointer{}) && at.Day >= c.oldest {
		row := historyRow(c.tx, at)
		if row == nil {
			c.wrong("history of %s: no row at commit %d, %d", key, at.Commit, at.N)
			return
		}
		row, err := c.seal.record(at, row)
		if err != nil {
			c.wrong("history of %s: commit %d, %d: %w", key, at.Commit, at.N, err)
			return
		}
		r, before, err := cutRecord(at, row)
		if err != nil || r.Key != key {
			c.wrong("history of %s: commit %d, %d is of %s: %w", key, at.Commit, at.N, r.Key, err)
			return
		}
		if bytes.Compare(before.append(nil), at.append(nil)) >= 0 {
			c.wrong("history of %s: commit %d, %d points forward", key, at.Commit, at.N)
			return
		}
		at = before
	}
}

func (c *checker) counters() error {
	stored, err := loadCounts(c.tx)
	if err == nil && !maps.Equal(stored, c.counts) {
		c.wrong("counters are %v, instances are %v", stored, c.counts)
	}
	return err
}

func (c *checker) outbox() error {
	commands := map[string]bool{}
	return c.space(bucketOutbox, func(k, v []byte) error {
		row, err := cutRow(k, v)
		if err == nil && row.Work.Kind == edda.WorkEffect && commands[row.Work.ID] {
			c.wrong("outbox: effect command %s waits twice", row.Work.ID)
		}
		commands[row.Work.ID] = true
		return err
	})
}

func (c *checker) due() error {
	return c.space(bucketDue, func(k, _ []byte) error {
		_, err := cutDue(k)
		return err
	})
}

func (c *checker) queues() error {
	for _, name := range []keyspace{bucketParked, bucketHeld} {
		err := c.space(name, func(k, v []byte) error {
			key, rest, err := cutKey(k)
			if err != nil || len(rest) != 8 {
				return errKey
			}
			entry, err := decode[edda.Entry](string(name), v)
			if err == nil && entry.N != binary.BigEndian.Uint64(rest) {
				c.wrong("%s events of %s: number %d under another", name, key, entry.N)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) letters() error {
	err := c.space(bucketDead, func(k, v []byte) error {
		d, err := decode[edda.DeadLetter]("dead letter", v)
		if key, ok := findDead(c.tx, d.ID); err == nil && (!ok || !bytes.Equal(key, k)) {
			c.wrong("dead letter %s cannot be found by its id", d.ID)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.space(bucketDeadID, func(k, v []byte) error {
		if c.bucket(bucketDead).Get(append(bytes.Clone(v), k...)) == nil {
			return errors.New("names no dead letter")
		}
		return nil
	})
}

func (c *checker) claims() error {
	return c.space(bucketClaim, func(hour, _ []byte) error {
		return c.within(bucketClaim, hour, "claim", func(k, v []byte) error {
			v, err := c.seal.open(bucketClaim, k, v, 0)
			if err != nil {
				return err
			}
			claim, err := decode[edda.Claim]("claim", v)
			if err == nil && claimHour(claim) != binary.BigEndian.Uint32(hour) {
				c.wrong("claim %s is in the wrong hour", claim.CommandID)
			}
			return err
		})
	})
}

// history finds the rows that no chain leads to.
func (c *checker) history() error {
	last := stampOf(c.tx)
	return c.space(bucketHistory, func(day, _ []byte) error {
		return c.within(bucketHistory, day, "history", func(k, v []byte) error {
			if len(day)+len(k) != pointerSize {
				return errKey
			}
			at := cutPointer(append(bytes.Clone(day), k...))
			v, err := c.seal.record(at, v)
			if err != nil {
				return err
			}
			r, _, err := cutRecord(at, v)
			if err == nil && at.Commit > last.Commit {
				c.wrong("history of %s: commit %d, but the last is %d", r.Key, at.Commit, last.Commit)
			}
			return err
		})
	})
}

// small reads the keyspaces that stand for themselves.
func (c *checker) small() error {
	for name, read := range map[keyspace]func(k, v []byte) error{
		bucketCheckpoint: func(_, v []byte) error { _, err := decode[edda.Checkpoint]("row", v); return err },
		bucketPosition:   func(k, v []byte) error { _, err := cutPosition(k, v); return err },
		bucketManifest:   func(_, v []byte) error { _, err := decode[edda.Manifest]("row", v); return err },
		bucketSchedule:   func(_, v []byte) error { _, err := decode[edda.Schedule]("row", v); return err },
		bucketAudit:      func(_, v []byte) error { _, err := decode[Audit]("row", v); return err },
	} {
		if err := c.space(name, read); err != nil {
			return err
		}
	}
	return nil
}
