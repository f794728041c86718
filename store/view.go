package store

import (
	"bytes"
	"fmt"

	"edda"
	"edda/store/wal"
)

// View is a consistent snapshot; Close it soon. It is for one goroutine.
type View struct {
	db   *DB
	tx   *wal.Tx
	seal seal
	// Of what is parked and held: most keys have neither, and each is looked for.
	parked, held *wal.Cursor
}

// View opens a snapshot of what is committed.
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

// Cell loads the record of one key; one that does not exist has no instance and no entries.
func (v *View) Cell(k edda.Key) (cell edda.Cell, err error) {
	err = v.db.sound(func() error {
		cell, err = v.cell(k)
		return err
	})
	return cell, err
}

func (v *View) cell(k edda.Key) (edda.Cell, error) {
	cell := edda.Cell{Key: k}
	key := instanceKey(k)
	row, err := v.seal.instance(key, v.bucket(bucketSaga).Get(key))
	if err != nil {
		return cell, fmt.Errorf("instance %s: %w", k, err)
	}
	if cell.Instance, err = cutInstance(k, row); err != nil {
		return cell, err
	}
	if cell.Instance == nil {
		if cell.Parked, err = v.entries(bucketParked, &v.parked, key); err != nil {
			return cell, err
		}
	}
	if cell.Instance == nil || cell.Instance.Held != "" {
		if cell.Held, err = v.entries(bucketHeld, &v.held, key); err != nil {
			return cell, err
		}
	}
	if cell.Instance != nil && cell.Instance.Parts > 0 {
		cell.Parts, err = v.parts(key)
	}
	return cell, err
}

// parts are those of one instance's state.
func (v *View) parts(key []byte) (out []edda.Part, err error) {
	c := v.bucket(bucketPart).Cursor()
	for k, row := c.Seek(key); bytes.HasPrefix(k, key); k, row = c.Next() {
		_, n, err := cutPart(k)
		if err != nil {
			return nil, err
		}
		if row, err = v.seal.open(bucketPart, k, row, 0); err != nil {
			return nil, err
		}
		out = append(out, edda.Part{N: n, Data: bytes.Clone(row)})
	}
	return out, nil
}

func (v *View) bucket(name keyspace) *wal.Bucket { return v.tx.Bucket([]byte(name)) }

// entries are those of one key, by the cursor of all that are asked for.
func (v *View) entries(name keyspace, of **wal.Cursor, key []byte) (out []edda.Entry, err error) {
	if *of == nil {
		*of = v.bucket(name).Cursor()
	}
	c := *of
	for k, row := c.Seek(key); bytes.HasPrefix(k, key); k, row = c.Next() {
		if row, err = v.seal.open(name, k, row, 0); err != nil {
			return nil, err
		}
		entry, err := decode[edda.Entry](string(name)+" event", row)
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	return out, nil
}
