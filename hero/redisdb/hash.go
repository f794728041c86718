package redisdb

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// read reads a kind of object from its hash.
type read[T hero.Object] func(key string, h map[string]string) (T, error)

// get reads one object.
func get[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T]) (object T, err error) {
	object, _, err = getHash(ctx, d, in, key, read)
	return object, err
}

// getHash reads one object and its hash.
func getHash[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T]) (object T, h map[string]string, err error) {
	err = d.at(ctx, "read "+key, in, key, func(c *database) error {
		object, h, err = load(ctx, c, key, read)
		return err
	})
	if err == nil && len(h) == 0 {
		err = missing(key)
	}
	return object, h, err
}

func missing(key string) error { return edda.Classify(edda.Permanent, "%s: %w", key, ErrNotFound) }

// load reads one object and its hash. Both are empty if there is none.
func load[T hero.Object](ctx context.Context, c *database, key string, read read[T]) (object T, h map[string]string, err error) {
	if h, err = c.HGetAll(ctx, key).Result(); err != nil || len(h) == 0 {
		return object, nil, err
	}
	object, err = read(key, h)
	return object, h, err
}

// lookup reads some fields of each hash in one trip. A missing hash is empty; a key that
// holds something else has nil.
func lookup(ctx context.Context, c *database, keys []string, names ...string) ([]map[string]string, error) {
	pipe, cmds := c.Pipeline(), make([]*redis.SliceCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.HMGet(ctx, key, names...)
	}
	if err := pipelined(pipe.Exec(ctx)); err != nil {
		return nil, err
	}
	out := make([]map[string]string, len(keys))
	for i, cmd := range cmds {
		if cmd.Err() == nil {
			out[i] = fieldsRead(cmd, names...)
		}
	}
	return out, nil
}

// fieldsRead returns the fields of those names that a hash has.
func fieldsRead(cmd *redis.SliceCmd, names ...string) map[string]string {
	out := make(map[string]string, len(names))
	for i, v := range cmd.Val() {
		if text, ok := v.(string); ok {
			out[names[i]] = text
		}
	}
	return out
}

// pipelined returns the error of a pipeline that did not get through. What Redis refused of
// one command is in the command.
func pipelined(_ []redis.Cmder, err error) error {
	var said redis.Error
	if errors.As(err, &said) && !redis.HasErrorPrefix(err, "LOADING") && !redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}

// change is a write to a hash, if the field that guards it is as it was read.
type change struct {
	guard  string
	set    map[string]string
	remove []string
}

// changeScript writes fields of a hash and answers 1. If the hash appeared, disappeared or
// has another guarding field than the caller read, it answers 0 and writes nothing. It
// sets before it removes: where memory is short, Redis refuses only the first.
// KEYS hash. ARGV: 1 if the caller read a hash, guarding field, its value, number of fields
// to remove, those, then names and values to set.
var changeScript = redis.NewScript(`
local there, guard, value, gone = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local now = redis.call('HGET', KEYS[1], guard) or ''
if tostring(redis.call('EXISTS', KEYS[1])) ~= there or now ~= value then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 5 + gone))
if gone > 0 then redis.call('HDEL', KEYS[1], unpack(ARGV, 5, 4 + gone)) end
return 1`)

// among returns the names that the hash has.
func among(names []string, h map[string]string) []any {
	var out []any
	for _, name := range names {
		if _, there := h[name]; there {
			out = append(out, name)
		}
	}
	return out
}

// conflicts bounds the tries of a change or a step when other clients write the same keys.
const conflicts = 20

// update reads a hash, decides in Go what to change, and has changeScript write that. If
// another client was faster, or an answer was lost, it reads and decides again: decide
// must recognise its own work. A missing object is an empty object and an empty hash. A
// change that sets nothing writes nothing.
func update[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T], decide func(T, map[string]string) (change, error)) error {
	return d.at(ctx, "write "+key, in, key, func(c *database) error {
		for range conflicts {
			object, seen, err := load(ctx, c, key, read)
			if err != nil {
				return err
			}
			ch, err := decide(object, seen)
			if err != nil || len(ch.set) == 0 {
				return err
			}
			gone := among(ch.remove, seen)
			args := append([]any{min(len(seen), 1), ch.guard, seen[ch.guard], len(gone)}, gone...)
			for _, name := range slices.Sorted(maps.Keys(ch.set)) {
				args = append(args, name, ch.set[name])
			}
			n, err := changeScript.Run(ctx, c, []string{key}, args...).Int()
			if err != nil || n == 1 {
				return err
			}
		}
		return errBusy
	})
}

