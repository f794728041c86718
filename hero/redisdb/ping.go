package redisdb

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// pingKey is what Ping writes, in database 0; it goes by itself.
const pingKey = "edda:ping"

// Ping tells whether Redis can be reached and written to; the error says what
// is wrong: down, slow, loading, a replica, out of memory, or too few databases
// for a message or job that waits to be sent. For health checks; it does not try
// again.
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

// shortfall is how long Ping speaks of a context that Redis has no database for:
// its senders try again sooner.
const shortfall = 2 * time.Minute

// shortage remembers that something could not be sent for want of a database.
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
	if s.err == nil || now.Sub(s.at) > shortfall {
		return nil
	}
	return s.err
}
