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

// sentKey returns the key that remembers the id of a command's object.
func sentKey(command string) string { return "edda:sent:" + command }

// commandField holds, in a hash, the command that made and pushed it. The command is known
// as long as the hash exists.
const commandField = "edda_command"

// probes bounds the ids that are tried for one command. With a million objects of one
// caller the second try is rare.
const probes = 16

// maxCommand bounds a command id in bytes, because it is a part of a key.
const maxCommand = 512

// derived returns the id of a command's object: always the same for a command, and never 0.
func derived(kind, command string, caller uint32, probe int) uint32 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s", kind, caller, probe, command))
	return max(1, binary.BigEndian.Uint32(sum[:]))
}

// Send makes a message and pushes its key on msg_out, in one step, once for a command: a
// repeated call returns the same id, and fresh is false. A message without an id gets one
// derived from the command. The id of another message is ErrExists.
func (d *DB) Send(ctx context.Context, in uint32, command string, m hero.Message) (id uint32, fresh bool, err error) {
	return d.message(ctx, in, command, hero.MsgOut, m)
}

// Arrive is Send for a message that arrived: its key goes on msg_in.
func (d *DB) Arrive(ctx context.Context, in uint32, command string, m hero.Message) (id uint32, fresh bool, err error) {
	return d.message(ctx, in, command, hero.MsgIn, m)
}

func (d *DB) message(ctx context.Context, in uint32, command, list string, m hero.Message) (id uint32, fresh bool, err error) {
	m.Status = hero.MessageDispatched
	d.stamp(&m.CreatedAt, &m.UpdatedAt, 0)
	if m.ID != 0 {
		refuse := func(map[string]string) (hero.Object, error) {
			return nil, edda.Classify(edda.Permanent, "%s: %w", m.Key(), ErrExists)
		}
		return d.send(ctx, in, command, list, refuse, func(int) hero.Object { return m })
	}
	return d.send(ctx, in, command, list, nil, func(probe int) hero.Object {
		m.ID = derived("message", command, m.CallerID, probe)
		return m
	})
}

// Create makes a job and pushes its key on a queue, in one step, once for a command, as
// Send does. An empty queue pushes nothing. An existing job of the given id is replaced
// and pushed again; if it has started or ended that is ErrIllegal.
func (d *DB) Create(ctx context.Context, in uint32, command string, j hero.Job, queue string) (id uint32, fresh bool, err error) {
	d.stamp(&j.CreatedAt, &j.UpdatedAt, 0)
	if j.ID == 0 {
		return d.send(ctx, in, command, queue, nil, func(probe int) hero.Object {
			j.ID = derived("job", command, j.CallerID, probe)
			return j
		})
	}
	replace := func(h map[string]string) (hero.Object, error) {
		was, err := hero.ReadJob(j.Key(), h)
		if err == nil && was.Status != hero.JobWaiting && was.Status != hero.JobDispatched {
			err = illegal(j.Key(), string(was.Status), "queued")
		}
		now := j
		d.stamp(&now.CreatedAt, &now.UpdatedAt, was.CreatedAt)
		return now, err
	}
	return d.send(ctx, in, command, queue, replace, func(int) hero.Object { return j })
}

// send tries the objects of all probes until an id is free. If replace is set, the caller
// chose the id, and replace returns the object to write over an existing hash.
func (d *DB) send(ctx context.Context, in uint32, command, list string, replace func(map[string]string) (hero.Object, error), object func(probe int) hero.Object) (id uint32, fresh bool, err error) {
	op := "send " + object(0).Key()
	if command == "" || len(command) > maxCommand {
		return 0, false, edda.Classify(edda.Permanent, "%s: the command id has %d bytes: want 1 to %d", op, len(command), maxCommand)
	}
	for probe := range probes {
		s := &sending{command: command, list: list, remember: int64(math.Ceil(d.remember.Seconds())), object: object(probe), replace: replace}
		err := d.at(ctx, op, in, s.object.Key(), func(c *database) error {
			s.outcome = sentUnsure
			err := c.step(ctx, s.step(ctx, false))
			if err == nil && s.outcome == sentUnsure {
				err = c.step(ctx, s.step(ctx, true))
			}
			return err
		})
		d.short.note(err, d.now())
		if err != nil || s.outcome != sentTaken {
			return s.id, err == nil && s.outcome == sentNow, err
		}
	}
	return 0, false, &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: "found no free id: delete what is done"}
}

// sending makes one object for a command.
type sending struct {
	command, list string
	remember      int64 // seconds
	object        hero.Object
	replace       func(map[string]string) (hero.Object, error)
	outcome       int
	id            uint32
}

// The outcomes of a sending.
const (
	sentUnsure = iota // the command or the hash exists: read them
	sentBefore        // the command has made its object
	sentNow
	sentTaken // the id is another object's
)

// step makes the object if neither its command nor its hash exists, as in nearly every
// sending. With whole it reads both and decides.
func (s *sending) step(ctx context.Context, whole bool) *step {
	key, sent := s.object.Key(), sentKey(s.command)
	pairs := append(hero.Pairs(s.object), commandField, s.command)
	var there *redis.IntCmd
	var before *redis.StringCmd
	var hash *redis.MapStringStringCmd
	look := func(p redis.Pipeliner) { there = p.Exists(ctx, sent, key) }
	decide := func(to *writes) error {
		s.outcome = sentUnsure // an earlier try may have set it
		if n, err := there.Result(); err != nil || n > 0 {
			return err
		}
		s.write(to, sent, key, pairs)
		return nil
	}
	if whole {
		look = func(p redis.Pipeliner) { before, hash = p.Get(ctx, sent), p.HGetAll(ctx, key) }
		decide = func(to *writes) error {
			id, err := before.Uint64()
			if err == nil {
				s.id, s.outcome = uint32(id), sentBefore
			}
			if !errors.Is(err, redis.Nil) {
				return err
			}
			h, err := hash.Result()
			switch {
			case err != nil:
				return err
			case h[commandField] == s.command:
				s.id, s.outcome = idOf(pairs), sentBefore
				to.do("SET", sent, s.id, "EX", s.remember)
			case len(h) > 0 && s.replace == nil:
				s.outcome = sentTaken
			case len(h) > 0:
				now, err := s.replace(h)
				if err != nil {
					return err
				}
				if gone := among(hero.Absent(now), h); len(gone) > 0 {
					to.do(append([]any{"HDEL", key}, gone...)...)
				}
				s.write(to, sent, key, append(hero.Pairs(now), commandField, s.command))
			default:
				s.write(to, sent, key, pairs)
			}
			return nil
		}
	}
	return &step{keys: []string{sent, key}, list: s.list, bytes: size(pairs), look: look, decide: decide}
}

func (s *sending) write(to *writes, sent, key string, pairs []any) {
	s.id, s.outcome = idOf(pairs), sentNow
	to.set(key, pairs...)
	to.do("SET", sent, s.id, "EX", s.remember)
	if s.list != "" {
		to.pushes(key)
	}
}

// idOf returns the id among an object's fields.
func idOf(pairs []any) uint32 {
	id, _ := pairs[slices.Index(pairs, any("id"))+1].(string)
	n, _ := strconv.ParseUint(id, 10, 32) // written from a number
	return uint32(n)
}
