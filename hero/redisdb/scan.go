package redisdb

import (
	"cmp"
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"edda/hero"
)

// scanBatch is how many keys, and then hashes, are asked for at once: little
// enough that Redis answers others in between.
const scanBatch = 200

// scan reads every object of a kind, in the order of less. Keys that are none of
// the documents' are passed over. What can be read is returned even with an
// error, which joins a *hero.FieldError for each hash that cannot be.
func scan[T hero.Object](ctx context.Context, d *DB, in uint32, kind string, mine func(key string) bool, read read[T], compare func(a, b T) int) ([]T, error) {
	op := "list " + kind
	c, err := d.at(op, in, kind+":")
	if err != nil {
		return nil, err
	}
	keys, _, err := d.keys(ctx, c, op, in, kind, mine)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, d, c, op, in, keys, read, compare)
}

// readAll reads the objects of some keys; see scan.
func readAll[T hero.Object](ctx context.Context, d *DB, c *database, op string, in uint32, keys []string, read read[T], compare func(a, b T) int) ([]T, error) {
	objects := []T{}
	var broken []error
	for batch := range slices.Chunk(keys, scanBatch) {
		hashes, err := d.hashes(ctx, c, op, in, batch)
		if err != nil {
			return nil, err
		}
		for i, h := range hashes {
			if len(h) == 0 {
				continue // gone since
			}
			o, err := read(batch[i], h)
			if err != nil {
				broken = append(broken, d.refused(op, in, err))
				continue
			}
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, compare)
	if len(broken) == 0 {
		return objects, nil
	}
	return objects, unreadable(broken)
}

// keys lists the keys of the hashes of a kind, each once. looked is how many keys of
// the database were passed for it, about.
func (d *DB) keys(ctx context.Context, c *database, op string, in uint32, kind string, mine func(string) bool) (keys []string, looked int, err error) {
	for cursor := uint64(0); ; {
		var page []string
		err := d.try(ctx, op, in, func() (err error) {
			page, cursor, err = c.ScanType(ctx, cursor, kind+":*", scanBatch, "hash").Result()
			return err
		})
		if err != nil {
			return nil, looked, err
		}
		looked += scanBatch
		for _, key := range page {
			if mine(key) {
				keys = append(keys, key)
			}
		}
		if cursor == 0 {
			slices.Sort(keys) // a scan may show a key twice
			return slices.Compact(keys), looked, nil
		}
	}
}

// hashes reads some hashes at once; one that is gone is empty.
func (d *DB) hashes(ctx context.Context, c *database, op string, in uint32, keys []string) ([]map[string]string, error) {
	out := make([]map[string]string, len(keys))
	err := d.try(ctx, op, in, func() error {
		answers, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys {
				p.HGetAll(ctx, key)
			}
			return nil
		})
		for i, a := range answers {
			out[i] = a.(*redis.MapStringStringCmd).Val()
		}
		return err
	})
	return out, err
}

// byID orders objects by one or two ids.
func byID[T any](ids func(T) [2]uint32) func(a, b T) int {
	return func(a, b T) int {
		x, y := ids(a), ids(b)
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]))
	}
}
