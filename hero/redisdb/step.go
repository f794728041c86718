package redisdb

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// step is an atomic change of a few keys that depends on them, for the hot path: it looks
// at its keys, decides, and writes. Redis does all of the writes if no key changed since
// the look, else none, and the step looks again. It must recognise its own work, because
// it is repeated when an answer was lost.
//
// A script does the same in one trip. But its texts pass through Lua word by word, which
// takes Redis twice as long as the commands alone.
type step struct {
	keys   []string // read and written
	list   string   // the list to push a key on; "" for none
	bytes  int      // written, about
	look   func(redis.Pipeliner)
	decide func(*writes) error // after the look; may write nothing
	err    error
	wrote  []redis.Cmder
}

// writes collects the commands of the steps of one batch. The pushes on one list are one
// command after all hashes: the consumer of a key finds its hash.
type writes struct {
	step  *step
	all   []redis.Cmder
	lists []string
	push  map[string]*[]any
	of    map[string][]*step
}

func (w *writes) do(words ...any) {
	cmd := redis.NewCmd(context.Background(), words...)
	w.step.wrote, w.all = append(w.step.wrote, cmd), append(w.all, cmd)
}

// set writes fields of a hash. Names and values alternate.
func (w *writes) set(key string, pairs ...any) {
	words := make([]any, 0, 2+len(pairs))
	w.do(append(append(words, "HSET", key), pairs...)...)
}

// pushes puts a key at the end of the step's list.
func (w *writes) pushes(key string) {
	list := w.step.list
	if w.push[list] == nil {
		w.lists, w.push[list] = append(w.lists, list), &[]any{"LPUSH", list}
	}
	*w.push[list] = append(*w.push[list], key)
	w.of[list] = append(w.of[list], w.step)
}

// close appends the pushes.
func (w *writes) close() {
	for _, list := range w.lists {
		cmd := redis.NewCmd(context.Background(), *w.push[list]...)
		w.all = append(w.all, cmd)
		for _, s := range w.of[list] {
			s.wrote = append(s.wrote, cmd)
		}
	}
}

// step runs a step, coalesced with others.
func (c *database) step(ctx context.Context, s *step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.steps.Do(ctx, s, s.bytes)
	return s.err
}

// The tries of steps whose keys other clients change: together, then each alone.
const (
	togetherTries = 3
	aloneTries    = conflicts
)

// errBusy means that other clients wrote the keys of a change or a step at each try.
var errBusy = errors.New("other clients change it all the time")

// transact does the steps. A step that Redis refuses, or whose keys others change all the
// time, does not hinder the others. If Redis does not answer one step it fails the rest:
// each would time out.
func (c *database) transact(ctx context.Context, steps []*step) {
	ctx = context.WithoutCancel(ctx) // the others' steps do not end with the leader's context
	if len(steps) > 1 && c.together(ctx, steps) {
		return
	}
	for i, s := range steps {
		if err := c.alone(ctx, s); err != nil {
			fail(steps[i:], err)
			return
		}
	}
}

func fail(steps []*step, err error) {
	for _, s := range steps {
		s.err = err
	}
}

// together does the steps in one transaction. It returns false if each is to be done alone.
func (c *database) together(ctx context.Context, steps []*step) bool {
	for range togetherTries {
		err := c.once(ctx, steps)
		if err == nil {
			return true
		}
		var said redis.Error
		if !errors.As(err, &said) { // the network
			fail(steps, err)
			return true
		}
		if !errors.Is(err, redis.TxFailedErr) {
			return false
		}
	}
	return false
}

// alone does one step. It returns an error of the network only.
func (c *database) alone(ctx context.Context, s *step) error {
	for range aloneTries {
		err := c.once(ctx, []*step{s})
		if err == nil {
			return nil
		}
		var said redis.Error
		if s.err = err; !errors.As(err, &said) {
			return err
		}
		if !errors.Is(err, redis.TxFailedErr) {
			return nil
		}
	}
	s.err = errBusy
	return nil
}

