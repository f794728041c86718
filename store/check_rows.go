package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/wal"
)

// This file checks the keyspaces that are not about instances: mostly that a
// row's key is the one that its value gives.

var errOther = errors.New("its key is not that of its value")

// spaces looks for unknown buckets.
func (c *checker) spaces() error {
	return c.tx.ForEach(func(k []byte, _ *wal.Bucket) error {
		if !slices.Contains(keyspaces, keyspace(k)) {
			c.wrong("there is no keyspace %q", k)
		}
		return nil
	})
}

func (c *checker) meta() error {
	b := c.bucket(bucketMeta)
	if version, err := strconv.Atoi(string(b.Get(metaFormat))); err != nil || version < 1 || version > formatVersion {
		c.wrong("meta: format %q", b.Get(metaFormat))
	}
	if _, err := ulid.ParseStrict(string(b.Get(metaID))); err != nil {
		c.wrong("meta: id %q: %w", b.Get(metaID), err)
	}
	if _, err := time.Parse(time.RFC3339Nano, string(b.Get(metaCreated))); err != nil {
		c.wrong("meta: created: %w", err)
	}
	for name, size := range map[string]int{string(metaCommit): stampSize, string(metaDropped): pointerSize, string(metaRetention): 8} {
		if row := b.Get([]byte(name)); row != nil && len(row) != size || row == nil && name == string(metaCommit) {
			c.wrong("meta: %s has %d bytes", name, len(row))
		}
	}
	if c.dropped.Commit > c.last.Commit {
		c.wrong("meta: history was dropped up to commit %d, but the last is %d", c.dropped.Commit, c.last.Commit)
	}
	return nil
}

// outbox is in commit order, and a command waits once.
func (c *checker) outbox() error {
	var before uint64
	return c.space(bucketOutbox, func(k, v []byte) error {
		row, err := cutRow(k, v)
		if err != nil {
			return err
		}
		commit := commitOf(row.ID)
		if commit < before || commit == 0 || commit > c.last.Commit || row.ID.Time() > c.last.Clock {
			c.wrong("outbox row %s: it is of commit %d, the one before of %d, the last is %d", row.ID, commit, before, c.last.Commit)
		}
		before = commit
		c.working[row.Work.From] = true
		if row.Work.Kind != edda.WorkEffect {
			return nil
		}
		if _, twice := c.commands[row.Work.ID]; twice {
			c.wrong("outbox: effect command %s waits twice", row.Work.ID)
		}
		c.commands[row.Work.ID] = row.Work.From
		return nil
	})
}

// commitOf is the commit that wrote an outbox row.
func commitOf(id ulid.ULID) uint64 {
	var b [8]byte
	copy(b[2:], id[6:12])
	return binary.BigEndian.Uint64(b[:])
}

// states counts the parts of states.
func (c *checker) states() error {
	return c.space(bucketPart, func(k, v []byte) error {
		key, _, err := cutPart(k)
		if err == nil && !json.Valid(v) {
			err = errRow
		}
		c.parts[key]++
		return err
	})
}

// orphans looks for parts of states that no instance has.
func (c *checker) orphans() error {
	for key, n := range c.parts {
		c.wrong("there are %d parts of the state of %s, and no such instance", n, key)
	}
	return nil
}

