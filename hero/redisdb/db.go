package redisdb

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/internal/coalesce"
)

// maxContexts bounds the databases that one process connects to.
const maxContexts = 4096

// DB is a Redis that holds the Hero objects. Its methods may be called concurrently.
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

// Open checks the options. It does not connect: Ping tells whether Redis is there.
func Open(o Options) (*DB, error) {
	r, err := o.validate()
	if err != nil {
		return nil, err
	}
	logging.Disable() // the client logs each failed call, whose error we return
	return &DB{
		options: *r, sentinels: o.sentinels, remember: o.Remember, log: o.Log, now: o.Now, where: r.Addr,
		intakes: intakes{places: map[place]*intake{}}, databases: map[uint32]*database{}, rights: rights{seen: map[uint32]seenContext{}},
	}, nil
}

// Where names the Redis for people: its address, or its master's name and its sentinels.
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

// Client returns the raw client of a context's database, or of database 0, the actors'. It
// belongs to the DB: the caller must not close it.
func (d *DB) Client(context uint32) (*redis.Client, error) {
	c, err := d.database(context)
	if err != nil {
		return nil, err
	}
	return c.Client, nil
}

// database returns the connections to a context's database, or to database 0, the actors'.
func (d *DB) database(context uint32) (*database, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.databases[context]; ok {
		return c, nil
	}
	switch {
	case d.closed:
		return nil, &StorageError{Op: "connect", Context: context, Class: edda.Permanent, Advice: "the storage is closed"}
	case context > math.MaxInt32:
		return nil, &StorageError{Op: "connect", Context: context, Class: edda.Permanent, Advice: "Redis has no database of that number: contexts go to 2147483647"}
	case len(d.databases) >= maxContexts:
		return nil, &StorageError{Op: "connect", Context: context, Class: edda.Temporary, Advice: "this process serves too many contexts: run another one for some of them"}
	}
	c := newDatabase(d.connect(int(context), connections))
	d.databases[context] = c
	return c, nil
}

// The bounds of retries within one call: a caller does not notice that Redis restarts. If
// Redis stays down the loop that called soon gets the error, and waits longer.
const (
	tries     = 4
	firstWait = 20 * time.Millisecond // times five after each try
	retryFor  = 4 * time.Second       // no try begins later than this
)

// try runs do on a context's database, or on database 0, and repeats it while Redis cannot
// be reached. do must do no harm when it is done twice.
func (d *DB) try(ctx context.Context, op string, in uint32, do func(*database) error) error {
	c, err := d.database(in)
	if err != nil {
		return err
	}
	begun, wait := time.Now(), firstWait
	for n := 1; ; n++ {
		err := d.refused(op, in, do(c))
		if n == tries || !unreachable(err) || time.Since(begun) > retryFor || backoff.Wait(ctx, wait) != nil {
			return err
		}
		wait *= 5
	}
}

// at is try on the database of a key: actors are in database 0, all else in a context's.
func (d *DB) at(ctx context.Context, op string, in uint32, key string, do func(*database) error) error {
	if in == 0 && !strings.HasPrefix(key, "actor:") {
		return &StorageError{Op: op, Class: edda.Permanent, Advice: "context 0 is the actors' database: contexts begin at 1"}
	}
	return d.try(ctx, op, in, do)
}

// script runs a Lua script in a context: the rule for a change that must be atomic. It
// returns the script's number.
func (d *DB) script(ctx context.Context, op string, in uint32, s *redis.Script, keys []string, args ...any) (n int, err error) {
	err = d.at(ctx, op, in, keys[0], func(c *database) error {
		n, err = s.Run(ctx, c, keys, args...).Int()
		return err
	})
	return n, err
}

// unreachable reports whether the network failed or Redis is starting.
func unreachable(err error) bool {
	var e *StorageError
	if !errors.As(err, &e) || e.Err == nil || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	var said redis.Error
	return !errors.As(e.Err, &said) || redis.HasErrorPrefix(e.Err, "LOADING")
}

// seconds returns the current time as objects hold it.
func (d *DB) seconds() uint32 { return uint32(d.now().Unix()) }

// database is one database of Redis. It coalesces the short commands and the steps that
// many goroutines request at once.
type database struct {
	*redis.Client
	commands coalesce.Coalescer[redis.Cmder] // in one pipeline
	steps    coalesce.Coalescer[*step]       // in one transaction
}

func newDatabase(client *redis.Client) *database {
	c := &database{Client: client}
	c.commands.Send, c.steps.Send, c.steps.Keys = c.pipe, c.transact, func(s *step) []string { return s.keys }
	return c
}

// EvalSha is the client's, coalesced. The first call of a script, which Redis does not know
// yet, is not.
func (c *database) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	c.ask(ctx, cmd, size(args))
	return cmd
}

// HGetAll is the client's, coalesced.
func (c *database) HGetAll(ctx context.Context, key string) *redis.MapStringStringCmd {
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", key)
	c.ask(ctx, cmd, 0)
	return cmd
}

func (c *database) ask(ctx context.Context, cmd redis.Cmder, bytes int) {
	if err := ctx.Err(); err != nil {
		cmd.SetErr(err)
		return
	}
	c.commands.Do(ctx, cmd, bytes)
}

// pipe sends the commands. The leader's context does not cancel the commands of others.
func (c *database) pipe(ctx context.Context, cmds []redis.Cmder) {
	if len(cmds) == 1 {
		_ = c.Process(ctx, cmds[0]) // the command has its error
		return
	}
	ctx = context.WithoutCancel(ctx)
	pipe := c.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // only noted
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

// pingKey is the key that Ping writes, in database 0. It expires.
const pingKey = "edda:ping"

// Ping reports whether Redis can be reached and written to. The error says what is wrong:
// down, slow, loading, a replica, out of memory, or too few databases for a message or
// job that waits to be sent. It is for health checks and does not retry.
func (d *DB) Ping(ctx context.Context) error {
	c, err := d.Client(0)
	if err != nil {
		return err
	}
	if err := c.Set(ctx, pingKey, d.seconds(), time.Minute).Err(); err != nil {
		return d.refused("write to Redis", 0, err)
	}
	return d.short.last(d.now())
}

// shortFor is the time for which Ping reports a context without a database in Redis: senders
// retry more often.
const shortFor = 2 * time.Minute

// shortage remembers that a send failed because Redis has too few databases.
type shortage struct {
	mu  sync.Mutex // guards at and err
	at  time.Time
	err error
}

// note keeps the error if it is of that kind.
func (s *shortage) note(err error, now time.Time) {
	var e *StorageError
	if !errors.As(err, &e) || e.Err == nil || !strings.Contains(e.Err.Error(), outOfRange) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.err = now, err
}

func (s *shortage) last(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil || now.Sub(s.at) > shortFor {
		return nil
	}
	return s.err
}
