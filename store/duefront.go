package store

import (
	"bytes"
	"sync"
)

// dueFront is a key of the due index that no row comes before: the rows before it have
// fired, and until the log is flushed each of them is still passed by who begins in front of
// it, at every look of the scheduler.
type dueFront struct {
	mu   sync.Mutex // guards all below
	key  []byte     // never changed in place
	arms uint64     // commits that added rows
}

// look is where a look at the index may begin that takes its snapshot afterwards.
func (f *dueFront) look() (from []byte, arms uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key, f.arms
}

// found moves the front to the first row that a look has found, unless rows came
// meanwhile that its snapshot may not have.
func (f *dueFront) found(first []byte, arms uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arms == arms && !bytes.Equal(first, f.key) {
		f.key = bytes.Clone(first)
	}
}

// armed notes a commit that added rows, of which the first one is given. Its submitter is
// answered afterwards: a look that begins then finds them.
func (f *dueFront) armed(first []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arms++
	if bytes.Compare(first, f.key) < 0 {
		f.key = bytes.Clone(first)
	}
}
