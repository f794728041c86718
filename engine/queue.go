package engine

import (
	"slices"
	"time"

	"edda"
)

// maxDue bounds the due inputs of a batch while events wait.
const maxDue = maxBatch / 2

// inputQueue holds the inputs that wait for a batch.
type inputQueue struct {
	events     []*item // in order of arrival; a raised barrier splits them
	bytes      int     // of the events' payloads
	dues       []*item // by time; equal times in order of arrival
	batchLimit int     // inputs of the next batch, at most
}

// arriving is the source's signal while the queue has room, else nil.
func (v *loop) arriving() <-chan struct{} {
	if len(v.queue.events) >= maxBatch || v.queue.bytes >= maxBatchBytes || v.recovery.err != nil || v.draining.on {
		return nil
	}
	return v.source.Ready()
}

// take moves events from the source into the queue, as far as there is room. It drops those
// that were read before: a new connection delivers them again.
func (v *loop) take() {
	v.press()
	got := v.source.Take(maxBatch - len(v.queue.events))
	// gofail: var engineFetched struct{}
	for i := range got.Events {
		ev := &got.Events[i]
		if ev.Stream != "" { // a result without a stream has no sequence
			if v.positions.read[ev.Stream].has(ev) {
				v.metrics.fate("", edda.FateDuplicate)
				continue
			}
			v.positions.read[ev.Stream] = readWith(ev)
		}
		v.enqueue(arrival(*ev, got))
		v.queue.bytes += len(ev.Payload)
		if got.Lived && ev.Time.After(v.positions.livedUntil) {
			v.positions.livedUntil = ev.Time
		}
	}
}

// form removes the inputs of the next batch from the queues. It returns how many of them
// are catch-up events of laggards.
func (v *loop) form() (items []*item, caughtUp int) {
	v.returnDues()
	q := &v.queue
	due := fit(q.dues[:v.duesReady()], min(maxDue, max(q.batchLimit/2, 1)))
	events := fit(q.events[:v.eventsReady()], q.batchLimit-due)
	dueAlone := due > 0 && q.dues[0].alone
	if dueAlone || due > 0 && events > 0 && q.events[0].alone {
		events = 0
	}
	var past []*item
	if !dueAlone && !(events > 0 && q.events[0].alone) {
		past = v.takeCatchUp(min(maxCaught, q.batchLimit))
	}
	if len(past) > 0 && past[0].alone {
		due, events = 0, 0
	}
	items = slices.Concat(q.dues[:due], past, q.events[:events])
	q.dues = slices.Delete(q.dues, 0, due)
	for _, it := range q.events[:events] {
		q.bytes -= len(it.event.Payload)
	}
	q.events = slices.Delete(q.events, 0, events)
	if v.barrier.raised() {
		v.barrier.passing -= events
	}
	return items, len(past)
}

// fit is how many of the items go into one batch: at most n. A suspect item goes alone.
func fit(items []*item, n int) int {
	n = min(n, len(items))
	for i, it := range items[:n] {
		if it.alone {
			return max(i, 1)
		}
	}
	return n
}

// pace limits the next batch to as many inputs as would have made maxBatchBytes. So few large
// instances are in memory at once.
func (q *inputQueue) pace(items int, sets []*set) {
	bytes := 0
	for _, s := range sets {
		bytes += s.size
	}
	switch {
	case bytes > maxBatchBytes:
		q.batchLimit = max(1, items*maxBatchBytes/bytes)
	case bytes <= maxBatchBytes/2:
		q.batchLimit = min(2*q.batchLimit, maxBatch)
	}
}

// addDue inserts a due input by its time, behind others of the same time.
func (q *inputQueue) addDue(it *item) {
	q.dues = slices.Insert(q.dues, q.dueBy(it.due.time), it)
}

// dueBy counts the inputs that are due at or before t.
func (q *inputQueue) dueBy(t time.Time) int {
	n, _ := slices.BinarySearchFunc(q.dues, t, func(it *item, t time.Time) int {
		if it.due.time.After(t) {
			return 1
		}
		return -1
	})
	return n
}

// duesReady counts the due inputs at or before the watermark.
func (v *loop) duesReady() int { return v.queue.dueBy(v.watermark.reached) }

// duesWait tells whether a due input waits for the watermark.
func (v *loop) duesWait() bool { return v.duesReady() < len(v.queue.dues) }