func (c *checker) due() error {
	return c.space(bucketDue, func(k, v []byte) error {
		due, err := cutDue(k)
		if err == nil && (len(v) > 0 || !bytes.Equal(k, dueKey(due.Time, instanceKey(due.Key)))) {
			err = errKey
		}
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
	return c.space(bucketDead, func(k, v []byte) error {
		d, err := decode[edda.DeadLetter]("dead letter", v)
		if err != nil {
			return err
		}
		if !bytes.Equal(k, deadKey(d.Time, d.ID)) {
			return errOther
		}
		if key, ok := findDead(c.tx, d.ID); !ok || !bytes.Equal(key, k) {
			c.wrong("dead letter %s cannot be found by its id", d.ID)
		}
		return nil
	})
}

func (c *checker) letterIDs() error {
	return c.space(bucketDeadID, func(k, v []byte) error {
		if len(v) != timeSize+8 {
			return errRow
		}
		if c.bucket(bucketDead).Get(append(bytes.Clone(v[:timeSize]), k...)) == nil {
			return errors.New("names no dead letter")
		}
		if binary.BigEndian.Uint64(v[timeSize:]) > c.last.Clock {
			return errors.New("was written after the last commit")
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
			switch {
			case err != nil:
				return err
			case claimHour(claim.Claimed, recentOf(claim.CommandID)) != binary.BigEndian.Uint32(hour):
				c.wrong("claim %s is in the wrong hour", claim.CommandID)
			case !bytes.Equal(k, texts(claim.Tenant, claim.CommandID)):
				return errOther
			}
			return nil
		})
	})
}

// history finds the rows that no chain leads to.
func (c *checker) history() error {
	rows := 0
	var before pointer
	err := c.space(bucketHistory, func(day, _ []byte) error {
		return c.within(bucketHistory, day, "history", func(k, v []byte) error {
			if len(k) != pointerSize-4 {
				return errKey
			}
			rows++
			at := cutPointer(append(bytes.Clone(day), k...))
			v, err := c.seal.record(at, v)
			if err != nil {
				return err
			}
			c.record(at, before, v)
			before = at
			_, _, err = cutRecord(at, v)
			return err
		})
	})
	if err == nil && rows != c.linked {
		c.wrong("history has %d rows, but the chains of the instances lead to %d", rows, c.linked)
	}
	return err
}

func (c *checker) record(at, before pointer, v []byte) {
	switch {
	case at.Commit > c.last.Commit:
		c.wrong("history: commit %d, but the last is %d", at.Commit, c.last.Commit)
	case at.before(c.dropped):
		c.wrong("history: commit %d, %d is before what was dropped", at.Commit, at.N)
	case at.Commit < before.Commit:
		c.wrong("history: commit %d of day %d comes after commit %d", at.Commit, at.Day, before.Commit)
	}
	if r, _, err := cutRecord(at, v); err == nil && (r.Fate == "" || r.Fate == edda.FateIgnored) {
		c.wrong("history of %s: commit %d, %d has the fate %q, which is not kept", r.Key, at.Commit, at.N, r.Fate)
	}
}

// small reads the keyspaces that stand for themselves.
func (c *checker) small() error {
	for name, keyOf := range map[keyspace]func(k, v []byte) ([]byte, error){
		bucketCheckpoint: func(_, v []byte) ([]byte, error) {
			cp, err := decode[edda.Checkpoint]("row", v)
			return texts(cp.Stream), err
		},
		bucketPosition: func(k, v []byte) ([]byte, error) {
			p, err := cutPosition(k, v)
			return texts(p.Tenant, p.Saga, p.Stream), err
		},
		bucketManifest: func(_, v []byte) ([]byte, error) {
			m, err := decode[edda.Manifest]("row", v)
			return manifestKey(m), err
		},
		bucketReplay: func(_, v []byte) ([]byte, error) {
			r, err := decode[Replay]("row", v)
			return texts(r.ID), err
		},
		bucketSchedule: func(_, v []byte) ([]byte, error) {
			s, err := decode[edda.Schedule]("row", v)
			return texts(s.Tenant, s.Saga, s.Name), err
		},
	} {
		err := c.space(name, func(k, v []byte) error {
			key, err := keyOf(k, v)
			if err == nil && !bytes.Equal(k, key) {
				err = errOther
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) audits() error {
	return c.space(bucketAudit, func(k, v []byte) error {
		if len(k) != pointerSize-4 {
			return errKey
		}
		if commit := binary.BigEndian.Uint64(k); commit > c.last.Commit {
			return fmt.Errorf("commit %d, but the last is %d", commit, c.last.Commit)
		}
		_, err := decode[Audit]("row", v)
		return err
	})
}
