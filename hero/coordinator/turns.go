package coordinator

import "context"

// manyTurns is enough that contexts seldom share one; Redis has 16 databases as
// it comes.
const manyTurns = 64

// turns lets one call at a time look at a context and then write it: a flow
// cannot start between the look that it has not and the write that follows.
type turns [manyTurns]chan struct{}

func newTurns() turns {
	var t turns
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

// take waits for the turn of a context; 0 is the actors'. The turn must be
// given back.
func (t *turns) take(ctx context.Context, id uint32) (back func(), err error) {
	turn := t[id%manyTurns]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
