package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edda"
	"edda/cluster"
	"edda/server"
	"edda/store"
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

// waitedForLog returns when a transaction of the store last waited for the log; zero for a process that is alone.
func (t *stay) waitedForLog() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.shipper.Load().Waited()
}

// openStore opens the store of a process: the copy that the node has kept as a standby, as it is.
func (t *stay) openStore(dir string, o store.Options) (*store.DB, error) {
	if t == nil || t.copy == nil {
		return store.Open(dir, o)
	}
	r := t.copy
	t.copy = nil
	db, err := r.Promote(o)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return db, nil
}

// listens tells the other nodes where this one answers.
func (t *stay) listens(addr string) {
	if t != nil {
		t.say(func(b *cluster.Beat) { b.URL = t.settings.advertised(addr) })
	}
}

const (
	// sickEvery is how often the owner looks whether its store can be written.
	sickEvery = time.Second
	// sickAfter is how long the store of an owner may refuse commits, such as on a full disk, before another node takes
	// over.
	sickAfter = 5 * time.Second
)

// keepOwning returns why this node does not own the log any more, or nil when ctx ends. An owner whose store cannot be
// written hands over, if there is an heir.
func (t *stay) keepOwning(ctx context.Context, store func() error, heir func() string) error {
	s := t.shipper.Load()
	tick := time.NewTicker(sickEvery)
	defer tick.Stop()
	var since time.Time // when the store began to refuse commits; zero while it does not
	for {
		select {
		case <-s.Lost():
			// Stop what this node still does for its store, because the log is not its own any more.
			if n := t.nodes.Load(); n != nil {
				n.Fence().Shut()
			}
			return s.Err()
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		sick := store()
		switch {
		case sick == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= sickAfter && heir() != "":
			return fmt.Errorf("%w: %w", errSick, sick)
		}
	}
}

// errSick ends a process whose store cannot be written, while another node has a copy that can.
var errSick = edda.Classify(edda.Temporary, "this node hands over, because its store cannot be written")

// setProcess sets how the process is asked to stop, and how acts are audited in its store.
func (t *stay) setProcess(stop func(), audit func(ctx context.Context, who server.Operator, verb, detail string)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopProcess, t.audit = stop, audit
}

// hurried is the log of an owner. It must take each append within shipWithin once the stop of the process has begun.
type hurried struct {
	cluster.Log
	stops context.Context // done when the stop begins
}

func (l hurried) Append(ctx context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(l.stops, func() { time.AfterFunc(shipWithin, func() { end(errShippingEnded) }) })()
	return l.Log.Append(ctx, after, r)
}

// ends begins the stop of the process.
func (t *stay) ends() {
	if t != nil {
		t.hurry()
	}
}

// stays reports whether the node goes on as a standby after its process has ended for a cause.
func (t *stay) stays(cause error) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moves || outlived(cause) || errors.Is(cause, errSick)
}

// outlived reports whether a process ended because another node has taken over.
func outlived(err error) bool {
	return errors.Is(err, cluster.ErrFenced) || errors.Is(err, cluster.ErrMoved) || errors.Is(err, kv.ErrLeaseLost)
}
