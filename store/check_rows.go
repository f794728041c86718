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
	"edda/store/format"
	"edda/store/wal"
)

// These check the keyspaces without instances: mostly that the key of a row matches its value.

var errOther = errors.New("its key is not that of its value")

// spaces finds unknown buckets.
func (c *checker) spaces() error {
	return c.tx.ForEach(func(k []byte, _ *wal.Bucket) error {
		if !slices.Contains(format.Keyspaces, format.Keyspace(k)) {
			c.wrong("there is no keyspace %q", k)
		}
		return nil
	})
}

func (c *checker) meta() error {
	b := c.bucket(format.Meta)
	if version, err := strconv.Atoi(string(b.Get(format.MetaFormat))); err != nil || version < 1 || version > format.Version {
		c.wrong("meta: format %q", b.Get(format.MetaFormat))
	}
	if _, err := ulid.ParseStrict(string(b.Get(format.MetaID))); err != nil {
		c.wrong("meta: id %q: %w", b.Get(format.MetaID), err)
	}
	if _, err := time.Parse(time.RFC3339Nano, string(b.Get(format.MetaCreated))); err != nil {
		c.wrong("meta: created: %w", err)
	}
	if _, err := shareOf(b); err != nil {
		c.wrong("%w", err)
	}
	for name, size := range map[string]int{string(format.MetaCommit): format.StampSize, string(format.MetaDropped): format.PointerSize, string(format.MetaRetention): 8} {
		if row := b.Get([]byte(name)); row != nil && len(row) != size || row == nil && name == string(format.MetaCommit) {
			c.wrong("meta: %s has %d bytes", name, len(row))
		}
	}
	if c.dropped.Commit > c.last.Commit {
		c.wrong("meta: history was dropped up to commit %d, but the last is %d", c.dropped.Commit, c.last.Commit)
	}
	return nil
}

// outbox checks that rows are in commit order, and that a command waits once.
func (c *checker) outbox() error {
	var before uint64
	return c.space(format.Outbox, func(k, v []byte) error {
		id, work, err := format.CutWork(k, v)
		if err != nil {
			return err
		}
		commit := format.CommitOf(id)
		if commit < before || commit == 0 || commit > c.last.Commit || id.Time() > c.last.Clock {
			c.wrong("outbox row %s: it is of commit %d, the one before of %d, the last is %d", id, commit, before, c.last.Commit)
		}
		before = commit
		c.working[work.From] = true
		if work.Kind != edda.WorkEffect {
			return nil
		}
		if c.commands[work.ID] {
			c.wrong("outbox: effect command %s waits twice", work.ID)
		}
		c.commands[work.ID] = true
		return nil
	})
}

// states counts the parts of states.
func (c *checker) states() error {
	return c.space(format.Part, func(k, v []byte) error {
		key, _, err := format.CutEntryKey(k)
		if err == nil && !json.Valid(v) {
			err = format.ErrRow
		}
		c.parts[key]++
		return err
	})
}

// orphans finds parts of states without an instance.
func (c *checker) orphans() error {
	for key, n := range c.parts {
		c.wrong("there are %d parts of the state of %s, and no such instance", n, key)
	}
	return nil
}

func (c *checker) due() error {
	return c.space(format.Due, func(k, v []byte) error {
		at, key, err := format.CutDue(k)
		if err == nil && (len(v) > 0 || !bytes.Equal(k, format.DueKey(at, format.InstanceKey(key)))) {
			err = format.ErrKey
		}
		return err
	})
}

