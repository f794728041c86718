package store

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// DefaultMaxDeadBytes has room for some ten thousand events of the usual size. One tenant's mistake
// cannot fill a disk in the months that dead letters are kept.
const DefaultMaxDeadBytes = 64 << 20

// AEAD encrypts the values of a store.
type AEAD = format.AEAD

// Options of a store. The zero value works.
type Options struct {
	Log *zap.Logger
	// Observe is called after every commit, with its change sets, its bytes and its time.
	Observe func(changes int, bytes int, took time.Duration)
	// Now is the commit clock, time.Now when nil. It is in the ids of outbox rows and the days of
	// the history. It may step back.
	Now func() time.Time

	// Seal encrypts payloads; nil leaves them as they are.
	Seal AEAD

	// MaxDeadBytes bounds the bytes of a tenant's dead letters. Further ones are written without
	// their payload. [DefaultMaxDeadBytes] when zero.
	MaxDeadBytes int

	// KeepSent returns the time since which [DB.Sent] has the rows that were sent: all for the zero
	// time, none for a time in the future or a nil KeepSent.
	KeepSent func() time.Time

	// Ship is called with each transaction before it is written to the WAL, so that standbys apply it;
	// see [Replica]. Nil ships nothing. [Open] itself writes a transaction if the newest key of Seal is
	// another one than before.
	Ship wal.Ship

	// Share is the shard of the keys that a new store has. A store that exists keeps its own; see [DB.Share].
	Share edda.Share

	// ReadOnly opens an existing store and changes nothing; see [OpenToCheck].
	ReadOnly bool

	called   string    // the name of the file in errors; empty: its path
	standby  bool      // opened by [OpenReplica]
	copied   bool      // one of several copies, which [OpenToCheck] has opened and nobody writes
	unlogged bool      // has no WAL: a copy that counts only once it is complete
	from     wal.Point // of such a copy: the last transaction of its rows

	// For tests.
	openFile   func(string, int, os.FileMode) (*os.File, error)
	initialMap int
	noSync     bool
	flushAt    int  // bytes of a memtable; zero: the default
	plain      bool // values are not compressed, so that a test finds texts in the file
}

// DB is an open store. Its methods may be called concurrently.
type DB struct {
	path    string
	id      string
	share   edda.Share   // the shard of the keys that it has
	tenant  string       // the one tenant whose rows it has; empty: all tenants
	origins string       // marks of the stores that its rows came from
	swap    sync.RWMutex // guards file and before: a compaction replaces it
	file    *wal.DB
	before  Written // of the files before
	options Options
	seal    format.Seal
	queue   *queue
	index   *index
	hours   claimHours
	dues    dueFront
	health  health
	running atomic.Bool
	damage  atomic.Pointer[error]
	fence   atomic.Pointer[func(context.Context) error] // called before a commit; nil: none

	committed chan struct{}
	added     chan Added
	armed     chan struct{}

	compaction sync.Mutex  // held by one compaction or check at a time
	extraction sync.Mutex  // held by one copy of a tenant's rows at a time
	safe       chan func() // calls for the committer between two commits

	// The fields below are owned by the committer.
	stamp  format.Stamp // of the last commit
	missed bool         // rows of a commit did not reach the relay
	broken error        // why nothing can be committed before a restart
}

// Close closes the file; Run must have returned. It waits for open views.
func (d *DB) Close() error { return d.file.Close() }

// Leave closes the store at once: the rows stay in the WAL, which [Open] and [OpenReplica] read as after a crash.
func (d *DB) Leave() error { return d.file.Leave() }

// begin opens a transaction of the current file.
func (d *DB) begin(writable bool) (*wal.Tx, error) {
	d.swap.RLock()
	defer d.swap.RUnlock()
	return d.file.Begin(writable)
}

// view runs fn on a snapshot.
func (d *DB) view(fn func(*wal.Tx) error) error {
	tx, err := d.begin(false)
	if err != nil {
		return fmt.Errorf("open a snapshot: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	return d.sound(func() error { return fn(tx) })
}

// ID is the id that the store got when it was created.
func (d *DB) ID() string { return d.id }

// Point is the point of the last commit. A store and its replica at equal points have the same rows,
// which costs nothing to compare; [DB.Hash] reads the rows.
func (d *DB) Point() wal.Point {
	d.swap.RLock()
	defer d.swap.RUnlock()
	return d.file.Point()
}

// Healthy is nil unless the last commit failed.
func (d *DB) Healthy() error { return d.health.get() }

// health is the last commit's error.
type health struct {
	mu  sync.Mutex // guards err
	err error
}

func (h *health) get() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// set returns the error before.
func (h *health) set(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.err
	h.err = err
	return before
}
