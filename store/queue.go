package store

import (
	"context"
	"sync"
	"time"

	"edda"
)

// These bound the queue: large enough that the next group is full when a commit ends, small enough
// that a failure loses little work. Then submitters wait.
const (
	maxQueued      = 1024
	maxQueuedBytes = 16 << 20
)

// These bound one transaction. More would gain little throughput, and the first change would wait
// for the last.
const (
	maxGroup      = 256
	maxGroupBytes = 4 << 20
)

// job is one submitted change.
type job struct {
	change *encoded
	line   *Pipeline
	done   func(error)
	within time.Duration // how long it lingers; 0 once it does not
}

// queue has the jobs in the order of submission. It is no channel, because the committer takes by
// bytes, and closing it must not lose a job that is pushed at the same moment.
type queue struct {
	mu      sync.Mutex // guards the fields below, and within of the jobs
	jobs    []*job
	bytes   int
	patient int  // of them, those that linger
	hurried bool // none lingers any more
	closed  bool
	room    chan struct{} // closed, and made anew, when jobs were taken
	ready   chan struct{} // signalled (capacity 1) when there are jobs
}

func newQueue() *queue {
	return &queue{room: make(chan struct{}), ready: make(chan struct{}, 1)}
}

var errStopped = edda.Classify(edda.Permanent, "the store is stopped")

// push waits for room and appends.
func (q *queue) push(ctx context.Context, j *job) error {
	for {
		room, err := q.tryPush(j)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryPush appends the job, or returns a channel that is closed when there may be room.
func (q *queue) tryPush(j *job) (<-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errStopped
	}
	full := len(q.jobs) >= maxQueued || q.bytes+j.change.size > maxQueuedBytes
	if full && len(q.jobs) > 0 && j.line == nil { // the owner of a pipeline bounds what it has in flight
		q.hurry()
		return q.room, nil
	}
	q.jobs = append(q.jobs, j)
	q.bytes += j.change.size
	if q.hurried {
		j.within = 0
	}
	if j.within > 0 {
		q.patient++
		time.AfterFunc(j.within, func() { q.waited(j) })
		return nil, nil
	}
	signal(q.ready)
	return nil, nil
}

// waited ends the linger of a job, unless it was taken.
func (q *queue) waited(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.within > 0 {
		j.within = 0
		q.patient--
		signal(q.ready)
	}
}

// hurry ends the linger of all jobs.
func (q *queue) hurry() {
	for _, j := range q.jobs {
		j.within = 0
	}
	if q.patient > 0 {
		q.patient = 0
		signal(q.ready)
	}
}

// endLinger ends the linger of all jobs and of later ones.
func (q *queue) endLinger() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hurried = true
	q.hurry()
}

// take removes the first jobs up to the bounds, but at least one. It takes none while all linger.
func (q *queue) take(count, bytes int) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.patient == len(q.jobs) {
		return nil
	}
	n, size := 0, 0
	for n < len(q.jobs) && n < count {
		next := q.jobs[n].change.size
		if n > 0 && size+next > bytes {
			break
		}
		n, size = n+1, size+next
	}
	return q.cut(n, size)
}

func (q *queue) cut(n, size int) []*job {
	if n == 0 {
		return nil
	}
	taken := q.jobs[:n:n]
	for _, j := range taken {
		if j.within > 0 {
			j.within = 0
			q.patient--
		}
	}
	q.jobs = append([]*job(nil), q.jobs[n:]...)
	q.bytes -= size
	close(q.room)
	q.room = make(chan struct{})
	return taken
}

// all removes all jobs.
func (q *queue) all() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cut(len(q.jobs), q.bytes)
}

// close refuses further jobs if there are none, and reports whether it did.
func (q *queue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) > 0 {
		return false
	}
	q.closed = true
	close(q.room)
	q.room = make(chan struct{})
	return true
}

// signal wakes the receiver of a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
