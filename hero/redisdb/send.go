package redisdb

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// sentKey remembers the id that a command was given.
func sentKey(command string) string { return "edda:sent:" + command }

// commandField holds, in the hash, the command that made it and was pushed: it
// is known for as long as the hash is there.
const commandField = "edda_command"

// sendScript makes a hash and pushes its key on a list, once for a command. It
// answers {what, id}: 1 made, 0 made before, 2 the hash is another's, or is no
// longer what was seen.
//
// What a script wrote before it fails stays written. So it looks before it
// writes, and writes in an order in which every beginning does no harm: a hash
// that nothing points to; then the key in the list; then, by two marks of which
// either is enough, that it was pushed.
//
// What is made of nothing takes the shorter way of making.
var sendScript = redis.NewScript(`
local sent, hash, list = KEYS[1], KEYS[2], KEYS[3]
local command, id, remember, there, status = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local before = redis.call('GET', sent)
if before then return {0, tonumber(before)} end
local exists = redis.call('EXISTS', hash) == 1
if exists and redis.call('HGET', hash, '` + commandField + `') == command then
  redis.call('SET', sent, id, 'EX', remember)
  return {0, tonumber(id)}
end
if exists ~= (there == '1') or exists and (redis.call('HGET', hash, 'status') or '') ~= status then return {2, 0} end
if list then redis.call('LLEN', list) end
local gone = tonumber(ARGV[6])
redis.call('HSET', hash, unpack(ARGV, 7 + gone))
if gone > 0 then redis.call('HDEL', hash, unpack(ARGV, 7, 6 + gone)) end
if list then
  local pushed = redis.pcall('LPUSH', list, hash)
  if type(pushed) == 'table' and pushed.err then
    if there == '0' then redis.pcall('DEL', hash) end
    return pushed
  end
end
redis.call('HSET', hash, '` + commandField + `', command)
redis.call('SET', sent, id, 'EX', remember)
return {1, tonumber(id)}`)

// The answers of sendScript.
const (
	sentBefore = 0
	sentNow    = 1
	sentTaken  = 2
)

// probes bounds the ids that are tried for one command: with a million objects
// of one caller the second try is already rare.
const probes = 16

// maxCommand bounds a command id, which is a part of a key.
const maxCommand = 512

// derived is the id of a command's object: the same again for the same command,
// and never 0.
func derived(kind, command string, caller uint32, probe int) uint32 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s", kind, caller, probe, command))
	return max(1, binary.BigEndian.Uint32(sum[:]))
}

// Send makes a message and pushes its key on msg_out, in one step, once for a
// command: again, it returns the same id and fresh is false. A message without
// an id gets one that is derived from the command; an id that is another
// message's is ErrExists.
func (d *DB) Send(ctx context.Context, in uint32, command string, m hero.Message) (id uint32, fresh bool, err error) {
	return d.message(ctx, in, command, hero.MsgOut, m)
}

// Arrive is Send for a message that came: its key goes on msg_in.
func (d *DB) Arrive(ctx context.Context, in uint32, command string, m hero.Message) (id uint32, fresh bool, err error) {
	return d.message(ctx, in, command, hero.MsgIn, m)
}

func (d *DB) message(ctx context.Context, in uint32, command, list string, m hero.Message) (id uint32, fresh bool, err error) {
	m.Status = hero.MessageDispatched
	d.stamp(&m.CreatedAt, &m.UpdatedAt, 0)
	own := m.ID
	return d.send(ctx, in, command, list, own != 0, func(probe int) hero.Object {
		if own == 0 {
			m.ID = derived("message", command, m.CallerID, probe)
		}
		return m
	})
}

// Create makes a job and pushes its key on a queue, in one step, once for a
// command, as Send does; queue "" pushes nothing. A job with an id that is there
// already is replaced and pushed again, unless it started or ended: that is
// ErrIllegal.
func (d *DB) Create(ctx context.Context, in uint32, command string, j hero.Job, queue string) (id uint32, fresh bool, err error) {
	d.stamp(&j.CreatedAt, &j.UpdatedAt, 0)
	own := j.ID
	id, fresh, err = d.send(ctx, in, command, queue, own != 0, func(probe int) hero.Object {
		if own == 0 {
			j.ID = derived("job", command, j.CallerID, probe)
		}
		return j
	})
	if own != 0 && errors.Is(err, ErrExists) {
		return d.recreate(ctx, in, command, j, queue)
	}
	return id, fresh, err
}

