package access

import (
	"fmt"
	"sync/atomic"

	"edda/internal/files"
)

// Keeper holds the book of a file as last read. It is safe for concurrent use.
type Keeper struct {
	path string
	now  atomic.Pointer[Book]
}

// Open reads the book from a file.
func Open(path string) (*Keeper, error) {
	k := &Keeper{path: path}
	return k, k.Reload()
}

// Reload reads the file again. If it fails, the keeper keeps the previous book.
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

// Book returns the current book.
func (k *Keeper) Book() *Book { return k.now.Load() }
