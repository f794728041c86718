package redisdb

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
)

// maxContexts bounds the databases that one process talks to.
const maxContexts = 4096

// DB is Redis with the Hero objects in it. Any number of goroutines may use it.
type DB struct {
	options   redis.Options // of database 0
	sentinels sentinels
	remember  time.Duration
	log       *zap.Logger
	now       func() time.Time
	where     string
	intakes   intakes
	short     shortage
	rights    rights

	mu        sync.Mutex // guards databases and closed
	databases map[uint32]*database
	closed    bool
}

// Open checks the options. It connects to nothing: that the Redis is there, Ping
// tells.
func Open(o Options) (*DB, error) {
	r, err := o.validate()
	if err != nil {
		return nil, err
	}
	logging.Disable() // the client's own log, of one line for each failed call: we return the error
	return &DB{
		options: *r, sentinels: o.sentinels, remember: o.Remember, log: o.Log, now: o.Now, where: r.Addr,
		intakes: intakes{places: map[place]*intake{}}, databases: map[uint32]*database{}, rights: rights{seen: map[uint32]seenContext{}},
	}, nil
}

// Where says which Redis it is, for people: its address, or its name and its sentinels.
func (d *DB) Where() string { return d.where }

// Close closes every connection.
func (d *DB) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var errs []error
	for _, c := range d.databases {
		errs = append(errs, c.Close())
	}
	clear(d.databases)
	return errors.Join(errs...)
}

// Client is the raw client of a context's database, and of 0, the actors'. It
// belongs to the DB: the caller must not close it.
func (d *DB) Client(context uint32) (*redis.Client, error) {
	l, err := d.database(context)
	if err != nil {
		return nil, err
	}
	return l.Client, nil
}

// database is the way to a context's database, and to 0, the actors'.
func (d *DB) database(context uint32) (*database, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l, ok := d.databases[context]; ok {
		return l, nil
	}
	switch {
	case d.closed:
		return nil, &StorageError{Op: "connect", Context: context, Class: edda.Permanent, Advice: "the storage is closed"}
	case context > math.MaxInt32:
		return nil, &StorageError{Op: "connect", Context: context, Class: edda.Permanent, Advice: "Redis has no database of that number: contexts go to 2147483647"}
	case len(d.databases) >= maxContexts:
		return nil, &StorageError{Op: "connect", Context: context, Class: edda.Temporary, Advice: "this process serves too many contexts: run another one for some of them"}
	}
	l := newDatabase(d.connect(int(context), connections))
	d.databases[context] = l
	return l, nil
}

// tenant is the database of a context that may hold objects: any but 0.
func (d *DB) tenant(op string, context uint32) (*database, error) {
	if context == 0 {
		return nil, &StorageError{Op: op, Class: edda.Permanent, Advice: "context 0 is the actors' database: contexts begin at 1"}
	}
	return d.database(context)
}

// The bounds of trying again within one call: a Redis that restarts is not
// noticed, one that is down is reported soon to the loop that will wait longer.
const (
	tries     = 4
	firstWait = 20 * time.Millisecond // and five times as long each time
	patience  = 4 * time.Second       // nothing is begun anew after this
)

// try runs what does no harm when it is done twice, again while Redis cannot be
// reached.
func (d *DB) try(ctx context.Context, op string, in uint32, do func() error) error {
	begun, wait := time.Now(), firstWait
	for n := 1; ; n++ {
		err := d.refused(op, in, do())
		if n == tries || !worthAnother(err) || time.Since(begun) > patience || backoff.Wait(ctx, wait) != nil {
			return err
		}
		wait *= 5
	}
}

// worthAnother tells whether the network or a starting Redis was in the way.
func worthAnother(err error) bool {
	var e *StorageError
	if !errors.As(err, &e) || e.Err == nil || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	var said redis.Error
	return !errors.As(e.Err, &said) || redis.HasErrorPrefix(e.Err, "LOADING")
}

// seconds is the time as objects hold it.
func (d *DB) seconds() uint32 { return uint32(d.now().Unix()) }
