package clusterlog

import (
	"context"
	"errors"
	"fmt"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
)

// Find implements cluster.Log. It asks the leader for some twenty messages of a million.
func (l *Log) Find(ctx context.Context, lsn uint64) (cluster.Mark, error) {
	retry := backoff.Exponential{First: retryFirst, Most: retryMost}
	for {
		at, err := l.find(ctx, lsn)
		if err == nil {
			return at, nil
		}
		last := errors.Is(err, cluster.ErrAbsent) || errors.Is(err, cluster.ErrTrimmed) || errors.Is(err, edda.Permanent)
		if last || backoff.Wait(ctx, retry.Next()) != nil {
			return at, fmt.Errorf("find record %d in %s: %w", lsn, l.name, err)
		}
	}
}

func (l *Log) find(ctx context.Context, lsn uint64) (cluster.Mark, error) {
	last, err := l.look(ctx)
	if err != nil {
		return cluster.Mark{}, err
	}
	first, err := l.first(ctx)
	if err != nil {
		return cluster.Mark{}, err
	}
	return cluster.Find(first, last, lsn, func(seq uint64) (cluster.Message, error) {
		raw, err := l.message(ctx, seq)
		if err != nil {
			return cluster.Message{}, err
		}
		return decode(raw.Header, raw.Data)
	})
}
