package redisdb

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// step is a change of a few keys, that depends on them: it looks at its keys,
// decides, and writes. Redis does all of the writes if no key changed since the
// look, else none, and the step looks again. So it happens whole or not at all. It
// must know its own work, for it is done again where an answer was lost.
//
// A script does the same in one trip; but what it writes goes through Lua word by
// word, which takes Redis twice as long as the commands alone.
type step struct {
	keys   []string // what it looks at and writes
	list   string   // what it pushes its key on; "" is none
	bytes  int      // how much it writes, about
	look   func(redis.Pipeliner)
	decide func(*writes) error // after the look; writing nothing is a decision, too
	err    error
	wrote  []redis.Cmder
}

// writes are what the steps of one batch write, and push. Pushes on one list go
// in one command, after all hashes: who takes a key finds its hash.
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

// set writes fields of a hash: names and values in turns.
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

// close appends what is pushed.
func (w *writes) close() {
	for _, list := range w.lists {
		cmd := redis.NewCmd(context.Background(), *w.push[list]...)
		w.all = append(w.all, cmd)
		for _, s := range w.of[list] {
			s.wrote = append(s.wrote, cmd)
		}
	}
}

// step does a step, with others.
func (l *lane) step(ctx context.Context, s *step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.steps.Do(ctx, s, s.bytes)
	return s.err
}

// The bounds of looking again because others changed a key: together, and then
// each by itself.
const (
	togetherTries = 3
	aloneTries    = conflicts
)

// errBusy: other clients wrote the keys of a change or a step at each try.
var errBusy = errors.New("other clients change it all the time")

// transact does the steps. What Redis refuses of one, or others change all the
// time, keeps no other from being done; a Redis that does not answer is not asked
// for each of them, which would take its time as often.
func (l *lane) transact(ctx context.Context, steps []*step) {
	ctx = context.WithoutCancel(ctx) // the others' steps do not end with the leader's context
	if len(steps) > 1 && l.together(ctx, steps) {
		return
	}
	for i, s := range steps {
		if err := l.alone(ctx, s); err != nil {
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

// together does the steps in one transaction; false: each is to be done by itself.
func (l *lane) together(ctx context.Context, steps []*step) bool {
	for range togetherTries {
		err := l.once(ctx, steps)
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

// alone does one step; the error is the network's.
func (l *lane) alone(ctx context.Context, s *step) error {
	for range aloneTries {
		err := l.once(ctx, []*step{s})
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

// once looks, decides and writes. Each step has its own error, of its look or its
// decision, where the answer is nil; else none of them was done.
func (l *lane) once(ctx context.Context, steps []*step) error {
	return l.Watch(ctx, func(tx *redis.Tx) (err error) {
		watched := true
		defer func() {
			if watched { // or the connection would keep what it watches
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
	}) // the keys are watched by the look, which saves a trip
}

// look asks what the steps depend on, and whether what they push on are lists: a
// transaction goes on where one of its commands fails. The answer is what is in the
// way of each list; the error is the network's.
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

// write writes all or nothing.
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
	if redis.HasErrorPrefix(err, aborted) { // one of them was refused, and so none was done
		if at := slices.IndexFunc(w.all, refused); at >= 0 {
			err = w.all[at].Err()
		}
		if redis.IsReadOnlyError(err) {
			leave(ctx, tx)
		}
		return err
	}
	if errors.Is(err, redis.TxFailedErr) {
		return err
	}
	for _, s := range steps { // the others were done
		if at := slices.IndexFunc(s.wrote, refused); at >= 0 {
			s.err = s.wrote[at].Err()
		}
	}
	return nil
}

// leave gives the connection up. The Redis was made a replica, and its name may lead
// to the new primary, which only a new connection finds out. The client does so by
// itself where a command is refused, but not where a transaction is.
func leave(ctx context.Context, tx *redis.Tx) {
	_ = tx.Do(ctx, "quit").Err()
	_ = tx.Ping(ctx).Err() // a broken connection is not used again
}

// aborted is what Redis says of a transaction of which it refused a part.
const aborted = "EXECABORT"

func refused(cmd redis.Cmder) bool {
	return cmd.Err() != nil && !strings.HasPrefix(cmd.Err().Error(), aborted)
}

// unheard is why there is a command that Redis did not answer, by what a pipeline
// says and what it notes of each; nil: it answered them all.
func unheard(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		var said redis.Error
		if e := cmd.Err(); e != nil && !errors.As(e, &said) {
			return e
		} else if e != nil {
			err = nil // which speaks of this one
		}
	}
	return err
}
