package redisdb

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda/hero"
)

// probed is how many databases are looked at where Redis does not say which are
// in use: a Redis for development, or a user without that right.
const probed = 256

// Contexts lists the contexts that there are: database n holds context:n.
func (d *DB) Contexts(ctx context.Context) ([]uint32, error) {
	const op = "look for contexts"
	var out []uint32
	err := d.try(ctx, op, 0, func() error {
		used, err := d.used(ctx)
		if err != nil {
			return err
		}
		out, err = d.holding(ctx, used)
		return err
	})
	return out, err
}

// used lists the databases that hold anything, but for the actors'.
func (d *DB) used(ctx context.Context) ([]uint32, error) {
	c, err := d.Client(0)
	if err != nil {
		return nil, err
	}
	info, err := c.Info(ctx, "keyspace").Result()
	var said redis.Error
	if errors.As(err, &said) && (strings.HasPrefix(said.Error(), "NOPERM") || strings.Contains(said.Error(), "not supported")) {
		out := make([]uint32, 0, probed)
		for n := range uint32(probed - 1) {
			out = append(out, n+1)
		}
		return out, nil
	}
	return readKeyspace(info), err
}

// readKeyspace reads the lines db7:keys=12,expires=0,avg_ttl=0.
func readKeyspace(info string) []uint32 {
	var out []uint32
	for line := range strings.Lines(info) {
		name, _, ok := strings.Cut(line, ":")
		number, isDB := strings.CutPrefix(name, "db")
		n, err := strconv.ParseUint(number, 10, 31)
		if ok && isDB && err == nil && n > 0 {
			out = append(out, uint32(n))
		}
	}
	slices.Sort(out)
	return out
}

// holding tells which of the databases hold their context's hash. It goes through
// them on one connection, which is closed then, for it is in the wrong database.
func (d *DB) holding(ctx context.Context, databases []uint32) ([]uint32, error) {
	if len(databases) == 0 {
		return nil, nil
	}
	c := d.connect(0, 1)
	defer c.Close()
	type look struct {
		selected *redis.StatusCmd
		kind     *redis.StatusCmd
	}
	looks := make([]look, len(databases))
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, n := range databases {
			looks[i] = look{p.Select(ctx, int(n)), p.Type(ctx, hero.ContextKey(n))}
		}
		return nil
	})
	var said redis.Error
	if err != nil && !errors.As(err, &said) {
		return nil, err
	}
	var out []uint32
	for i, l := range looks {
		if l.selected.Err() == nil && l.kind.Val() == "hash" {
			out = append(out, databases[i])
		}
	}
	return out, nil
}
