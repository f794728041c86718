package store

import (
	"bytes"
	"sync"
)

// dueFront is a lower bound of the keys in the due index. The rows before it have fired; until
// the memtable is flushed their tombstones would be stepped over at every look of the
// scheduler.
type dueFront struct {
	mu   sync.Mutex // guards all below
	key  []byte     // never changed in place
	arms uint64     // commits that added rows
}

// look is where a scan may begin that takes its snapshot afterwards.
func (f *dueFront) look() (from []byte, arms uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key, f.arms
}

// found moves the front to the first row of a scan, unless commits added rows meanwhile that
// its snapshot may lack.
func (f *dueFront) found(first []byte, arms uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arms == arms && !bytes.Equal(first, f.key) {
		f.key = bytes.Clone(first)
	}
}

// armed notes a commit that added rows, with the first of them. Its submitter is answered
// afterwards: a scan that begins then finds them.
func (f *dueFront) armed(first []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arms++
	if bytes.Compare(first, f.key) < 0 {
		f.key = bytes.Clone(first)
	}
}
