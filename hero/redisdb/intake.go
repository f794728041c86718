package redisdb

import (
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// doubtful is how long after a broken connection a list is looked through for
// keys that Redis moved without an answer: a Redis that hung may still do what
// it was asked before.
const doubtful = 10 * time.Second

// place is a list that keys are taken into.
type place struct {
	context uint32
	list    string
}

// intakes are the lists that this process takes into.
type intakes struct {
	mu     sync.Mutex // guards places
	places map[place]*intake
}

func (s *intakes) at(p place) *intake {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, ok := s.places[p]
	if !ok {
		in = &intake{taken: map[string]int{}}
		s.places[p] = in
	}
	return in
}

// intake knows what this process took into one list, so that it can tell a key
// that it never heard of.
type intake struct {
	// moving is held for reading while Redis may move a key into the list or out of
	// it, and for writing while the list is compared with what was taken.
	moving sync.RWMutex

	mu    sync.Mutex     // guards what follows
	taken map[string]int // how often the list should hold each key
	until time.Time      // the list may hold more than that until then
}

// take runs a move and notes what it moved.
func (in *intake) take(move func() (string, error)) (string, error) {
	in.moving.RLock()
	defer in.moving.RUnlock()
	key, err := move()
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case err == nil:
		in.taken[key]++
	case !errors.Is(err, ErrEmpty):
		in.until = time.Now().Add(doubtful)
	}
	return key, err
}

// takeAll runs several moves, notes and tells what they moved, and returns what
// was in the way of the first of the others.
func (in *intake) takeAll(run func() []*redis.StringCmd, took func(key string)) (trouble error) {
	in.moving.RLock()
	defer in.moving.RUnlock()
	moves := run()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, move := range moves {
		key, err := move.Result()
		switch {
		case err == nil:
			in.taken[key]++
			took(key)
		case !errors.Is(err, redis.Nil) && trouble == nil:
			in.until, trouble = time.Now().Add(doubtful), err
		}
	}
	return trouble
}

// stray finds a key in the list that no caller received, and takes it; "" if there is
// no reason to look, or none.
func (in *intake) stray(list func() ([]string, error)) (string, error) {
	if !in.doubtful() {
		return "", nil
	}
	in.moving.Lock()
	defer in.moving.Unlock()
	keys, err := list()
	if err != nil {
		return "", err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	seen := map[string]int{}
	for _, key := range keys {
		if seen[key]++; seen[key] > in.taken[key] {
			in.taken[key]++
			return key, nil
		}
	}
	return "", nil
}

func (in *intake) doubtful() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return time.Now().Before(in.until)
}

// left lists the keys and takes them all.
func (in *intake) left(list func() ([]string, error)) ([]string, error) {
	in.moving.Lock()
	defer in.moving.Unlock()
	keys, err := list()
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	clear(in.taken)
	for _, key := range keys {
		in.taken[key]++
	}
	return keys, nil
}

// leaves runs what removes a key from the list, and forgets the key if that did.
// The list is not compared meanwhile: between the two the key would seem a stray.
func (in *intake) leaves(key string, remove func() (gone bool, err error)) error {
	in.moving.RLock()
	defer in.moving.RUnlock()
	gone, err := remove()
	if err != nil || !gone {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.taken[key]--; in.taken[key] <= 0 {
		delete(in.taken, key)
	}
	return nil
}
