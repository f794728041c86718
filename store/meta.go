package store

import (
	"time"

	"edda/store/format"
	"edda/store/wal"
)

// Meta is what a store says of itself.
type Meta struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Commit is the number of the last commit, Committed its time: the commit
	// clock's, which never goes back.
	Commit    uint64    `json:"commit"`
	Committed time.Time `json:"committed"`
	// Tenant is set where the store has one tenant's rows alone.
	Tenant string `json:"tenant,omitempty"`
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
		created = time.Time{} // a check tells of it
	}
	return Meta{ID: string(b.Get(format.MetaID)), Created: created, Commit: s.Commit, Committed: s.Time(), Tenant: string(b.Get(format.MetaTenant))}
}

// Size is how large the file is, and how much of it is free.
type Size struct {
	Bytes int64 `json:"bytes"`
	// Free are bytes that commits use again, and that only a compaction gives back.
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