func (c *checker) queues() error {
	for _, name := range []format.Keyspace{format.Parked, format.Held} {
		err := c.space(name, func(k, v []byte) error {
			key, n, err := format.CutEntryKey(k)
			if err != nil {
				return err
			}
			entry, err := format.Decode[edda.Entry](string(name), v)
			if err == nil && entry.N != n {
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
	return c.space(format.DeadLetter, func(k, v []byte) error {
		d, err := format.Decode[edda.DeadLetter]("dead letter", v)
		if err != nil {
			return err
		}
		if !bytes.Equal(k, format.DeadKey(d.Time, d.ID)) {
			return errOther
		}
		if key, ok := findDead(c.tx, d.ID); !ok || !bytes.Equal(key, k) {
			c.wrong("dead letter %s cannot be found by its id", d.ID)
		}
		return nil
	})
}

func (c *checker) letterIDs() error {
	return c.space(format.DeadLetterID, func(k, v []byte) error {
		if len(v) != format.TimeSize+8 {
			return format.ErrRow
		}
		if c.bucket(format.DeadLetter).Get(append(bytes.Clone(v[:format.TimeSize]), k...)) == nil {
			return errors.New("names no dead letter")
		}
		if binary.BigEndian.Uint64(v[format.TimeSize:]) > c.last.Clock {
			return errors.New("was written after the last commit")
		}
		return nil
	})
}

func (c *checker) claims() error {
	return c.space(format.Claim, func(hour, _ []byte) error {
		return c.within(format.Claim, hour, "claim", func(k, v []byte) error {
			v, err := c.seal.Open(format.Claim, k, v, 0)
			if err != nil {
				return err
			}
			claim, err := format.Decode[edda.Claim]("claim", v)
			switch {
			case err != nil:
				return err
			case format.ClaimHour(claim.Claimed, format.CommandMillis(claim.CommandID)) != binary.BigEndian.Uint32(hour):
				c.wrong("claim %s is in the wrong hour", claim.CommandID)
			case !bytes.Equal(k, format.Texts(claim.Tenant, claim.CommandID)):
				return errOther
			}
			return nil
		})
	})
}

// history checks the rows, and finds those on no chain.
func (c *checker) history() error {
	rows := 0
	var before format.Pointer
	err := c.space(format.History, func(day, _ []byte) error {
		return c.within(format.History, day, "history", func(k, v []byte) error {
			if len(k) != format.PointerSize-4 {
				return format.ErrKey
			}
			rows++
			at := format.CutPointer(append(bytes.Clone(day), k...))
			v, err := c.seal.Record(at, v)
			if err != nil {
				return err
			}
			c.record(at, before, v)
			before = at
			_, _, err = format.CutRecord(at, v)
			return err
		})
	})
	if err == nil && rows != c.linked {
		c.wrong("history has %d rows, but the chains of the instances lead to %d", rows, c.linked)
	}
	return err
}

func (c *checker) record(at, before format.Pointer, v []byte) {
	switch {
	case at.Commit > c.last.Commit:
		c.wrong("history: commit %d, but the last is %d", at.Commit, c.last.Commit)
	case at.Before(c.dropped):
		c.wrong("history: commit %d, %d is before what was dropped", at.Commit, at.N)
	case at.Commit < before.Commit:
		c.wrong("history: commit %d of day %d comes after commit %d", at.Commit, at.Day, before.Commit)
	}
	if r, _, err := format.CutRecord(at, v); err == nil && (r.Fate == "" || r.Fate == edda.FateIgnored) {
		c.wrong("history of %s: commit %d, %d has the fate %q, which is not kept", r.Key, at.Commit, at.N, r.Fate)
	}
}

// small checks the keyspaces that no other refers to.
func (c *checker) small() error {
	for name, keyOf := range map[format.Keyspace]func(k, v []byte) ([]byte, error){
		format.Checkpoint: func(_, v []byte) ([]byte, error) {
			cp, err := format.Decode[edda.Checkpoint]("row", v)
			return format.Texts(cp.Stream), err
		},
		format.Position: func(k, v []byte) ([]byte, error) {
			tenant, saga, at, err := format.CutPosition(k, v)
			return format.Texts(tenant, saga, at.Stream), err
		},
		format.Manifest: func(_, v []byte) ([]byte, error) {
			m, err := format.Decode[edda.Manifest]("row", v)
			return format.ManifestKey(m), err
		},
		format.Replay: func(_, v []byte) ([]byte, error) {
			r, err := format.Decode[Replay]("row", v)
			return format.Texts(r.ID), err
		},
		format.Schedule: func(_, v []byte) ([]byte, error) {
			s, err := format.Decode[edda.ScheduleState]("row", v)
			return format.Texts(s.Tenant, s.Saga, s.Name), err
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
	return c.space(format.Audit, func(k, v []byte) error {
		if len(k) != format.PointerSize-4 {
			return format.ErrKey
		}
		if commit := binary.BigEndian.Uint64(k); commit > c.last.Commit {
			return fmt.Errorf("commit %d, but the last is %d", commit, c.last.Commit)
		}
		_, err := format.Decode[Audit]("row", v)
		return err
	})
}
