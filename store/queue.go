package store

import (
	"context"
	"sync"
	"time"

	"edda"
)

// A submitter that is faster than the disk waits once this much is queued:
// enough for the next group to be full whenever a commit ends, small enough
// that a failure gives up little work.
const (
	maxQueued      = 1024
	maxQueuedBytes = 16 << 20
)

// One transaction takes at most this much of what waits. More would gain
// little throughput and make the first in it wait for the last.
const (
	maxGroup      = 256
	maxGroupBytes = 4 << 20
)

// job is one submitted change.
type job struct {
	change *encoded
	line   *Pipeline
	done   func(error)
	within time.Duration // how long it waits for another to go with; 0 once it does not
}

// queue holds jobs in order of submission. It is a list and not a channel
// because the committer takes by bytes, and because closing it must not lose
// what came in at the same moment.
type queue struct {
	mu      sync.Mutex // guards all below, and the jobs' within
	jobs    []*job
	bytes   int
	patient int  // of them, those that wait for another
	hurried bool // none waits any more
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

// tryPush appends, or returns what to wait for.
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

// waited ends the patience of a job that has waited long enough, unless it has gone.
func (q *queue) waited(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.within > 0 {
		j.within = 0
		q.patient--
		signal(q.ready)
	}
}

// hurry ends the patience of all.
func (q *queue) hurry() {
	for _, j := range q.jobs {
		j.within = 0
	}
	if q.patient > 0 {
		q.patient = 0
		signal(q.ready)
	}
}

// stopping ends the patience of all, and of those to come.
func (q *queue) stopping() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hurried = true
	q.hurry()
}

// take removes the first jobs, up to the bounds but at least one if there is any that
// does not wait for another.
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

// all removes everything.
func (q *queue) all() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cut(len(q.jobs), q.bytes)
}

// close refuses further jobs, once there are none, and tells whether it did.
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

// signal wakes whoever waits on a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
