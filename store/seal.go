package store

import (
	"fmt"
	"slices"

	"edda/store/format"
	"edda/store/wal"
)

// unlock refuses a keyset that is not this store's. With a keyset, a store that was not encrypted is
// from now on; its older values stay readable.
func (d *DB) unlock() error {
	var locked []byte
	if err := d.file.View(func(tx *wal.Tx) error {
		locked = slices.Clone(tx.Bucket([]byte(format.Meta)).Get(format.MetaSealed))
		return nil
	}); err != nil {
		return err
	}
	if locked == nil && d.seal.AEAD == nil {
		return nil
	}
	if err := d.seal.Unlock(locked, d.options.called); err != nil {
		return err
	}
	return d.lock(d.seal.Place(format.Meta, format.MetaSealed))
}

// lock writes the row with the newest key, so that from now on a keyset without that key is refused.
func (d *DB) lock(place []byte) error {
	locked, err := d.seal.AEAD.Encrypt(nil, place)
	if err != nil {
		return fmt.Errorf("use the keyset: %w", err)
	}
	if err := d.file.Update(func(tx *wal.Tx) error { return tx.Bucket([]byte(format.Meta)).Put(format.MetaSealed, locked) }); err != nil {
		return explain(d.path, err)
	}
	return nil
}
