package store

import (
	"slices"

	"edda/store/format"
	"edda/store/wal"
)

// Unclaimed are the effects whose commands the present process may call without a
// claim, or that the one before might have when it died: a command of them that is
// in the outbox counts as claimed.
func (d *DB) Unclaimed() (names []string, err error) {
	err = d.view(func(tx *wal.Tx) error {
		row := tx.Bucket([]byte(format.Meta)).Get(format.MetaUnclaimed)
		if row == nil {
			return nil
		}
		names, err = format.Decode[[]string]("unclaimed effects", row)
		return err
	})
	return names, err
}

func (e *encoder) unclaimed(c Change) error {
	switch {
	case c.Unclaimed == nil:
		return nil
	case len(*c.Unclaimed) == 0:
		e.out.puts = append(e.out.puts, row{bucket: format.Meta, key: format.MetaUnclaimed})
		return nil
	}
	return e.put(format.Meta, format.MetaUnclaimed, slices.Sorted(slices.Values(*c.Unclaimed)))
}
