package node

import (
	"context"
	"errors"
	"time"

	"edda/cluster"
	"edda/stream/kv"
)

// What a process that owns a cluster's store needs of its stay. The methods of a nil stay are those of a process
// that is alone.

// ship returns how the store ships its transactions; nil for a process that is alone.
func (t *stay) ship() func(seq uint64, entry []byte) (wait func() error) {
	if t == nil {
		return nil
	}
	return t.shipper.Load().Ship
}

// epoch is that of the ownership; 0 for a process that is alone.
func (t *stay) epoch() uint64 {
	if t == nil {
		return 0
	}
	return t.owned.Epoch
}

// listens tells the other nodes where this one answers.
func (t *stay) listens(addr string) {
	if t != nil {
		t.say(func(b *cluster.Beat) { b.URL = t.settings.advertised(addr) })
	}
}

// keepOwning returns why this node does not own the log any more, or nil when ctx ends.
func (t *stay) keepOwning(ctx context.Context) error {
	s := t.shipper.Load()
	select {
	case <-s.Lost():
		return s.Err()
	case <-ctx.Done():
		return nil
	}
}

// stopsBy sets how the process is asked to stop.
func (t *stay) stopsBy(stop func()) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopProcess = stop
}

// ends bounds how long the stop of the process waits for the log.
func (t *stay) ends() {
	if t != nil {
		time.AfterFunc(shipWithin, t.endShipping)
	}
}

// stays reports whether the node goes on as a standby after its process has ended for a cause.
func (t *stay) stays(cause error) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moves || outlived(cause)
}

// outlived reports whether a process ended because another node has taken over.
func outlived(err error) bool {
	return errors.Is(err, cluster.ErrFenced) || errors.Is(err, cluster.ErrMoved) || errors.Is(err, kv.ErrLeaseLost)
}
