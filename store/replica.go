package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"edda"
	"edda/store/wal"
)

// A standby keeps the rows of a store that another process writes. It applies the transactions of the
// store's WAL as they are, and decodes no row. Its folder is that of a store: once the replica is
// closed, [Open] makes it one.

// Replica is the store of a standby. Its methods may be called concurrently.
type Replica struct {
	db       *DB
	applying sync.Mutex // held by Apply and Sync, and while a compaction replaces the file
}

// OpenReplica opens the replica in a folder, which [RestoreReplica] has put there, or a store that goes
// on as one. It locks the folder as a store does.
func OpenReplica(dir string, o Options) (*Replica, error) {
	if !Exists(dir) {
		return nil, edda.Classify(edda.Permanent, "there is no %s: restore a backup of the store there", filepath.Join(dir, FileName))
	}
	o.standby, o.Seal = true, nil
	d, err := Open(dir, o)
	if err != nil {
		return nil, err
	}
	return &Replica{db: d}, nil
}

// Apply commits the transaction after [Replica.LSN], as [Options.Ship] had its entry, and ignores one
// that the replica has. It is durable after [Replica.Sync]. An entry that cannot be the next one is
// [wal.ErrGap], [wal.ErrUnknown] or [wal.ErrDamaged]; any other error is of the replica.
func (r *Replica) Apply(lsn uint64, entry []byte) error {
	r.applying.Lock()
	defer r.applying.Unlock()
	if err := r.db.broken; err != nil {
		return err
	}
	return r.db.sound(func() error { return r.db.file.Apply(lsn, entry) })
}

// Sync makes all that was applied durable. After an error nothing more can be applied before a restart.
func (r *Replica) Sync() error {
	r.applying.Lock()
	defer r.applying.Unlock()
	if err := r.db.broken; err != nil { // the file that was synced before may be back
		return err
	}
	return r.db.file.Sync()
}

// ID is the id of the store.
func (r *Replica) ID() string { return r.db.ID() }

// Share is the shard of the keys that the store has.
func (r *Replica) Share() edda.Share { return r.db.Share() }

// Unused reports whether no process has worked with the store yet: it has no checkpoint.
func (r *Replica) Unused() (bool, error) {
	held, err := r.db.Checkpoints()
	return len(held) == 0, err
}

// Rewind cuts the last transaction off the WAL, and the replica is at an earlier point then; see
// [wal.DB.Rewind]. A process that was fenced or killed left that transaction there, and no log has it.
// [wal.ErrNoRewind] says that the replica cannot go back to that point.
func (r *Replica) Rewind(to wal.Point) error {
	r.applying.Lock()
	defer r.applying.Unlock()
	if err := r.db.broken; err != nil {
		return err
	}
	return r.db.sound(func() error { return r.db.file.Rewind(to) })
}

// LSN is the number of the last applied transaction.
func (r *Replica) LSN() uint64 { return r.Point().Transaction }

// Point is the point of the last applied transaction.
func (r *Replica) Point() wal.Point { return r.db.Point() }

// Hash is [DB.Hash].
func (r *Replica) Hash(ctx context.Context) (wal.Point, [sha256.Size]byte, error) {
	return r.db.Hash(ctx)
}

// Snapshot opens a snapshot, from which another replica can be restored.
func (r *Replica) Snapshot() (*Snapshot, error) { return r.db.Snapshot() }

// Compact returns the file's free space to the file system.
func (r *Replica) Compact(ctx context.Context, tell func(rows int)) (Compaction, error) {
	return r.db.compact(ctx, tell, func(act func()) error {
		r.applying.Lock()
		defer r.applying.Unlock()
		act()
		return nil
	})
}

// Close flushes what was applied, if it can, and closes the file. Only [Replica.Sync] says what is durable.
func (r *Replica) Close() error { return r.db.Close() }

// Promote ends the replica, and returns its file as a store, as Close and [Open] would. The standby that owns the log
// now saves the flush of the one and the reading of the other. Nobody may use the replica any more. After an error it
// is to be closed.
func (r *Replica) Promote(o Options) (*DB, error) {
	o.validate()
	o.called = r.db.options.called
	r.applying.Lock()
	defer r.applying.Unlock()
	if err := r.db.broken; err != nil {
		return nil, err
	}
	d := newDB(r.db.path, o)
	err := r.db.sound(func() (err error) {
		d.file, err = r.db.file.Promote(walOptions(nil, o))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := d.sound(d.remember); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Hash reads all rows and returns their SHA-256, with the point of the snapshot that has them. It
// depends on neither the flushes nor the compactions of the file, so a store and its replicas have the
// same at the same point.
func (d *DB) Hash(ctx context.Context) (at wal.Point, sum [sha256.Size]byte, err error) {
	p, hash := &copyProgress{ctx: ctx}, sha256.New()
	if err := d.view(func(tx *wal.Tx) error {
		at = tx.Point()
		return p.walk(tx, hash, func([]byte, []byte, []byte, []byte) error { return nil })
	}); err != nil {
		return at, sum, fmt.Errorf("hash the rows: %w", err)
	}
	return at, [sha256.Size]byte(hash.Sum(nil)), nil
}