// edit is update for an object that must exist.
func edit[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T], decide func(T, map[string]string) (change, error)) error {
	return update(ctx, d, in, key, read, func(was T, h map[string]string) (change, error) {
		if len(h) == 0 {
			return change{}, missing(key)
		}
		return decide(was, h)
	})
}

// put writes an object whole, with its times: over nothing, or over a hash that can be
// read, whose other fields stay. check, if not nil, may refuse to replace an object.
func put[T hero.Object](ctx context.Context, d *DB, in uint32, o T, guard string, read read[T], check func(was T) error) error {
	return update(ctx, d, in, o.Key(), read, func(was T, h map[string]string) (change, error) {
		if check != nil && len(h) > 0 {
			if err := check(was); err != nil {
				return change{}, err
			}
		}
		set := hero.Fields(o)
		set["updated_at"] = decimal(d.seconds())
		for _, created := range []string{hero.Fields(was)["created_at"], set["created_at"], set["updated_at"]} {
			if created != "0" { // the first creation counts
				set["created_at"] = created
				break
			}
		}
		return change{guard: guard, set: set, remove: hero.Absent(o)}, nil
	})
}

// stamp sets the times of an object that is written. was is the time of an earlier
// creation, or 0.
func (d *DB) stamp(created, updated *uint32, was uint32) {
	*updated = d.seconds()
	switch {
	case was != 0:
		*created = was
	case *created == 0:
		*created = *updated
	}
}

// remove deletes an object that exists and can be read.
func remove[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T]) error {
	if _, err := get(ctx, d, in, key, read); err != nil {
		return err
	}
	return d.at(ctx, "delete "+key, in, key, func(c *database) error { return c.Del(ctx, key).Err() })
}

// scanBatch is the number of keys, and then of hashes, in one request: few enough that
// Redis serves other clients in between.
const scanBatch = 200

// scan reads every object of a kind, by id. It skips keys that are not the documents'.
// It returns the objects that it can read together with an error that joins a
// *hero.FieldError for each hash that it cannot.
func scan[T hero.Object](ctx context.Context, d *DB, in uint32, kind string, read read[T]) ([]T, error) {
	op := "list " + kind
	keys, _, err := d.keys(ctx, op, in, kind)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, d, op, in, keys, read)
}

// readAll reads the objects at some keys, in their order, as scan does.
func readAll[T hero.Object](ctx context.Context, d *DB, op string, in uint32, keys []string, read read[T]) ([]T, error) {
	objects := []T{}
	var broken []error
	for batch := range slices.Chunk(keys, scanBatch) {
		var hashes []redis.Cmder
		err := d.at(ctx, op, in, batch[0], func(c *database) (err error) {
			hashes, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range batch {
					p.HGetAll(ctx, key)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		for i, cmd := range hashes {
			h := cmd.(*redis.MapStringStringCmd).Val()
			if len(h) == 0 {
				continue // deleted meanwhile
			}
			o, err := read(batch[i], h)
			if err != nil {
				broken = append(broken, d.refused(op, in, err))
				continue
			}
			objects = append(objects, o)
		}
	}
	if len(broken) == 0 {
		return objects, nil
	}
	return objects, unreadable(broken)
}

// keys lists the keys of a kind's hashes, by id, each once. looked is about the number of
// keys that the search passed.
func (d *DB) keys(ctx context.Context, op string, in uint32, kind string) (keys []string, looked int, err error) {
	for cursor := uint64(0); ; {
		var page []string
		err := d.at(ctx, op, in, kind+":", func(c *database) (err error) {
			page, cursor, err = c.ScanType(ctx, cursor, kind+":*", scanBatch, "hash").Result()
			return err
		})
		if err != nil {
			return nil, looked, err
		}
		looked += scanBatch
		for _, key := range page {
			if hero.IsKey(kind, key) {
				keys = append(keys, key)
			}
		}
		if cursor == 0 {
			slices.SortFunc(keys, hero.CompareKeys)
			return slices.Compact(keys), looked, nil // a scan may return a key twice
		}
	}
}
