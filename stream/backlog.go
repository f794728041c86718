package stream

import (
	"context"
	"fmt"
	"time"

	"edda"
	"edda/engine"
)

// backlog is what lay in a stream when this process began to read it. It has echoes, because
// a store that is older than the stream must apply them. Later echoes are this process's own.
type backlog struct {
	opened bool         // the end was looked for
	at     time.Time    // when the server was asked for the end, by its clock
	end    uint64       // the last message that may be meant for the sagas; zero once all are read
	kept   uint64       // the last of those read that was meant for them
	late   []edda.Event // results that come before their echoes
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
	if read, kept, _ := r.progress(); info.State.LastSeq > read {
		if b.end, err = r.farthest(ctx, kept); err != nil {
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

// noteKept counts an event that was put into the buffer. Its caller holds r.mu.
func (r *reader) noteKept(seq uint64) {
	r.kept = seq
	if seq <= r.atStart.end {
		r.atStart.kept = seq
	}
}

func (r *reader) backlog() backlog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.atStart
}

// backlogRead tells whether the whole backlog has been read into the buffer.
func (r *reader) backlogRead() bool {
	b := r.backlog()
	return b.opened && b.end == 0
}

// endBacklog ends the backlog once all of it is read, and has a consumer made that leaves
// echoes out. Its caller holds r.mu.
func (r *reader) endBacklog() {
	if b := &r.atStart; b.end > 0 && max(r.read, r.quiet) >= b.end {
		b.end = 0
		if r.results() {
			signal(r.again)
		}
	}
}

// backlogHandled tells whether all events that were read of the backlog are handled.
func (r *reader) backlogHandled() bool { return r.handled(r.backlog().kept) }

// Behind is how many messages of the streams, ours or not, lie between what was read
// and what was there when Run began.
func (s *Source) Behind() (n uint64) {
	for _, r := range s.readers {
		if read, end := r.position(), r.backlog().end; end > read {
			n += end - read
		}
	}
	return n
}

// CaughtUp is closed once everything that lay in the streams when Run began is handled:
// Take looks at the store's positions until then.
func (s *Source) CaughtUp() <-chan struct{} { return s.caughtUp }

// catchUp closes it, once. Only Take calls it.
func (s *Source) catchUp() {
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

// opened is the moment up to which every backlog reaches, once all are known.
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

// fromBacklog takes events of the backlog, merged by stored time over all streams: an event
// is returned only when no stream can have an earlier one. Over is set at the end of the
// backlog.
func (s *Source) fromBacklog(limit int) (got engine.Fetched, over bool) {
	upto, known := s.opened()
	if !known {
		return got, false
	}
	o := ordering{upto: upto, left: limit, queues: make([]storedTimes, len(s.readers), len(s.readers)+1)}
	for i, r := range s.readers {
		through := r.backlogRead() // first: then the rest of it is in the buffer
		o.queues[i] = r.buffer.peek(limit, fetchBytes)
		o.queues[i].whole = o.queues[i].whole && through
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

// storedTimes is when the first events of a buffer were stored.
type storedTimes struct {
	times []time.Time
	whole bool // nothing of the backlog comes behind them
	taken int
}

// ordering chooses how many events of each queue come next.
type ordering struct {
	upto   time.Time
	left   int
	queues []storedTimes
}

// run takes the earliest head again and again, until a queue without a head may get
// an earlier one. It tells whether the backlog has ended.
func (o *ordering) run() (over bool) {
	for ; o.left > 0; o.left-- {
		first := -1
		for i := range o.queues {
			q := &o.queues[i]
			if q.taken == len(q.times) {
				if !q.whole {
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
