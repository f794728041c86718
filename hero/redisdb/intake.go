package redisdb

import (
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// doubtful is the time after a broken connection in which Take searches its list for keys
// that Redis moved without an answer: a Redis that hung may still do what it was asked.
const doubtful = 10 * time.Second

// place is a list that this process takes keys into.
type place struct {
	context uint32
	list    string
}

// intakes are the intakes of this process, one for each place.
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

// intake counts the keys that this process took into one list. A key that the list holds
// beyond that is a stray: Redis moved it, and the answer was lost.
type intake struct {
	// moving is held for reading while Redis may move a key into the list or out of it,
	// and for writing while the list is compared with taken.
	moving sync.RWMutex

	mu    sync.Mutex     // guards taken and until
	taken map[string]int // how often the list should hold each key
	until time.Time      // until then the list may hold strays
}

// take runs a move and counts the key that it moved.
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

// takeAll runs several moves, counts the keys that they moved and passes each to took. It
// returns the first error.
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

// stray finds a stray in the list and counts it as taken. It returns "" if there is none, or
// no reason to look.
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

// left lists the keys and counts them all as taken.
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

// leaves runs remove, which removes a key from the list, and then counts the key no more.
// The list is not compared meanwhile: in between the key would seem a stray.
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
