package store

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"edda/store/format"
	"edda/store/wal"
)

// DefaultMaxDeadBytes is room for some ten thousand events of the usual size, and
// yet so little that one tenant's mistake fills no disk in the months that dead
// letters are kept.
const DefaultMaxDeadBytes = 64 << 20

// AEAD encrypts the values of a store.
type AEAD = format.AEAD

// Options of a store. The zero value works.
type Options struct {
	Log *zap.Logger
	// Observe is told of every commit: change sets in it, bytes written, how long.
	Observe func(changes int, bytes int, took time.Duration)
	// Now is the commit clock, time.Now when nil. It names outbox rows and
	// history days, and nothing else; it may step back.
	Now func() time.Time

	// Seal encrypts payloads; nil writes them as they are.
	Seal AEAD

	// MaxDeadBytes is how many bytes of dead letters a tenant may have before the
	// next is written without its payload; [DefaultMaxDeadBytes] when zero.
	MaxDeadBytes int

	// KeepSent says how long rows of the outbox are kept for [DB.Sent]: at least those that
	// were sent since that time; all where it is zero. Where it lies ahead none are, as
	// where KeepSent is nil.
	KeepSent func() time.Time

	// ReadOnly opens a store that is there and changes nothing of it; see [OpenToCheck].
	ReadOnly bool

	called string // the file in errors, where not by its path

	// For tests.
	openFile   func(string, int, os.FileMode) (*os.File, error)
	initialMap int
	noSync     bool
	unlogged   bool // a copy that counts only once it is done
	flushAt    int  // bytes in memory; zero: as many as are good
	plain      bool // values are not compressed, so that texts are found in the file
}

// DB is an open store. Its methods may be called concurrently.
type DB struct {
	path    string
	id      string
	tenant  string       // whose rows it has alone; empty: everyone's
	origins string       // the stores that its rows came from
	swap    sync.RWMutex // guards file and before: a compaction replaces it
	file    *wal.DB
	before  Written // by the files before
	options Options
	seal    format.Seal
	queue   *queue
	index   *index
	hours   claimHours
	dues    dueFront
	health  health
	running atomic.Bool
	damage  atomic.Pointer[error]
	fence   atomic.Pointer[func(context.Context) error] // nil: nothing is asked before a commit

	committed chan struct{}
	added     chan Added
	armed     chan struct{}

	compaction sync.Mutex  // held by one compaction or check at a time
	extraction sync.Mutex  // held by one copy of a tenant's rows at a time
	delta      delta       // what is committed while it copies
	safe       chan func() // what the committer does between two commits

	// The committer's alone.
	stamp  format.Stamp // of the last commit
	staged *staged
	missed bool  // rows of a commit were not sent to the relay
	broken error // nothing can be committed before a restart
}

// Close closes the file; Run must have returned. It waits for open views.
func (d *DB) Close() error { return d.file.Close() }

// begin opens a transaction of the file there is now.
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

// ID is the store's own id, made when it was created.
func (d *DB) ID() string { return d.id }

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

// set returns what was before.
func (h *health) set(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.err
	h.err = err
	return before
}
