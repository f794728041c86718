package store

import (
	"bytes"
	"fmt"

	"edda"
	"edda/store/changelog"
)

// View is a consistent snapshot; Close it soon. It is for one goroutine.
type View struct {
	db     *DB
	tx     *changelog.Tx
	commit uint64 // that it is a snapshot of; zero: not known yet
	cells  int
	seal   seal
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

// Cell loads the record of one key; one that does not exist has no instance and no entries.
// Others may have the same instance, and nobody changes it.
func (v *View) Cell(k edda.Key) (edda.Cell, error) {
	cell := edda.Cell{Key: k, Instance: v.recent(k)}
	if cell.Instance != nil && cell.Instance.Held == "" {
		return cell, nil
	}
	key := instanceKey(k)
	var err error
	if cell.Instance == nil {
		cell.Instance, err = v.instance(k, key)
	}
	if err == nil && cell.Instance == nil {
		if cell.Parked, err = v.entries(bucketParked, key); err != nil {
			return cell, err
		}
	}
	if err == nil && (cell.Instance == nil || cell.Instance.Held != "") {
		cell.Held, err = v.entries(bucketHeld, key)
	}
	return cell, err
}

// recent is an instance that was committed a moment ago and need not be read.
func (v *View) recent(k edda.Key) *edda.Instance {
	if v.commit == 0 {
		v.commit = stampOf(v.tx).Commit
	}
	return v.db.recent.find(k, v.commit)
}

// instance reads one.
func (v *View) instance(k edda.Key, key []byte) (*edda.Instance, error) {
	if v.cells++; v.cells%trimCells == 0 {
		v.db.trimIn(v.tx)
	}
	row, err := v.seal.instance(key, v.bucket(bucketSaga).Get(key))
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", k, err)
	}
	return cutInstance(k, row)
}

func (v *View) bucket(name keyspace) *changelog.Bucket { return v.tx.Bucket([]byte(name)) }

func (v *View) entries(name keyspace, key []byte) (out []edda.Entry, err error) {
	c := v.bucket(name).Cursor()
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
