package store

import (
	"bytes"
	"fmt"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// View is a snapshot for one goroutine. Close it soon: while it is open, pages that commits free
// cannot be used again.
type View struct {
	db   *DB
	tx   *wal.Tx
	seal format.Seal
	// Cursors of the queues, which every cell without an instance is looked up in.
	parked, held *wal.Cursor
}

// View opens a snapshot.
func (d *DB) View() (*View, error) {
	tx, err := d.begin(false)
	if err != nil {
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	return &View{db: d, tx: tx, seal: d.seal}, nil
}

// Close ends the snapshot. A second call does nothing.
func (v *View) Close() { _ = v.tx.Rollback() }

// Cell loads the committed cell of one key. A missing cell is empty.
func (d *DB) Cell(k edda.Key) (edda.Cell, error) {
	v, err := d.View()
	if err != nil {
		return edda.Cell{}, err
	}
	defer v.Close()
	return v.Cell(k)
}

// Cell loads the cell of a key. It is empty for an unknown key.
func (v *View) Cell(k edda.Key) (cell edda.Cell, err error) {
	err = v.db.sound(func() error {
		cell, err = v.cell(k)
		return err
	})
	return cell, err
}

func (v *View) cell(k edda.Key) (edda.Cell, error) {
	cell := edda.Cell{Key: k}
	key := format.InstanceKey(k)
	row, err := v.seal.Instance(key, v.bucket(format.Saga).Get(key))
	if err != nil {
		return cell, fmt.Errorf("instance %s: %w", k, err)
	}
	if cell.Instance, err = format.CutInstance(k, row); err != nil {
		return cell, err
	}
	if cell.Instance == nil {
		if cell.Parked, err = v.entries(format.Parked, &v.parked, key); err != nil {
			return cell, err
		}
	}
	if cell.Instance == nil || cell.Instance.Held != "" {
		if cell.Held, err = v.entries(format.Held, &v.held, key); err != nil {
			return cell, err
		}
	}
	if cell.Instance != nil && cell.Instance.Parts > 0 {
		cell.Parts, err = v.parts(key)
	}
	return cell, err
}

// parts are the parts of an instance's state.
func (v *View) parts(key []byte) (out []edda.Part, err error) {
	c := v.bucket(format.Part).Cursor()
	for k, row := c.Seek(key); bytes.HasPrefix(k, key); k, row = c.Next() {
		_, n, err := format.CutEntryKey(k)
		if err != nil {
			return nil, fmt.Errorf("part %x: %w", k, err)
		}
		if row, err = v.seal.Open(format.Part, k, row, 0); err != nil {
			return nil, err
		}
		out = append(out, edda.Part{N: n, Data: bytes.Clone(row)})
	}
	return out, nil
}

func (v *View) bucket(name format.Keyspace) *wal.Bucket { return v.tx.Bucket([]byte(name)) }

// entries are the queued events of a key. The cursor is used for the next key, too.
func (v *View) entries(name format.Keyspace, of **wal.Cursor, key []byte) (out []edda.Entry, err error) {
	if *of == nil {
		*of = v.bucket(name).Cursor()
	}
	c := *of
	for k, row := c.Seek(key); bytes.HasPrefix(k, key); k, row = c.Next() {
		if row, err = v.seal.Open(name, k, row, 0); err != nil {
			return nil, err
		}
		entry, err := format.Decode[edda.Entry](string(name)+" event", row)
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	return out, nil
}
