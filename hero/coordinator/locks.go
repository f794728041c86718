package coordinator

import "context"

// stripes is enough that contexts seldom share a lock: Redis has 16 databases by default.
const stripes = 64

// locks are striped mutexes, by context. Under a lock a call reads a context and then
// writes it, so that no flow starts between the two.
type locks [stripes]chan struct{}

func newLocks() locks {
	var l locks
	for i := range l {
		l[i] = make(chan struct{}, 1)
	}
	return l
}

// lock waits for the lock of a context, or of the actors for 0. The caller must unlock it.
func (l *locks) lock(ctx context.Context, id uint32) (unlock func(), err error) {
	held := l[id%stripes]
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
