package standby

import (
	"context"
	"sync/atomic"
	"time"

	"edda"
	"edda/cluster"
	"edda/store/wal"
)

// Shipper appends to the log that a node owns: the transactions of its store, the proof that it still owns the
// log, and the end of its ownership.
type Shipper struct {
	ctx    context.Context
	log    cluster.Log
	run    string
	level  int
	at     atomic.Pointer[cluster.Mark] // behind the last record that the log has acknowledged
	turn   chan struct{}                // capacity 1: one append is in flight
	waited atomic.Pointer[time.Time]    // end of the last append; nil while one is in flight
	lost   chan struct{}                // closed when an append has failed
	why    error                        // read it after lost is closed
}

// NewShipper appends behind the mark of the run's Own record until ctx ends. A transaction that is then under way
// is unsure.
func NewShipper(ctx context.Context, log cluster.Log, at cluster.Mark, run string, level int) *Shipper {
	s := &Shipper{ctx: ctx, log: log, run: run, level: level, turn: make(chan struct{}, 1), lost: make(chan struct{})}
	s.at.Store(&at)
	s.waited.Store(&time.Time{})
	return s
}

// Mark is the mark behind the last acknowledged record. It may be called at any time.
func (s *Shipper) Mark() cluster.Mark { return *s.at.Load() }

// Lost is closed when an append has failed, so that nothing can be appended any more.
func (s *Shipper) Lost() <-chan struct{} { return s.lost }

// Err is why nothing can be appended any more: cluster.ErrFenced or cluster.ErrMoved if another node has taken
// over. It is nil before Lost is closed.
func (s *Shipper) Err() error {
	select {
	case <-s.lost:
		return s.why
	default:
		return nil
	}
}

// Ship is [store.Options.Ship]: the WAL writes and syncs the entry while it is appended. The store cannot write any
// more after an error.
func (s *Shipper) Ship(seq uint64, entry []byte) (wait func() error) {
	done := make(chan error, 1)
	go func() {
		done <- s.append(func(at cluster.Mark) (cluster.Record, error) {
			r := at.Next(cluster.Entry, s.run, s.level, entry)
			if r.LSN != seq {
				return r, edda.Classify(edda.Permanent, "transaction %d follows record %d of the log", seq, at.LSN)
			}
			r.State = wal.Point{Transaction: at.LSN, Sum: at.State}.Next(entry).Sum
			return r, nil
		})
	}()
	return func() error { return <-done }
}

// append appends the next record. The appends of one owner are one after another.
func (s *Shipper) append(next func(cluster.Mark) (cluster.Record, error)) error {
	s.turn <- struct{}{}
	return s.appended(next)
}

// appended appends the next record for a caller that has the turn, and frees the turn.
func (s *Shipper) appended(next func(cluster.Mark) (cluster.Record, error)) error {
	s.waited.Store(nil)
	defer func() {
		now := time.Now()
		s.waited.Store(&now)
		<-s.turn
	}()
	if err := s.Err(); err != nil {
		return err
	}
	at := s.Mark()
	r, err := next(at)
	if err == nil {
		at, err = s.log.Append(s.ctx, at, r)
	}
	if err != nil {
		s.end(err)
		return err
	}
	if s.at.Store(&at); r.Kind == cluster.Seal {
		s.end(errSealed)
	}
	return nil
}

// Waited returns when an append was last in flight: now, while one is.
func (s *Shipper) Waited() time.Time {
	if at := s.waited.Load(); at != nil {
		return *at
	}
	return time.Now()
}

func (s *Shipper) end(why error) {
	s.why = why
	close(s.lost)
}

// Confirm returns nil when the log has acknowledged a record that was sent after the call. So no other node had
// taken the log over at the time of the call. A record that has the turn goes on its way also if ctx ends.
func (s *Shipper) Confirm(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case s.turn <- struct{}{}:
		go func() { done <- s.appended(s.plain(cluster.Keep, nil)) }()
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return edda.Classify(edda.Temporary, "the log does not answer: %w", context.Cause(ctx))
	}
}

// Seal appends the record that ends the ownership, and names the node that takes over, if the owner chose one. All
// transactions must be acknowledged. Nothing can be appended afterwards.
func (s *Shipper) Seal(heir string) error {
	return s.append(s.plain(cluster.Seal, []byte(heir)))
}

var errSealed = edda.Classify(edda.Permanent, "this node has handed the log over")

// plain is a record that has no transaction.
func (s *Shipper) plain(kind cluster.Kind, entry []byte) func(cluster.Mark) (cluster.Record, error) {
	return func(at cluster.Mark) (cluster.Record, error) { return at.Next(kind, s.run, s.level, entry), nil }
}
