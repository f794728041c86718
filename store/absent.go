package store

import (
	"sync"

	"edda"
	"edda/store/changelog"
)

// absentKeys is how many keys are remembered, twice: as many as are decided before the
// first of them is committed.
const absentKeys = 2048

// absent are keys of which a snapshot found no row in the file: an instance that begins
// is looked for twice, when it is decided and when it is committed, and where keys lie
// all over a large file each look reads a page that nobody else needs.
//
// A key that was found so, and that no table has, is not there still, as long as all that
// was written since lies in the tables: nothing but a fold puts rows into the file.
//
// It forgets by halves.
type absent struct {
	mu           sync.Mutex // guards all below
	file         *changelog.DB
	newer, older map[edda.Key]uint64 // the epoch of the snapshot that found no row
}

// begin has nothing remembered, and then what snapshots of this file find.
func (a *absent) begin(file *changelog.DB) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.file, a.newer, a.older = file, nil, nil
}

// note remembers a key of which the snapshot has no row.
func (a *absent) note(k edda.Key, tx *changelog.Tx) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if tx.DB() != a.file {
		return // it was replaced meanwhile
	}
	if a.newer == nil || len(a.newer) >= absentKeys {
		a.newer, a.older = a.older, a.newer
		clear(a.newer)
		if a.newer == nil {
			a.newer = map[edda.Key]uint64{}
		}
	}
	a.newer[k] = tx.Epoch()
}

// take tells whether the file of a transaction is known to have no row, and forgets
// the key, of which there will be one.
func (a *absent) take(k edda.Key, tx *changelog.Tx) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	epoch, ok := a.newer[k]
	if !ok {
		epoch, ok = a.older[k]
	}
	delete(a.newer, k)
	delete(a.older, k)
	return ok && a.file == tx.DB() && tx.Unfolded(epoch)
}
