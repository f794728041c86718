package changelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// load reads the log, and begins one in a file that has none yet.
func (db *DB) load() error {
	if err := db.prepare(); err != nil {
		return err
	}
	return db.raw.View(func(raw *bolt.Tx) error {
		if err := db.names(raw); err != nil {
			return err
		}
		first := &state{active: newTable()}
		tx := newTx(db, raw, first)
		r, err := replay(raw, tx.replay)
		if err != nil {
			return err
		}
		t := tx.table()
		t.last = r.last
		s := state{active: t}
		db.tail = r.tail
		if db.full(t) {
			db.freeze(&s)
		}
		db.state.Store(&s)
		return nil
	})
}

// names notes which top-level buckets there are: they stay.
func (db *DB) names(raw *bolt.Tx) error {
	db.spaces = map[string][]byte{}
	return raw.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if !isLog(name) {
			db.spaces[string(name)] = bytes.Clone(name)
		}
		return nil
	})
}

func (db *DB) prepare() error {
	there := false
	if err := db.raw.View(func(raw *bolt.Tx) error {
		there = raw.Bucket(logName) != nil
		return nil
	}); err != nil || there {
		return err
	}
	return db.raw.Update(func(raw *bolt.Tx) error {
		_, err := raw.CreateBucket(logName)
		return err
	})
}

// replay does to the table what an entry says was done.
func (tx *Tx) replay(seq uint64, size int, rows []byte) error {
	tx.seq, tx.writable = seq, true
	err := eachRow(rows, func(space, inner []byte, k kind, key, value []byte) error {
		b := tx.Bucket(space)
		if b == nil {
			return fmt.Errorf("there is no bucket %q", space)
		}
		if inner != nil {
			b = tx.inner(b, inner)
		}
		switch k {
		case put:
			b.set(put, key, value)
		case gone:
			b.erase(key)
		case made:
			b.set(made, key, nil)
		case dropped:
			b.drop(key)
		}
		return nil
	})
	tx.wrotes = tx.wrotes[:0]
	tx.table().logged += size
	return err
}

// damaged says what to do.
func damaged(format string, args ...any) error {
	return fmt.Errorf("the log is damaged: %w: restore a backup", fmt.Errorf(format, args...))
}

// replay passes the entries of a file's log in order. An entry that is missing, or is
// not what was written, is an error.
func replay(raw *bolt.Tx, fn func(seq uint64, size int, rows []byte) error) (*replayer, error) {
	head := raw.Bucket(logName)
	folded, err := number(head, rowFolded)
	if err != nil {
		return nil, err
	}
	want, err := number(head, rowLast)
	if err != nil {
		return nil, err
	}
	r := &replayer{last: folded, fn: fn}
	c := raw.Cursor()
	for name, _ := c.Seek([]byte(segmentPrefix)); bytes.HasPrefix(name, []byte(segmentPrefix)); name, _ = c.Next() {
		if err := r.segment(name, raw.Bucket(name)); err != nil {
			return nil, err
		}
	}
	if r.last != want {
		return nil, damaged("it ends with transaction %d and not with %d", r.last, want)
	}
	return r, nil
}

func number(b *bolt.Bucket, name []byte) (uint64, error) {
	v := b.Get(name)
	if v == nil {
		return 0, nil // nothing was written, or folded, yet
	}
	if len(v) != 8 {
		return 0, damaged("the row %s has %d bytes", name, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// replayer puts the parts of entries together.
type replayer struct {
	last  uint64 // the entry that was passed last
	tail  tail   // the segment that it is in
	entry []byte
	fn    func(seq uint64, size int, rows []byte) error
}

func (r *replayer) segment(name []byte, b *bolt.Bucket) error {
	if want := segmentName(r.last + 1); b == nil || !bytes.Equal(name, want) {
		return damaged("there is %s where %s is to be", name, want)
	}
	r.tail = tail{name: bytes.Clone(name)}
	c := b.Cursor()
	k, v := c.First()
	for k != nil {
		seq, part := r.last+1, uint32(0)
		r.entry = r.entry[:0]
		for ; k != nil && bytes.Equal(k, partKey(seq, part)); k, v = c.Next() {
			r.entry = append(r.entry, v...)
			part++
		}
		if part == 0 {
			return damaged("transaction %d is missing, or what follows is none: %x", seq, k)
		}
		if err := r.pass(seq); err != nil {
			return damaged("transaction %d: %w", seq, err)
		}
	}
	return nil
}

func (r *replayer) pass(seq uint64) error {
	rows, err := content(seq, r.entry)
	if err != nil {
		return err
	}
	r.last = seq
	r.tail.bytes += len(r.entry)
	return r.fn(seq, len(r.entry), rows)
}

// CheckLog reads the log of the snapshot through, and reports what is wrong with it:
// an entry that is damaged or missing, and rows that are of no bucket.
func (tx *Tx) CheckLog() error {
	_, err := replay(tx.raw, func(_ uint64, _ int, rows []byte) error {
		return eachRow(rows, func(space, _ []byte, _ kind, _, _ []byte) error {
			if isLog(space) || tx.raw.Bucket(space) == nil {
				return fmt.Errorf("there is no bucket %q", space)
			}
			return nil
		})
	})
	return err
}

// Ahead tells whether the file has a transaction that nobody sees: one of which
// committing said that it had failed, after its last write.
func (db *DB) Ahead() (bool, error) {
	db.writer.Lock()
	defer db.writer.Unlock()
	last := uint64(0)
	err := db.raw.View(func(raw *bolt.Tx) error {
		b := raw.Bucket(logName)
		if b == nil {
			return errors.New("there is no log")
		}
		var err error
		last, err = number(b, rowLast)
		return err
	})
	return last > db.state.Load().active.last, err
}
