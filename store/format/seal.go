package format

import (
	"errors"
	"fmt"
	"slices"
)

// AEAD encrypts and authenticates values, with associated data that is not encrypted. It may be
// called concurrently. Tink's AEAD is one: it decrypts with the older keys of its keyset, too.
type AEAD interface {
	Encrypt(plain, associated []byte) ([]byte, error)
	Decrypt(sealed, associated []byte) ([]byte, error)
}

// sealedMark is the first byte of an encrypted value. JSON never begins with it.
const sealedMark = 0x01

// Why a value cannot be decrypted.
var (
	ErrNoKeyset = errors.New("the value is encrypted, and there is no keyset")
	ErrKeyset   = errors.New("the keyset does not open it, or it was changed")
)

// Seal encrypts values and binds each to its place: the store, the keyspace and the key. Without
// an AEAD it leaves values as they are.
type Seal struct {
	AEAD  AEAD
	Store string // its id
}

// Place is the associated data of a value.
func (s Seal) Place(space Keyspace, key []byte) []byte {
	return append(Texts(s.Store, string(space)), key...)
}

// Close encrypts a value without its first head bytes, which stay readable.
func (s Seal) Close(space Keyspace, key, value []byte, head int) ([]byte, error) {
	if s.AEAD == nil || !space.Sealed() || len(value) == head {
		return value, nil
	}
	out, err := s.AEAD.Encrypt(value[head:], s.Place(space, key))
	if err != nil {
		return nil, fmt.Errorf("encrypt a value of %s: %w", space, err)
	}
	return slices.Concat(value[:head], []byte{sealedMark}, out), nil
}

// Open decrypts a value without its first head bytes. It returns a value that is not encrypted as
// it is.
func (s Seal) Open(space Keyspace, key, value []byte, head int) ([]byte, error) {
	if len(value) <= head || value[head] != sealedMark || !space.Sealed() {
		return value, nil
	}
	if s.AEAD == nil {
		return nil, fmt.Errorf("%s: %w", space, ErrNoKeyset)
	}
	plain, err := s.AEAD.Decrypt(value[head+1:], s.Place(space, key))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", space, ErrKeyset)
	}
	return append(slices.Clip(value[:head]), plain...), nil
}

// Instance decrypts a saga row.
func (s Seal) Instance(key, row []byte) ([]byte, error) {
	h, _, err := CutHead(row)
	if err != nil || row == nil {
		return row, err
	}
	return s.Open(Saga, key, row, h.Size())
}

// Record decrypts a history row.
func (s Seal) Record(at Pointer, row []byte) ([]byte, error) {
	return s.Open(History, at.Append(nil), row, PointerSize)
}

// whereKeyset says where a process and a command take the keyset from.
const whereKeyset = "EDDA_ENCRYPTION_KEYSET, or --config with encryption.keyset"

// Unlock refuses a keyset that is not the one of a store, by its row [MetaSealed], which is nil
// where the store is not encrypted. The error calls the store by a name.
func (s Seal) Unlock(locked []byte, called string) error {
	switch {
	case locked == nil:
		return nil
	case s.AEAD == nil:
		return fmt.Errorf("%s is encrypted: name its keyset with %s", called, whereKeyset)
	}
	if _, err := s.AEAD.Decrypt(locked, s.Place(Meta, MetaSealed)); err != nil {
		return fmt.Errorf("%s was encrypted with another keyset: name that one, with the older keys in it, with %s", called, whereKeyset)
	}
	return nil
}
