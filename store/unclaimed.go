package store

import (
	"slices"

	"edda/store/wal"
)

// metaUnclaimed is there while commands of effects may be called whose claims are
// not in the ledger: the names of these effects.
var metaUnclaimed = []byte("unclaimed")

// Unclaimed are the effects whose commands the present process may call without a
// claim, or that the one before might have when it died: a command of them that is
// in the outbox counts as claimed.
func (d *DB) Unclaimed() (names []string, err error) {
	err = d.view(func(tx *wal.Tx) error {
		row := tx.Bucket([]byte(bucketMeta)).Get(metaUnclaimed)
		if row == nil {
			return nil
		}
		names, err = decode[[]string]("unclaimed effects", row)
		return err
	})
	return names, err
}

func (e *encoder) unclaimed(c Change) error {
	switch {
	case c.Unclaimed == nil:
		return nil
	case len(*c.Unclaimed) == 0:
		e.out.puts = append(e.out.puts, row{bucket: bucketMeta, key: metaUnclaimed})
		return nil
	}
	return e.put(bucketMeta, metaUnclaimed, slices.Sorted(slices.Values(*c.Unclaimed)))
}
