package stream

import (
	"context"
	"fmt"
	"time"

	"edda"
	"edda/engine"
)

// backlog is what a stream held when this process began to read it. It includes echoes, because a
// store that is older than the stream must apply them. Later echoes are of this process's own
// results.
type backlog struct {
	opened   bool         // the end is known
	at       time.Time    // server time when the end was read
	end      uint64       // the last message that may be an input; zero when all are read
	buffered uint64       // the last buffered message of the backlog
	late     []edda.Event // results that come before their echoes
}

// findBacklog finds the end of the backlog before the first consumer is made.
func (r *reader) findBacklog(ctx context.Context) error {
	if r.backlog().opened {
		return nil
	}
	info, err := r.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", r.name, err)
	}
	b := backlog{opened: true, at: info.TimeStamp.UTC()}
	if info.TimeStamp.IsZero() { // an old server does not say
		b.at = time.Now().UTC()
	}
	if read, buffered, _ := r.progress(); info.State.LastSeq > read {
		if b.end, err = r.lastMatch(ctx, buffered, info.State.LastSeq); err != nil {
			return fmt.Errorf("find the end of %s: %w", r.name, err)
		}
		if b.late, err = r.findLate(ctx, read, b.end); err != nil {
			return fmt.Errorf("find what is late in %s: %w", r.name, err)
		}
		if b.end <= read {
			b.end = 0
		}
	}
	r.mu.Lock()
	r.atStart = b
	r.mu.Unlock()
	signal(r.wake)
	return nil
}

// noteBuffered records an event that was put into the buffer. The caller holds r.mu.
func (r *reader) noteBuffered(seq uint64) {
	r.buffered = seq
	if seq <= r.atStart.end {
		r.atStart.buffered = seq
	}
}

func (r *reader) backlog() backlog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.atStart
}

// backlogRead reports whether the whole backlog has been read into the buffer.
func (r *reader) backlogRead() bool {
	b := r.backlog()
	return b.opened && b.end == 0
}

// endBacklog ends the backlog when all of it is read, and makes a consumer without echoes. The
// caller holds r.mu.
func (r *reader) endBacklog() {
	if b := &r.atStart; b.end > 0 && max(r.read, r.emptyTo) >= b.end {
		b.end = 0
		if r.results() {
			signal(r.recreate)
		}
	}
}

// backlogHandled reports whether all events of the backlog that were read are handled.
func (r *reader) backlogHandled() bool { return r.handled(r.backlog().buffered) }

// Behind counts the messages between the positions and the ends of the backlogs, inputs or not.
func (s *Source) Behind() (n uint64) {
	for _, r := range s.readers {
		if read, end := r.position(), r.backlog().end; end > read {
			n += end - read
		}
	}
	return n
}

// CaughtUp returns a channel that is closed when the whole backlog is handled. Take checks the
// store's positions until then.
func (s *Source) CaughtUp() <-chan struct{} { return s.caughtUp }

// checkCaughtUp closes caughtUp once. Only Take calls it.
func (s *Source) checkCaughtUp() {
	select {
	case <-s.caughtUp:
		return
	default:
	}
	for _, r := range s.readers {
		if !r.backlogRead() || !r.backlogHandled() {
			return
		}
	}
	close(s.caughtUp)
}

// opened returns the time up to which every backlog reaches, when all are known.
func (s *Source) opened() (at time.Time, known bool) {
	for i, r := range s.readers {
		past := r.backlog()
		if !past.opened {
			return time.Time{}, false
		}
		if i == 0 || past.at.Before(at) {
			at = past.at
		}
	}
	return at, true
}

// fromBacklog takes events of the backlog, merged by store time over all streams. It returns an
// event only when no stream can have an earlier one. over reports the end of the backlog.
func (s *Source) fromBacklog(limit int) (got engine.Fetched, over bool) {
	upto, known := s.opened()
	if !known {
		return got, false
	}
	o := ordering{upto: upto, left: limit, queues: make([]storedTimes, len(s.readers), len(s.readers)+1)}
	for i, r := range s.readers {
		read := r.backlogRead() // before peek, so that nothing of the backlog comes after a full peek
		o.queues[i] = r.buffer.peek(limit, fetchBytes)
		o.queues[i].complete = o.queues[i].complete && read
	}
	o.queues = append(o.queues, s.peekLate(limit))
	over = o.run()
	queues := make([][]edda.Event, len(s.readers), len(s.readers)+1)
	for i, r := range s.readers {
		queues[i] = r.buffer.take(o.queues[i].taken, fetchBytes)
	}
	queues = append(queues, s.takeLate(o.queues[len(s.readers)].taken))
	return engine.Fetched{Events: merge(queues), Past: true, Lived: s.strict}, over
}

// storedTimes are the store times of the first events of a buffer.
type storedTimes struct {
	times    []time.Time
	complete bool // no later event of the backlog follows
	taken    int
}

// ordering chooses how many events of each queue come next.
type ordering struct {
	upto   time.Time
	left   int
	queues []storedTimes
}

// run takes the earliest head repeatedly, until an empty queue may still get an earlier one. over
// reports the end of the backlog.
func (o *ordering) run() (over bool) {
	for ; o.left > 0; o.left-- {
		first := -1
		for i := range o.queues {
			q := &o.queues[i]
			if q.taken == len(q.times) {
				if !q.complete {
					return false
				}
				continue
			}
			if first < 0 || q.head().Before(o.queues[first].head()) {
				first = i
			}
		}
		if first < 0 || o.queues[first].head().After(o.upto) {
			return true
		}
		o.queues[first].taken++
	}
	return false
}

func (w *storedTimes) head() time.Time { return w.times[w.taken] }
