package node

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"edda/cluster"
	"edda/internal/logthrottle"
)

const (
	// trimEvery is how often the owner trims the log.
	trimEvery = time.Minute
	// trimAfter is how long a record stays at least, so that a node which is restarted reads on and copies nothing.
	trimAfter = time.Hour
	// trimWithin bounds one attempt.
	trimWithin = 10 * time.Second
)

// trim trims the log of this node until ctx ends: behind the slowest copy and not before an hour, unless the log
// becomes too large.
func (t *stay) trim(ctx context.Context) error {
	trimmed := logthrottle.New(t.log, "the log was not trimmed")
	var marks []cluster.Mark // one of each interval, the oldest first
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		marks = append(marks, t.shipper.Load().Mark())
		bytes, err := t.logBytes(ctx)
		if err == nil {
			if n := trimmable(marks, bytes, t.settings.Cluster.LogMax, t.others()); n > 0 {
				err = t.trimTo(ctx, marks[n-1])
				marks = marks[n-1:]
			}
		}
		if err != nil && ctx.Err() == nil {
			trimmed.Failed(err)
			continue
		}
		trimmed.Worked()
		marks = marks[max(0, len(marks)-maxMarks):]
	}
}

// maxMarks bounds the marks of an owner whose log cannot be trimmed.
const maxMarks = 24 * int(time.Hour/trimEvery)

// trimmable returns how many of the marks the log need not reach back to: the last of them is the new beginning. A log
// that is too large is halved, also if a copy needs more.
func trimmable(marks []cluster.Mark, bytes, max int, nodes []cluster.Member) int {
	if bytes > max {
		return (len(marks) + 1) / 2
	}
	n := len(marks) - int(trimAfter/trimEvery)
	for n > 0 && needed(marks[n-1], nodes) {
		n--
	}
	return n
}

// needed reports whether a node has less than what lies before a mark.
func needed(at cluster.Mark, nodes []cluster.Member) bool {
	for _, m := range nodes {
		if from := cmp.Or(m.Beat.Needs, m.Beat.LSN); from > 0 && from < at.LSN {
			return true
		}
	}
	return false
}

func (t *stay) logBytes(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, trimWithin)
	defer cancel()
	return t.stored.Bytes(ctx)
}

func (t *stay) trimTo(ctx context.Context, at cluster.Mark) error {
	ctx, cancel := context.WithTimeout(ctx, trimWithin)
	defer cancel()
	if err := t.shipped.Trim(ctx, at); err != nil {
		return err
	}
	t.log.Debug("the log is trimmed", zap.Uint64("begins_at", at.LSN))
	return nil
}