// once looks, decides and writes. If it returns nil, each step has its own error, of its
// look or its decision; else none of them was done.
func (c *database) once(ctx context.Context, steps []*step) error {
	return c.Watch(ctx, func(tx *redis.Tx) (err error) {
		watched := true
		defer func() {
			if watched { // the connection goes back to the pool
				_ = tx.Unwatch(ctx).Err()
			}
		}()
		lists, err := look(ctx, tx, steps)
		if err != nil {
			return err
		}
		w := &writes{push: map[string]*[]any{}, of: map[string][]*step{}}
		for _, s := range steps {
			w.step, s.wrote = s, nil
			if s.err = lists[s.list]; s.err == nil {
				s.err = s.decide(w)
			}
		}
		w.close()
		watched = len(w.all) == 0
		return write(ctx, tx, w, steps)
	}) // look watches the keys, which saves a trip
}

// look watches the keys, reads what the steps depend on, and checks that they push on
// lists: a transaction goes on when one of its commands fails. It returns the error of
// each list, and an error of the network.
func look(ctx context.Context, tx *redis.Tx, steps []*step) (map[string]error, error) {
	pipe := tx.Pipeline()
	watch := []any{"WATCH"}
	for _, s := range steps {
		for _, key := range s.keys {
			watch = append(watch, key)
		}
	}
	watching := pipe.Do(ctx, watch...)
	lengths := map[string]*redis.IntCmd{}
	for _, s := range steps {
		if s.list != "" && lengths[s.list] == nil {
			lengths[s.list] = pipe.LLen(ctx, s.list)
		}
		s.look(pipe)
	}
	cmds, err := pipe.Exec(ctx)
	if err := unheard(cmds, err); err != nil {
		return nil, err
	}
	if err := watching.Err(); err != nil {
		return nil, err
	}
	lists := map[string]error{}
	for list, n := range lengths {
		lists[list] = n.Err()
	}
	return lists, nil
}

// write executes the commands, all or none.
func write(ctx context.Context, tx *redis.Tx, w *writes, steps []*step) error {
	if len(w.all) == 0 {
		return nil
	}
	pipe := tx.TxPipeline()
	for _, cmd := range w.all {
		_ = pipe.Process(ctx, cmd) // only noted
	}
	_, err := pipe.Exec(ctx)
	if err == nil {
		return nil
	}
	if err := unheard(w.all, err); err != nil {
		return err
	}
	if redis.HasErrorPrefix(err, aborted) { // Redis refused one command, and did none
		if at := slices.IndexFunc(w.all, refused); at >= 0 {
			err = w.all[at].Err()
		}
		if redis.IsReadOnlyError(err) {
			// Redis became a replica, and its name may lead to the new primary, which only a
			// new connection finds. The client drops a connection whose command was
			// refused, but not one whose transaction was.
			_ = tx.Do(ctx, "quit").Err()
			_ = tx.Ping(ctx).Err() // breaks the connection, so that it is not used again
		}
		return err
	}
	if errors.Is(err, redis.TxFailedErr) {
		return err
	}
	for _, s := range steps { // Redis did the other commands
		if at := slices.IndexFunc(s.wrote, refused); at >= 0 {
			s.err = s.wrote[at].Err()
		}
	}
	return nil
}

// aborted begins Redis's answer to a transaction with a refused command.
const aborted = "EXECABORT"

func refused(cmd redis.Cmder) bool {
	return cmd.Err() != nil && !strings.HasPrefix(cmd.Err().Error(), aborted)
}

// unheard returns the error of a command that Redis did not answer, by the pipeline's error
// and those of its commands; nil if it answered all.
func unheard(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		var said redis.Error
		if e := cmd.Err(); e != nil && !errors.As(e, &said) {
			return e
		} else if e != nil {
			err = nil // the pipeline's error is this one
		}
	}
	return err
}
