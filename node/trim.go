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
		marks = append(marks[max(0, len(marks)-maxMarks):], t.shipper.Load().Mark())
		begin, err := t.trimOnce(ctx, marks)
		if err != nil && ctx.Err() == nil {
			trimmed.Failed(err)
			continue
		}
		trimmed.Worked()
		marks = marks[begin:]
	}
}

// trimOnce trims the log if it can, and returns which of the marks is its beginning then.
func (t *stay) trimOnce(ctx context.Context, marks []cluster.Mark) (begin int, err error) {
	ctx, cancel := context.WithTimeout(ctx, trimWithin)
	defer cancel()
	bytes, err := t.bytes(ctx)
	if err != nil {
		return 0, err
	}
	begin = trimmable(marks, bytes, t.settings.Cluster.LogMax, t.others()) - 1
	if begin < 0 {
		return 0, nil
	}
	// The log may have begun again while this process was paused. A trim beyond its end would remove all that it has.
	if err := t.confirm(ctx); err != nil {
		return 0, err
	}
	if err := t.shipped.Trim(ctx, marks[begin]); err != nil {
		return 0, err
	}
	t.log.Debug("the log is trimmed", zap.Uint64("begins_at", marks[begin].LSN))
	return begin, nil
}

// maxMarks bounds the marks of an owner whose log cannot be trimmed.
const maxMarks = 24 * int(time.Hour/trimEvery)

// trimmable returns how many of the marks the log need not reach back to: the last of them is the new beginning. A log
// that is too large loses the older half, also if a copy needs that. Right after a takeover there is one mark, at the end of
// the log: all of it stays for a minute, because the other nodes are about to read it.
func trimmable(marks []cluster.Mark, bytes, max int, nodes []cluster.Member) int {
	if bytes > max {
		return len(marks) / 2
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
