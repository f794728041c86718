// Package keyset is the file of the keys that encrypt a store: made, rotated and
// opened. The newest key encrypts; all of them decrypt.
//
// The keys are XAES-256-GCM, whose random nonces of 192 bits never run out: a
// busy store writes more values in a day than AES-GCM may with one key. The file
// holds the keys in the clear, so it is for its owner alone, and lies elsewhere
// than the store and its backups.
package keyset

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"edda/internal/files"
)

// maxFile bounds the file: a key takes some 300 bytes.
const maxFile = 1 << 20

// Open reads the file; what it returns may be used concurrently.
func Open(path string) (tink.AEAD, error) {
	h, err := read(path)
	if err != nil {
		return nil, err
	}
	a, err := aead.New(h)
	if err != nil {
		return nil, fmt.Errorf("keyset %s: %w", path, err)
	}
	return a, nil
}

// Create makes a file with one key; one that is there is never overwritten.
func Create(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keyset %s: it is there already, and what it encrypted could not be read without it; name another file", path)
	}
	m := keyset.NewManager()
	if err := grow(m); err != nil {
		return err
	}
	return write(path, m)
}

// Rotate adds a key, which encrypts from now on. The older ones stay: they
// decrypt what they encrypted.
func Rotate(path string) error {
	h, err := read(path)
	if err != nil {
		return err
	}
	m := keyset.NewManagerFromHandle(h)
	if err := grow(m); err != nil {
		return err
	}
	return write(path, m)
}

// grow adds a key and makes it the one that encrypts.
func grow(m *keyset.Manager) error {
	id, err := m.Add(aead.XAES256GCM192BitNonceKeyTemplate())
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	if err := m.SetPrimary(id); err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	return nil
}

func read(path string) (*keyset.Handle, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("keyset %s: more than %d bytes", path, maxFile)
	}
	text, err := files.Read(path, files.Most)
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		// What the library says may quote the file.
		return nil, fmt.Errorf("keyset %s: it is not one; make one with edda key create", path)
	}
	return h, nil
}

// write replaces the file whole, or leaves it as it was.
func write(path string, m *keyset.Manager) error {
	h, err := m.Handle()
	if err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(&text)); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".keyset-*") // for its owner alone
	if err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	defer os.Remove(next.Name())
	_, err = next.Write(text.Bytes())
	if err := errors.Join(err, next.Sync(), next.Close()); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the new name durable: a store that was locked with a new key
// must not outlive it.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	return nil
}
