package access

import (
	"fmt"
	"sync/atomic"

	"edda/internal/files"
)

// Keeper is the book of a file, as it was read last. Its methods may be called
// concurrently.
type Keeper struct {
	path string
	now  atomic.Pointer[Book]
}

// Open reads the book of a file.
func Open(path string) (*Keeper, error) {
	k := &Keeper{path: path}
	return k, k.Reload()
}

// Reload reads the file again. Where it cannot be read or understood the book
// from before goes on.
func (k *Keeper) Reload() error {
	text, err := files.Read(k.path, maxBook)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	b, err := Parse(text)
	if err != nil {
		return fmt.Errorf("tokens: %s: %w", k.path, err)
	}
	k.now.Store(b)
	return nil
}

// Book is who may call now.
func (k *Keeper) Book() *Book { return k.now.Load() }
