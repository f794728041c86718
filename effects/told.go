package effects

import "sync"

// maxTold commands are remembered: more than a stream hands out of one effect
// before some of them are settled.
const maxTold = 8192

// told remembers which commands the log has heard of. The zero value works.
type told struct {
	mu    sync.Mutex // guards below
	names map[taskName]bool
	order []taskName // oldest first
}

// first tells whether this is the first time that it is asked of the command,
// as far as is remembered.
func (t *told) first(n taskName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names[n] {
		return false
	}
	if t.names == nil {
		t.names = map[taskName]bool{}
	}
	if len(t.order) == maxTold {
		delete(t.names, t.order[0])
		t.order = t.order[1:]
	}
	t.names[n], t.order = true, append(t.order, n)
	return true
}
