package wal

import (
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

// CheckPages checks the pages of the file, as bbolt's Check does but without its map, and calls fn
// with each error. Flushes wait meanwhile, because they change which pages are free. The caller must
// have no transaction open.
func (db *DB) CheckPages(fn func(error)) error {
	db.flushes.Lock()
	defer db.flushes.Unlock()
	return db.raw.View(func(*bolt.Tx) error {
		f := db.options.File
		if f == nil {
			var err error
			if f, err = os.Open(db.raw.Path()); err != nil {
				return err
			}
			defer f.Close()
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return checkPages(f, info.Size(), db.raw.Info().PageSize, fn)
	})
}

// CheckWAL reads the WAL and reports a record that is damaged or missing, and rows of no bucket.
// Commits wait meanwhile. The caller must have no transaction open.
func (db *DB) CheckWAL() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.raw.View(func(raw *bolt.Tx) error {
		last, err := db.replay(raw, func(_ uint64, _ int, rows []byte) error {
			return eachRow(rows, func(space, _ []byte, _ kind, _, _ []byte) error {
				if isWALBucket(space) || raw.Bucket(space) == nil {
					return fmt.Errorf("there is no bucket %q", space)
				}
				return nil
			})
		})
		if want := db.version.Load().active.last; err == nil && last != want {
			err = damaged("it ends with transaction %d and not with %d", last, want)
		}
		return err
	})
}
