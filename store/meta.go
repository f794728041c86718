package store

import (
	"bytes"
	"encoding/json"
	"time"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Meta describes a store.
type Meta struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Commit is the number of the last commit. Committed is its time by the commit clock, which
	// never steps back.
	Commit    uint64    `json:"commit"`
	Committed time.Time `json:"committed"`
	// Tenant is set in a store that has the rows of one tenant alone.
	Tenant string `json:"tenant,omitempty"`
	// Share is set in a store that has one of several shards.
	Share edda.Share `json:"share,omitzero"`
}

// Share is the shard of the keys that the store has.
func (d *DB) Share() edda.Share { return d.share }

// shareOf reads the shard that a store has.
func shareOf(meta *wal.Bucket) (p edda.Share, err error) {
	row := meta.Get(format.MetaShare)
	if row == nil {
		return p, nil
	}
	if err = json.Unmarshal(row, &p); err != nil || p.Whole() || p.Index < 0 || p.Index >= p.Of {
		return p, edda.Classify(edda.Permanent, "meta: share %.100q", row)
	}
	return p, nil
}

// Meta reads it.
func (d *DB) Meta() (m Meta, err error) {
	err = d.view(func(tx *wal.Tx) error {
		m = metaOf(tx)
		return nil
	})
	return m, err
}

func metaOf(tx *wal.Tx) Meta {
	b, s := tx.Bucket([]byte(format.Meta)), stampOf(tx)
	created, err := time.Parse(time.RFC3339Nano, string(b.Get(format.MetaCreated)))
	if err != nil {
		created = time.Time{} // a check reports it
	}
	share, _ := shareOf(b) // a check reports it
	return Meta{ID: string(b.Get(format.MetaID)), Created: created, Commit: s.Commit, Committed: s.Time(), Tenant: string(b.Get(format.MetaTenant)), Share: share}
}

// Size is how large the file is, and how much of it is free.
type Size struct {
	Bytes int64 `json:"bytes"`
	// Free are the bytes of free pages. Commits use them again; only a compaction returns them.
	Free int64 `json:"free"`
}

// Size reads it.
func (d *DB) Size() (s Size, err error) {
	err = d.view(func(tx *wal.Tx) error {
		s.Bytes = tx.Size()
		s.Free = int64(tx.DB().Raw().Stats().FreeAlloc)
		return nil
	})
	return s, err
}

// Beginning is where a saga began to read the streams.
type Beginning struct {
	Saga string `json:"saga"`
	// From is "now" or "all". It is empty for a saga that began before stores noted it.
	From string    `json:"from,omitempty"`
	Time time.Time `json:"time"`
	// At are the positions that it began behind, where it was caught up.
	At []edda.Checkpoint `json:"at,omitempty"`
}

// Begun lists the sagas that have begun. It is not known in a store of an older version.
func (d *DB) Begun() (list []Beginning, known bool, err error) {
	return metaRow[[]Beginning](d, format.MetaBegun, "the sagas that have begun")
}

// Unclaimed names the effects that a process calls without a claim in the ledger: this process,
// or the one before until it ended. Their commands in the outbox count as claimed.
func (d *DB) Unclaimed() (names []string, err error) {
	names, _, err = metaRow[[]string](d, format.MetaUnclaimed, "unclaimed effects")
	return names, err
}

func metaRow[T any](d *DB, key []byte, what string) (v T, found bool, err error) {
	err = d.read(format.Meta, func(b *wal.Bucket) error {
		row := b.Get(key)
		if found = row != nil; found {
			v, err = format.Decode[T](what, row)
		}
		return err
	})
	return v, found, err
}

// Marks are the last messages that were published to each stream, as of the last commit that
// removed rows from the outbox.
func (d *DB) Marks() (marks []edda.Mark, err error) {
	err = d.read(format.Meta, func(b *wal.Bucket) error {
		c := b.Cursor()
		for k, v := c.Seek([]byte(format.MetaMark)); bytes.HasPrefix(k, []byte(format.MetaMark)); k, v = c.Next() {
			m, err := format.Decode[edda.Mark]("the last message that was published", v)
			if err != nil {
				return err
			}
			marks = append(marks, m)
		}
		return nil
	})
	return marks, err
}

// Written counts what the store wrote since it was opened.
type Written struct {
	Syncs    uint64 // that a caller waited for: of the WAL and of flushes
	Records  uint64 // transactions in the WAL
	Logged   uint64 // bytes of them
	LogBytes uint64 // with what makes room for records
	Folded   uint64 // memtables that were flushed
	// Folding reports that a memtable is being flushed.
	Folding bool
}

// Written reads the counts.
func (d *DB) Written() Written {
	d.swap.RLock()
	defer d.swap.RUnlock()
	return d.before.and(d.file)
}

// and adds the counts of a file.
func (w Written) and(file *wal.DB) Written {
	did := file.Work()
	return Written{
		Syncs: w.Syncs + did.Syncs, Records: w.Records + did.Records, Logged: w.Logged + did.RecordBytes,
		LogBytes: w.LogBytes + did.WALBytes, Folded: w.Folded + did.Memtables, Folding: file.Memtables().Immutable > 0,
	}
}
