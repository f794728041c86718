package standby

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"edda"
	"edda/cluster"
	"edda/store"
	"edda/store/wal"
)

// syncEvery is how often a replica makes what it applied durable. A crash of its machine costs no more than
// reading that much of the log again.
const syncEvery = time.Second

// ErrDiverged says that a replica has rows that the log does not have, and cannot give them up: the log has lost
// records, or the replica is of another log.
var ErrDiverged = errors.New("the replica has other rows than the log")

// Find returns the mark from which the replica reads on. It must be called before anything is applied.
//
// owned says that the replica was written by an owner since it followed the log last. An owner that was killed or
// replaced may have left one transaction that the log has not. Find cuts it off the replica if the log agrees with the
// replica on the transaction before. If the log gets the transaction later, the replica reads it from there. A replica
// that has only followed has nothing that the log never had.
//
// ErrDiverged says that the replica has more than that. cluster.ErrAbsent is then wrapped where the log ends before it.
// cluster.ErrTrimmed says that the log has begun behind the replica.
func Find(ctx context.Context, log cluster.Log, r *store.Replica, owned bool) (cluster.Mark, error) {
	at, err := find(ctx, log, r)
	if !owned || !errors.Is(err, ErrDiverged) {
		return at, err
	}
	if rewound, failed := rewind(ctx, log, r, errors.Is(err, cluster.ErrAbsent)); failed != nil {
		return at, fmt.Errorf("give up transaction %d: %w", r.LSN(), failed)
	} else if !rewound {
		return at, err
	}
	return find(ctx, log, r)
}

func find(ctx context.Context, log cluster.Log, r *store.Replica) (cluster.Mark, error) {
	point := r.Point()
	at, err := log.Find(ctx, point.Transaction)
	switch {
	case errors.Is(err, cluster.ErrAbsent):
		return at, edda.Classify(edda.Permanent, "transaction %d: %w: %w", point.Transaction, ErrDiverged, err)
	case err != nil:
		return at, err
	case at.Seq == 0: // the log begins with this replica
		at.State = point.Sum
	}
	return at, compare(r, at)
}

// rewind cuts the last transaction off the replica if the log agrees on the one before. ends says that the log ends before
// the last one. Where the log has another one in its place and begins with that, the replica is merely too old.
func rewind(ctx context.Context, log cluster.Log, r *store.Replica, ends bool) (bool, error) {
	last := r.LSN()
	if last == 0 {
		return false, nil
	}
	before, err := log.Find(ctx, last-1)
	switch {
	case errors.Is(err, cluster.ErrAbsent), errors.Is(err, cluster.ErrTrimmed) && ends:
		return false, nil
	case err != nil:
		return false, err
	case before.Seq == 0: // an empty log does not say what the replica had
		return false, nil
	}
	err = r.Rewind(wal.Point{Transaction: before.LSN, Sum: before.State})
	if errors.Is(err, wal.ErrNoRewind) {
		return false, nil
	}
	return err == nil, err
}

// Follow applies the records behind a mark to the replica until ctx ends or the log has one that the
// replica cannot apply. Each record is compared with what the replica has. tell is called with each applied
// record and the mark behind it.
func Follow(ctx context.Context, log cluster.Log, r *store.Replica, after cluster.Mark, tell func(cluster.Mark, cluster.Record)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		apply := applyTo(r)
		return log.Read(ctx, after, cluster.Forever, func(at cluster.Mark, rec cluster.Record) error {
			if err := apply(at, rec); err != nil {
				return err
			}
			tell(at, rec)
			return nil
		})
	})
	g.Go(func() error {
		ticker := time.NewTicker(syncEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if err := r.Sync(); err != nil {
					return err
				}
			case <-ctx.Done():
				return r.Sync()
			}
		}
	})
	return g.Wait()
}

// applyTo returns a visit that applies records to the replica.
func applyTo(r *store.Replica) cluster.Visit {
	return func(at cluster.Mark, rec cluster.Record) error {
		if rec.Level > cluster.Level {
			return edda.Classify(edda.Permanent, "record %d of the log has the level %d, and this version of Edda knows up to %d: "+
				"upgrade this node", rec.LSN, rec.Level, cluster.Level)
		}
		if rec.Kind == cluster.Entry {
			if err := r.Apply(rec.LSN, rec.Entry); err != nil {
				return fmt.Errorf("apply record %d of the log: %w", rec.LSN, classify(err))
			}
		}
		return compare(r, at)
	}
}

// classify makes errors of the entry permanent. Others are of the disk.
func classify(err error) error {
	if errors.Is(err, wal.ErrGap) || errors.Is(err, wal.ErrDamaged) || errors.Is(err, wal.ErrUnknown) {
		return edda.Classify(edda.Permanent, "%w", err)
	}
	return err
}

// compare returns ErrDiverged unless the replica has exactly what the owner had at a mark.
func compare(r *store.Replica, at cluster.Mark) error {
	if p := r.Point(); p.Transaction != at.LSN || p.Sum != at.State {
		return edda.Classify(edda.Permanent, "transaction %d has the checksum %08x, and record %d of the log has %08x: %w",
			p.Transaction, p.Sum, at.LSN, at.State, ErrDiverged)
	}
	return nil
}
