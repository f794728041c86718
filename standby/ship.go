package standby

import (
	"context"
	"fmt"
	"sync/atomic"

	"edda"
	"edda/cluster"
	"edda/store"
	"edda/store/wal"
)

// Take makes a node the owner of the log. It applies to the replica what the log has behind a mark, and
// returns the mark behind the node's Own record. From then on the replica has all that was ever
// acknowledged, and nobody else can add to it: close it, open it as the store, and ship with a
// [NewShipper]. Take goes on until it owns the log or ctx ends, so the caller decides whether the node
// should try.
func Take(ctx context.Context, log cluster.Log, r *store.Replica, after cluster.Mark, node string, level int) (cluster.Mark, error) {
	at, err := cluster.Take(ctx, log, after, node, level, applyTo(r))
	if err != nil {
		return at, fmt.Errorf("take the log over: %w", err)
	}
	return at, nil
}

// Shipper ships the transactions of the store whose log a node owns.
type Shipper struct {
	ctx   context.Context
	log   cluster.Log
	node  string
	level int
	at    atomic.Pointer[cluster.Mark] // behind the last record that the log has acknowledged
}

// NewShipper ships behind the mark of the node's Own record until ctx ends. Whoever ends ctx has lost the
// ownership, or will not write any more: a transaction that is under way is then unsure.
func NewShipper(ctx context.Context, log cluster.Log, at cluster.Mark, node string, level int) *Shipper {
	s := &Shipper{ctx: ctx, log: log, node: node, level: level}
	s.at.Store(&at)
	return s
}

// Mark is the mark behind the last acknowledged record. It may be called at any time.
func (s *Shipper) Mark() cluster.Mark { return *s.at.Load() }

// Ship is [store.Options.Ship]: one append is in flight while the WAL writes and syncs the same entry. The
// store cannot write any more after an error, which is cluster.ErrFenced or cluster.ErrMoved if another
// node has taken over.
func (s *Shipper) Ship(seq uint64, entry []byte) (wait func() error) {
	at := s.Mark()
	r := at.Next(cluster.Entry, s.node, s.level, entry)
	if r.LSN != seq {
		err := edda.Classify(edda.Permanent, "transaction %d follows record %d of the log", seq, at.LSN)
		return func() error { return err }
	}
	r.State = wal.Point{Transaction: at.LSN, Sum: at.State}.Next(entry).Sum
	done := make(chan error, 1)
	go func() {
		next, err := s.log.Append(s.ctx, at, r)
		if err == nil {
			s.at.Store(&next)
		}
		done <- err
	}()
	return func() error { return <-done }
}
