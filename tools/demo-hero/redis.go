package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// side is one of the two Redises.
type side struct {
	name   string
	client *redis.Client // of the context's database
}

// clockEvery moves an embedded Redis's clock, by which keys expire; it has none of
// its own.
const clockEvery = 100 * time.Millisecond

// openRedis starts the Redis of one side: a real one where it is installed, else
// the embedded one.
func (r *run) openRedis(ctx context.Context, name string, port int) (side, error) {
	s := side{name: name, client: redis.NewClient(&redis.Options{Addr: address(port), DB: contextID, Protocol: 2})}
	r.stops.Add(s.client.Close)
	program, err := exec.LookPath("redis-server")
	if err != nil || r.Embedded {
		r.redisIs = "embedded, in memory; install redis-server to see a real one"
		return s, r.embedRedis(port)
	}
	r.redisIs = program
	dir := filepath.Join(r.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return s, err
	}
	p := r.process(name, program, nil, "--bind", loopback, "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction")
	if err := r.begin(p); err != nil {
		return s, err
	}
	return s, p.Until(ctx, startFor, func() error { return s.client.Ping(ctx).Err() })
}

// embedRedis serves a Redis of this process.
func (r *run) embedRedis(port int) error {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(address(port)); err != nil {
		return fmt.Errorf("start the embedded redis: %w", err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(clockEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				m.SetTime(time.Now())
				m.FastForward(clockEvery)
			}
		}
	}()
	r.stops.Add(func() error {
		close(stop)
		<-stopped
		m.Close()
		return nil
	})
	return nil
}
