package redisdb

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// read is how a kind of object is read from its hash.
type read[T hero.Object] func(key string, h map[string]string) (T, error)

// get reads one object.
func get[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T]) (object T, err error) {
	op := "read " + key
	c, err := d.at(op, in, key)
	if err != nil {
		return object, err
	}
	var h map[string]string
	err = d.try(ctx, op, in, func() error {
		object, h, err = load(ctx, c, key, read)
		return err
	})
	if err == nil && len(h) == 0 {
		err = missing(key)
	}
	return object, err
}

func missing(key string) error { return edda.Classify(edda.Permanent, "%s: %w", key, ErrNotFound) }

// load reads one object and its hash; both are empty where there is none.
func load[T hero.Object](ctx context.Context, c *lane, key string, read read[T]) (object T, h map[string]string, err error) {
	if h, err = c.HGetAll(ctx, key).Result(); err != nil || len(h) == 0 {
		return object, nil, err
	}
	object, err = read(key, h)
	return object, h, err
}

// at is the way to a key: actors are in database 0, all else in a context's.
func (d *DB) at(op string, in uint32, key string) (*lane, error) {
	if in == 0 && strings.HasPrefix(key, "actor:") {
		return d.lane(0)
	}
	return d.tenant(op, in)
}

// change is what is written to a hash, if the field that guards it is as it was read.
type change struct {
	guard  string
	set    map[string]string
	remove []string
}

// changeScript writes fields of a hash and answers 1. If the hash appeared, disappeared or
// has another guarding field than the caller read, it answers 0 and writes nothing. It
// sets before it removes: where memory is short, Redis refuses only the first.
// KEYS hash. ARGV: is it there, guarding field, its value, how many fields to remove,
// those, then names and values to set.
var changeScript = redis.NewScript(`
local there, guard, value, gone = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local now = redis.call('HGET', KEYS[1], guard) or ''
if tostring(redis.call('EXISTS', KEYS[1])) ~= there or now ~= value then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 5 + gone))
if gone > 0 then redis.call('HDEL', KEYS[1], unpack(ARGV, 5, 4 + gone)) end
return 1`)

// among is the names that the hash has.
func among(names []string, h map[string]string) []any {
	var out []any
	for _, name := range names {
		if _, there := h[name]; there {
			out = append(out, name)
		}
	}
	return out
}

// appendFields appends names and values, in the order of the names.
func appendFields(args []any, fields map[string]string) []any {
	names := slices.AppendSeq(make([]string, 0, len(fields)), maps.Keys(fields))
	slices.Sort(names)
	args = slices.Grow(args, 2*len(names))
	for _, name := range names {
		args = append(args, name, fields[name])
	}
	return args
}

// conflicts bounds how often a change or a step is decided again because other clients
// wrote the same keys.
const conflicts = 20

// update reads a hash, decides in Go what to change, and has changeScript write that. If
// another client was faster it reads and decides again, as it does after a lost answer: so
// decide must recognise its own work. An object that is missing is an empty object and an
// empty hash. A change that sets nothing writes nothing.
func update[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T], decide func(T, map[string]string) (change, error)) error {
	op := "write " + key
	c, err := d.at(op, in, key)
	if err != nil {
		return err
	}
	return d.try(ctx, op, in, func() error {
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
			n, err := changeScript.Run(ctx, c, []string{key}, appendFields(args, ch.set)...).Int()
			if err != nil || n == 1 {
				return err
			}
		}
		return errBusy
	})
}

// put writes an object whole: over nothing, or over a hash that can be read,
// whose other fields it leaves alone. stamp fits the object to what is there.
func put[T hero.Object](ctx context.Context, d *DB, in uint32, o T, guard string, read read[T], stamp func(o *T, was T, there bool) error) error {
	return update(ctx, d, in, o.Key(), read, func(was T, h map[string]string) (change, error) {
		whole := o
		if err := stamp(&whole, was, len(h) > 0); err != nil {
			return change{}, err
		}
		return change{guard: guard, set: hero.Fields(whole), remove: hero.Absent(whole)}, nil
	})
}

// remove deletes an object that is there and can be read.
func remove[T hero.Object](ctx context.Context, d *DB, in uint32, key string, read read[T]) error {
	if _, err := get(ctx, d, in, key, read); err != nil {
		return err
	}
	c, err := d.at("delete "+key, in, key)
	if err != nil {
		return err
	}
	return d.try(ctx, "delete "+key, in, func() error { return c.Del(ctx, key).Err() })
}