// recreate pushes a job that is there already.
func (d *DB) recreate(ctx context.Context, in uint32, command string, j hero.Job, queue string) (id uint32, fresh bool, err error) {
	op := "queue " + j.Key()
	c, err := d.tenant(op, in)
	if err != nil {
		return 0, false, err
	}
	err = d.try(ctx, op, in, func() error {
		for range conflicts {
			was, h, err := load(ctx, c, j.Key(), hero.ReadJob)
			if err != nil {
				return err
			}
			d.stamp(&j.CreatedAt, &j.UpdatedAt, was.CreatedAt)
			if len(h) > 0 && h[commandField] != command && was.Status != hero.JobWaiting && was.Status != hero.JobDispatched {
				return illegal(j.Key(), string(was.Status), "queued")
			}
			what, n, err := d.sendOnce(ctx, c, command, queue, j, h)
			if err != nil || what != sentTaken {
				id, fresh = n, what == sentNow
				return err
			}
		}
		return &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: "others change it all the time"}
	})
	return id, fresh, err
}

// send runs the script with one object after the other until an id is free.
func (d *DB) send(ctx context.Context, in uint32, command, list string, own bool, object func(probe int) hero.Object) (id uint32, fresh bool, err error) {
	op := "send " + object(0).Key()
	c, err := d.tenant(op, in)
	if err != nil {
		return 0, false, err
	}
	if command == "" || len(command) > maxCommand {
		return 0, false, edda.Classify(edda.Permanent, "%s: the command id has %d bytes: want 1 to %d", op, len(command), maxCommand)
	}
	for probe := range probes {
		what := sentTaken
		o := object(probe)
		fresh := d.making(ctx, command, list, o)
		err = d.try(ctx, op, in, func() error {
			if err := c.step(ctx, fresh.step); err != nil || fresh.made {
				what, id = sentNow, fresh.id
				return err
			}
			what, id, err = d.sendOnce(ctx, c, command, list, o, nil)
			return err
		})
		d.short.note(err, d.now())
		switch {
		case err != nil || what != sentTaken:
			return id, what == sentNow, err
		case own:
			return 0, false, edda.Classify(edda.Permanent, "%s: %w", o.Key(), ErrExists)
		}
	}
	return 0, false, &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: "found no free id: delete what is done"}
}

// making is what nearly every send is: the command was never heard of, and nobody
// has the id. What else there may be is the script's to find out.
type making struct {
	*step
	id   uint32
	made bool
}

func (d *DB) making(ctx context.Context, command, list string, o hero.Object) *making {
	key, sent, pairs := o.Key(), sentKey(command), append(o.Pairs(), commandField, command)
	m := &making{id: idOf(pairs)}
	var there *redis.IntCmd
	m.step = &step{
		keys: []string{sent, key}, list: list, bytes: size(pairs),
		look: func(p redis.Pipeliner) { there = p.Exists(ctx, sent, key) },
		decide: func(to *writes) error {
			n, err := there.Result()
			if m.made = err == nil && n == 0; !m.made {
				return err
			}
			to.set(key, pairs...)
			to.do("SET", sent, m.id, "EX", int64(math.Ceil(d.remember.Seconds())))
			if list != "" {
				to.pushes(key)
			}
			return nil
		},
	}
	return m
}

// idOf is the id among an object's fields.
func idOf(pairs []any) uint32 {
	id, _ := pairs[slices.Index(pairs, any("id"))+1].(string)
	n, _ := strconv.ParseUint(id, 10, 32) // it was written from a number
	return uint32(n)
}

// sendOnce runs the script over a hash that was seen, or none.
func (d *DB) sendOnce(ctx context.Context, c *lane, command, list string, o hero.Object, seen map[string]string) (what int, id uint32, err error) {
	fields := o.Fields()
	there, status := "0", ""
	if len(seen) > 0 {
		there, status = "1", seen["status"]
	}
	keys := []string{sentKey(command), o.Key()}
	if list != "" {
		keys = append(keys, list)
	}
	var gone []any
	if len(seen) > 0 {
		gone = among(hero.Absent(o), seen)
	}
	args := append([]any{command, fields["id"], int64(math.Ceil(d.remember.Seconds())), there, status, len(gone)}, gone...)
	args = appendFields(args, fields)
	answer, err := sendScript.Run(ctx, c, keys, args...).Int64Slice()
	if err != nil {
		return 0, 0, err
	}
	return int(answer[0]), uint32(answer[1]), nil
}
