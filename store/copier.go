package store

import (
	"context"
	"encoding/binary"
	"hash"

	bolt "go.etcd.io/bbolt"

	"edda/store/wal"
)

const (
	// copyBytes go into one transaction of a copy.
	copyBytes = 8 << 20
	// toldEvery is how many rows there are between two reports of progress.
	toldEvery = 8192
)

// copyProgress counts rows, reports them now and then, and fails once its context has ended.
type copyProgress struct {
	ctx  context.Context
	tell func(rows int) // may be nil
	rows int
}

func (p *copyProgress) row() error {
	if p.rows++; p.rows%toldEvery == 0 && p.tell != nil {
		p.tell(p.rows)
	}
	return context.Cause(p.ctx)
}

// eachRow passes every bucket (without a key) and every row of a snapshot, in order. A part is the
// bucket of an hour or a day within its keyspace.
func eachRow(tx *wal.Tx, fn func(space, part, k, v []byte) error) error {
	return tx.ForEach(func(space []byte, b *wal.Bucket) error {
		if err := fn(space, nil, nil, nil); err != nil {
			return err
		}
		return eachRowIn(space, b, fn)
	})
}

// eachRowIn passes the parts and the rows of a keyspace.
func eachRowIn(space []byte, b *wal.Bucket, fn func(space, part, k, v []byte) error) error {
	return b.ForEach(func(k, v []byte) error {
		if v != nil {
			return fn(space, nil, k, v)
		}
		if err := fn(space, k, nil, nil); err != nil {
			return err
		}
		return b.Bucket(k).ForEach(func(key, value []byte) error { return fn(space, k, key, value) })
	})
}

// walk is eachRow, with a hash of the rows that it passes.
func (p *copyProgress) walk(tx *wal.Tx, sum hash.Hash, fn func(space, part, k, v []byte) error) error {
	var size [8]byte
	return eachRow(tx, func(space, part, k, v []byte) error {
		if err := p.row(); err != nil {
			return err
		}
		if part != nil || k != nil { // a keyspace without rows may be missing in another file
			for _, b := range [][]byte{space, part, k, v} {
				binary.BigEndian.PutUint64(size[:], uint64(len(b)))
				sum.Write(size[:])
				sum.Write(b)
			}
		}
		return fn(space, part, k, v)
	})
}

// copier writes rows into a new file, in transactions of bounded size.
type copier struct {
	file   *boltFile
	tx     *bolt.Tx // nil between two transactions
	size   int
	packer wal.Packer
	before func() error // called before a transaction, which it may refuse; may be nil
}

// put writes a bucket or a row of eachRow.
func (w *copier) put(space, part, k, v []byte) error {
	if err := w.begin(); err != nil {
		return err
	}
	if part == nil && k == nil {
		_, err := w.tx.CreateBucket(space)
		return err
	}
	b := w.tx.Bucket(space)
	if part != nil {
		var err error
		if b, err = b.CreateBucketIfNotExists(part); err != nil || k == nil {
			return err
		}
	}
	b.FillPercent = appendFill
	w.size += len(k) + len(v)
	return b.Put(k, w.packer.Pack(v))
}

// begin begins a transaction, unless one is open and not too large.
func (w *copier) begin() (err error) {
	if w.tx != nil && w.size < copyBytes {
		return nil
	}
	if err := w.commit(); err != nil {
		return err
	}
	if w.before != nil {
		if err := w.before(); err != nil {
			return err
		}
	}
	w.tx, err = w.file.Begin(true)
	return err
}

func (w *copier) commit() error {
	if w.tx == nil {
		return nil
	}
	tx := w.tx
	w.tx, w.size = nil, 0
	return tx.Commit()
}

// rollback drops what was not committed.
func (w *copier) rollback() {
	if w.tx != nil {
		_ = w.tx.Rollback()
	}
}
