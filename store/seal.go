package store

import (
	"errors"
	"fmt"
	"slices"

	"edda/store/wal"
)

// AEAD encrypts values and tells whether they were changed, with associated data
// that is not encrypted. It may be called concurrently. Tink's AEAD is one: what
// an older key of its keyset encrypted can still be decrypted.
type AEAD interface {
	Encrypt(plain, associated []byte) ([]byte, error)
	Decrypt(sealed, associated []byte) ([]byte, error)
}

// sealedMark begins a value that is encrypted; JSON never begins so.
const sealedMark = 0x01

// sealed are the keyspaces whose values may hold what people sent. Keys, heads,
// counters, positions and manifests stay readable.
func (k keyspace) sealed() bool {
	switch k {
	case bucketSaga, bucketOutbox, bucketClaim, bucketHistory, bucketParked, bucketHeld, bucketDead, bucketAudit, bucketReplay, bucketPart:
		return true
	}
	return false
}

// metaSealed is a row of meta that the keyset must open.
var metaSealed = []byte("sealed")

var (
	errNoKeyset = errors.New("the value is encrypted, and there is no keyset")
	errKeyset   = errors.New("the keyset does not open it, or it was changed")
)

// seal encrypts values and binds each to its place: the store, the keyspace and
// the key. Without an AEAD values are written as they are.
type seal struct {
	aead AEAD
	id   string // the store's
}

func (s seal) place(space keyspace, key []byte) []byte {
	return append(texts(s.id, string(space)), key...)
}

// close encrypts what stands behind head bytes, which stay readable.
func (s seal) close(space keyspace, key, value []byte, head int) ([]byte, error) {
	if s.aead == nil || !space.sealed() || len(value) == head {
		return value, nil
	}
	out, err := s.aead.Encrypt(value[head:], s.place(space, key))
	if err != nil {
		return nil, fmt.Errorf("encrypt a value of %s: %w", space, err)
	}
	return slices.Concat(value[:head], []byte{sealedMark}, out), nil
}

// open decrypts what stands behind head bytes. A value that was written without
// encryption is as it is.
func (s seal) open(space keyspace, key, value []byte, head int) ([]byte, error) {
	if len(value) <= head || value[head] != sealedMark || !space.sealed() {
		return value, nil
	}
	if s.aead == nil {
		return nil, fmt.Errorf("%s: %w", space, errNoKeyset)
	}
	plain, err := s.aead.Decrypt(value[head+1:], s.place(space, key))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", space, errKeyset)
	}
	return append(slices.Clip(value[:head]), plain...), nil
}

// instance decrypts a saga row behind its head.
func (s seal) instance(key, row []byte) ([]byte, error) {
	h, _, err := cutHead(row)
	if err != nil || row == nil {
		return row, err
	}
	return s.open(bucketSaga, key, row, h.size())
}

// record decrypts a history row behind its pointer.
func (s seal) record(at pointer, row []byte) ([]byte, error) {
	return s.open(bucketHistory, at.append(nil), row, pointerSize)
}

// whereKeyset is how a process and a command are told.
const whereKeyset = "EDDA_ENCRYPTION_KEYSET, or --config with encryption.keyset"

// unlock tells whether the keyset is this store's. Where the store was not
// encrypted before, it is from now on; older values stay readable.
func (d *DB) unlock() error {
	var locked []byte
	if err := d.file.View(func(tx *wal.Tx) error {
		locked = slices.Clone(tx.Bucket([]byte(bucketMeta)).Get(metaSealed))
		return nil
	}); err != nil {
		return err
	}
	if locked == nil && d.seal.aead == nil {
		return nil
	}
	if err := d.seal.opens(locked, d.options.called); err != nil {
		return err
	}
	return d.lock(d.seal.place(bucketMeta, metaSealed))
}

// opens tells whether the keyset is that of the store of which this row is, nil
// where it is not encrypted.
func (s seal) opens(locked []byte, called string) error {
	switch {
	case locked == nil:
		return nil
	case s.aead == nil:
		return fmt.Errorf("%s is encrypted: name its keyset with %s", called, whereKeyset)
	}
	if _, err := s.aead.Decrypt(locked, s.place(bucketMeta, metaSealed)); err != nil {
		return fmt.Errorf("%s was encrypted with another keyset: name that one, with the older keys in it, with %s", called, whereKeyset)
	}
	return nil
}

// lock writes the row anew with the newest key, so that a keyset which lacks it
// is refused from now on.
func (d *DB) lock(place []byte) error {
	locked, err := d.seal.aead.Encrypt(nil, place)
	if err != nil {
		return fmt.Errorf("use the keyset: %w", err)
	}
	if err := d.file.Update(func(tx *wal.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put(metaSealed, locked) }); err != nil {
		return explain(d.path, err)
	}
	return nil
}
