// Package keyset creates, rotates and opens the file of the keys that encrypt a store.
// The newest key encrypts; all keys decrypt.
//
// The keys are XAES-256-GCM, because its random nonces of 192 bits never run out: in
// one day a busy store writes more values than one AES-GCM key allows. The file
// holds the keys in clear text. So it belongs to its owner only, and must not lie with
// the store or its backups.
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

// maxFile bounds the file. A key takes about 300 bytes.
const maxFile = 1 << 20

// Open reads the file. The AEAD is safe for concurrent use.
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

// Create writes a file with one key. It never overwrites a file.
func Create(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keyset %s: the file exists; overwriting it would lose the data that it encrypts; name another file", path)
	}
	m := keyset.NewManager()
	if err := grow(m); err != nil {
		return err
	}
	return write(path, m)
}

// Rotate adds a key that encrypts from now on. The older keys stay, because older data
// needs them.
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

// grow adds a key and makes it the primary key, which encrypts.
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
		// drop the cause, because the library may quote the keys
		return nil, fmt.Errorf("keyset %s: the file is no keyset; make one with edda key create", path)
	}
	return h, nil
}

// write replaces the file atomically.
func write(path string, m *keyset.Manager) error {
	h, err := m.Handle()
	if err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(&text)); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".keyset-*") // mode 0600
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

// syncFolder syncs the directory, because data encrypted with a new key must not become
// durable before the key.
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
