package store

import (
	"context"
	"time"

	"edda/store/changelog"
)

const (
	// maxMapped is how much of files the process may have mapped before the pages
	// of the store are given back. They are the system's, which keeps them while
	// it has room, and yet count as the process's memory: one look at every
	// instance would count the whole file.
	maxMapped = 96 << 20
	// trimEvery is how often that is looked at.
	trimEvery = 20 * time.Millisecond
	// trimPages is after how many pages one long read looks by itself: the system
	// maps sixteen around each that is read, and those that follow each other in
	// a keyspace lie all over the file.
	trimPages = 512
	pageSize  = 4096
	// trimCells is after how many keys: each is read in several keyspaces.
	trimCells = 128
)

// Trim keeps what is mapped of the file within bounds until ctx ends. Without it
// the store works as well, and takes as much memory as its file has pages in use.
func (d *DB) Trim(ctx context.Context) error {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.trim()
		case <-ctx.Done():
			return nil
		}
	}
}

// trim gives mapped pages back where there are too many.
func (d *DB) trim() {
	_ = d.view(func(tx *changelog.Tx) error {
		d.trimIn(tx)
		return nil
	})
}

// trimIn does so within a snapshot: while it is open the file stays mapped where
// it is. A snapshot within a snapshot could wait for ever for a writer that
// waits for the first to end.
func (d *DB) trimIn(tx *changelog.Tx) {
	if Mapped() > d.options.maxMapped {
		unmap(tx.DB().Raw().Info().Data, uintptr(tx.Size()))
	}
}
