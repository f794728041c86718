package engine

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"edda"
	"edda/internal/backoff"
	"edda/store"
)

const (
	// maxDue bounds how much of a batch is for what is due while events wait.
	maxDue = maxBatch / 2
	// maxLone bounds what the evaluator writes by itself: encoding them takes about as
	// long as it may be before it looks at what else came.
	maxLone = 4
	// tidyEvery is how often positions move past messages that are not meant
	// for the sagas, so that they do not point at what expires.
	tidyEvery = 10 * time.Second
)

// evaluator owns what is not yet durable. Everything below is touched by its
// goroutine only; the others send it messages.
type evaluator struct {
	*Engine
	writer    *writer
	endPoller *endPoller
	parking   *parking

	arrive <-chan Fetched // nil once the intake has ended
	events []*item        // waiting, in order
	bytes  int            // of their payloads
	most   int            // inputs of the next batch, by what those of the last one made
	dues   []*item        // waiting, by time
	seed   maphash.Seed

	overlay  overlay
	cache    *instanceCache // what is durable and need not be read again
	spare    spare
	lanes    []*lane // of the last batch, for their memory
	inFlight []*set  // submitted and not yet reported, in order
	batches  int     // whose last set is not yet reported
	sets     uint64

	applied   map[string]edda.Checkpoint // evaluated
	durable   map[string]edda.Checkpoint // committed
	created   map[string]time.Time       // of each stream; known after the first survey
	watermark watermark
	asked     bool // for a survey that the next goal is to be of, and that has not come
	barrier   timerBarrier
	linger    linger    // what a batch waits for
	lived     time.Time // until when this store's process worked, before it was restored
	tidied    time.Time
	ends      []End // as they were when last looked at

	retry   int    // counts how often it began anew
	lost    []*set // those that failed
	failure error  // the last one; nil once a commit succeeded again
	failing bool   // a failure waits until nothing is in flight
	pausing bool   // after a failure, before trying again
	backoff backoff.Exponential
	alarm   *time.Timer // ends the pause

	ctx     context.Context // of run
	lagging lagging
	idle    []chan *errand  // readers that wait for a pair
	notes   []store.Audit   // to be written
	crowded map[Pair]string // pairs that have no room, and why
	held    bool            // nothing new is taken in, and nothing is caught up

	draining bool
	drained  []report
}

func newEvaluator(e *Engine, positions []edda.Checkpoint) *evaluator {
	v := &evaluator{
		Engine: e, writer: newWriter(e), endPoller: newEndPoller(e), parking: newParking(e),
		seed: maphash.MakeSeed(), overlay: overlay{}, cache: newInstanceCache(),
		applied: map[string]edda.Checkpoint{}, durable: map[string]edda.Checkpoint{},
		created: map[string]time.Time{}, lagging: lagging{},
		backoff: backoff.Exponential{First: commitBackoff, Most: commitBackoffMax},
		alarm:   time.NewTimer(0),
		most:    maxBatch,
		linger:  newLinger(),
	}
	v.alarm.Stop()
	for _, p := range positions {
		v.applied[p.Stream], v.durable[p.Stream] = p, p
	}
	return v
}

func (v *evaluator) run(ctx context.Context, arrive <-chan Fetched) error {
	defer v.alarm.Stop()
	defer v.linger.timer.Stop()
	v.ctx, v.arrive = ctx, arrive
	for {
		v.gather()
		if v.ready() && !v.awaitsCompany() {
			v.step()
			continue
		}
		v.rest()
		if !v.wait(ctx) {
			return v.finish()
		}
	}
}

// gather takes what is waiting.
func (v *evaluator) gather() {
	for {
		select {
		case act := <-v.inbox:
			act(v)
		case <-v.writer.told:
			v.hear()
		case got, open := <-v.arriving():
			v.arrived(got, open)
		case <-v.results.ready:
			v.takeResults()
		default:
			return
		}
	}
}

// wait takes one thing, however long that takes; it tells whether to go on.
func (v *evaluator) wait(ctx context.Context) bool {
	select {
	case act := <-v.inbox:
		act(v)
	case <-v.writer.told:
		v.hear()
	case got, open := <-v.arriving():
		v.arrived(got, open)
	case <-v.results.ready:
		v.takeResults()
	case <-v.linger.timer.C: // who waits for company looks again
	case <-v.alarm.C:
		v.pausing = false
	case <-ctx.Done():
		return false
	}
	return true
}

// arriving is where events come from, while there is room for more.
func (v *evaluator) arriving() <-chan Fetched {
	if len(v.events) >= maxBatch || v.bytes >= maxBatchBytes || v.failure != nil {
		return nil
	}
	return v.arrive
}

func (v *evaluator) arrived(got Fetched, open bool) {
	if !open {
		v.arrive = nil
	}
	for i := range got.Events {
		v.enqueue(newArrival(got.Events[i], got))
		v.bytes += len(got.Events[i].Payload)
	}
	if n := len(got.Events); got.Lived && n > 0 && got.Events[n-1].Time.After(v.lived) {
		v.lived = got.Events[n-1].Time
	}
}

// finish waits for what is being committed.
func (v *evaluator) finish() error {
	close(v.writer.queue)
	for len(v.inFlight) > 0 {
		<-v.writer.told
		v.hear()
	}
	return nil
}

// ready tells whether a batch can be evaluated now. The first survey must have
// said when the streams were created.
func (v *evaluator) ready() bool {
	if v.tidied.IsZero() || v.halted() || v.batches >= pipelineDepth {
		return false
	}
	return v.goingOn() > 0 || v.dueNow() > 0 || len(v.lagging) > 0 && (v.catchable() || v.settles()) || len(v.notes) > 0
}

// halted tells whether it waits for a failure to be over.
func (v *evaluator) halted() bool { return v.failing || v.pausing }

// step evaluates one batch and hands it to the writer.
func (v *evaluator) step() {
	items, caught := v.form()
	now := time.Now()
	v.linger.took(len(items)-caught, now)
	v.parking.look(items)
	joined := v.join()
	b := &batch{items: items, sagas: v.sagas, over: v.overlay, kept: v.cache, db: v.db, horizon: v.watermark.reached, lived: v.lived,
		now: now, patient: v.patient(now), seed: v.seed, room: v.parking.room, lanes: v.lanes, lagging: v.lagging}
	defer v.rested(b)
	if len(items) == 0 {
		v.settleUp(joined)
		return
	}
	if err := b.evaluate(v.opts.lanesFor(len(items))); err != nil {
		v.part(joined)
		v.putBack(items)
		v.fail(fmt.Errorf("evaluate: %w", err))
		v.beginAnew()
		return
	}
	if due := b.first(); !due.IsZero() {
		v.part(joined)
		v.putBack(items)
		v.raiseBarrier(due)
		return
	}
	// gofail: var engineEvaluated struct{}
	v.metrics.batch.Observe(float64(len(items)))
	c := cutter{created: v.created, spare: &v.spare, n: v.sets}
	sets := c.cut(items)
	v.pace(len(items), sets)
	v.ride(sets)
	v.keepUp(sets, b, joined)
	v.submit(sets, b)
	v.goOn()
	v.reach()
}

// rested keeps the lanes of a batch that is cut, or was in vain; those that it had no need
// of stay as they are.
func (v *evaluator) rested(b *batch) {
	for _, l := range b.lanes {
		l.rest()
	}
	if len(b.lanes) > len(v.lanes) {
		v.lanes = b.lanes
	}
}

// form takes the items of the next batch, and says how many of them are of the past of pairs
// that are behind.
func (v *evaluator) form() (items []*item, caught int) {
	v.shelve()
	due := taken(v.dues[:v.dueNow()], min(maxDue, max(v.most/2, 1)))
	events := taken(v.events[:v.goingOn()], v.most-due)
	if due > 0 && v.dues[0].alone {
		events = 0
	}
	if due > 0 && events > 0 && v.events[0].alone {
		events = 0
	}
	var past []*item
	if len(v.lagging) > 0 && !(due > 0 && v.dues[0].alone) && !(events > 0 && v.events[0].alone) {
		past = v.caughtUpTo(min(maxCaught, v.most))
	}
	if len(past) > 0 && past[0].alone {
		due, events = 0, 0
	}
	items = slices.Concat(v.dues[:due], past, v.events[:events])
	v.dues = slices.Delete(v.dues, 0, due)
	for _, it := range v.events[:events] {
		v.bytes -= len(it.event.Payload)
	}
	v.events = slices.Delete(v.events, 0, events)
	if v.barrier.on() {
		v.barrier.free -= events
	}
	return items, len(past)
}

// pace chooses the size of the next batch: as many inputs as would have made
// maxBatchBytes, so that large instances are few in memory at once.
func (v *evaluator) pace(items int, sets []*set) {
	bytes := 0
	for _, s := range sets {
		bytes += s.size
	}
	switch {
	case bytes > maxBatchBytes:
		v.most = max(1, items*maxBatchBytes/bytes)
	case bytes <= maxBatchBytes/2:
		v.most = min(2*v.most, maxBatch)
	}
}

// taken is how many of the items go into one batch: at most n, and one that is
// to be alone with no other.
func taken(items []*item, n int) int {
	n = min(n, len(items))
	for i, it := range items[:n] {
		if it.alone {
			return max(i, 1)
		}
	}
	return n
}

// submit puts the cells of the batch over the store until the sets that write them are
// durable, and hands the sets to the writer, which has room.
func (v *evaluator) submit(sets []*set, b *batch) {
	for _, s := range sets {
		s.retry = v.retry
		v.sets = s.n
		for i := range s.change.Transitions {
			k := s.change.Transitions[i].Key
			v.overlay[k] = overlaid{b.cell(k), s.n}
			v.cache.drop(k)
		}
		for _, c := range s.change.Checkpoints {
			v.applied[c.Stream] = c
		}
		for _, p := range s.change.Positions {
			if l := v.lagging[Pair{p.Tenant, p.Saga}]; l != nil {
				l.done[p.Stream] = p.Checkpoint
			}
		}
	}
	lone := v.lone(sets)
	v.inFlight = append(v.inFlight, sets...)
	if v.mayWait(sets) {
		sets[0].patient, sets[0].last = true, false // no other batch waits for it
	} else {
		v.batches++
	}
	v.count()
	if lone {
		v.writer.write(sets)
		return
	}
	v.writer.put(sets)
}

// mayWait tells whether the sets are one that only moves positions, and no other such waits.
func (v *evaluator) mayWait(sets []*set) bool {
	return len(sets) == 1 && sets[0].onlyMoves() && !slices.ContainsFunc(v.inFlight, func(s *set) bool { return s.patient })
}

// lone tells whether the writer has nothing to do and the evaluator will have nothing to
// do meanwhile: then it takes less time to write a few items than to wake somebody who does.
// Positions that wait for company may be with the store, but not on their way there.
func (v *evaluator) lone(sets []*set) bool {
	return v.batches == 0 && v.writer.queued.Load() == 0 && len(sets) == 1 && len(sets[0].items) <= maxLone && v.goingOn() == 0 && v.dueNow() == 0 && len(v.lagging) == 0
}

func (v *evaluator) count() {
	n := 0
	for _, s := range v.inFlight {
		n += len(s.items)
	}
	v.metrics.inFlight.Set(float64(n))
	v.status.flying(n)
}

// hear takes the writer's reports.
func (v *evaluator) hear() {
	for _, r := range v.writer.take() {
		v.inFlight = slices.DeleteFunc(v.inFlight, func(s *set) bool { return s == r.set })
		if r.set.last {
			v.batches--
		}
		if r.err == nil {
			v.landed(r.set)
			continue
		}
		v.crashed(r)
	}
	v.count()
	v.beginAnew()
}

// landed moves the positions and tells everyone.
func (v *evaluator) landed(s *set) {
	for _, c := range s.change.Checkpoints {
		v.durable[c.Stream] = c
	}
	v.overlay.release(s, v.cache)
	v.status.moved(s.change.Checkpoints)
	if len(s.change.Positions)+len(s.change.DropPositions) > 0 {
		v.landedBehind(s)
	}
	// gofail: var engineCommitted struct{}
	v.announce(s)
	for _, it := range s.items {
		it.free()
	}
	v.spare.put(s)
	v.recovered()
}

// surveyed takes the ends of the streams, and first what was handed in before they
// were looked at.
func (v *evaluator) surveyed(s endOffsets) {
	v.takeResults()
	v.asked = false
	v.ends = s.ends
	for _, end := range s.ends {
		v.created[end.Stream] = end.Last.Created
	}
	v.aim(s)
	v.tidy(s)
	v.reach()
}

// aim makes the survey a goal where something waits for it.
func (v *evaluator) aim(s endOffsets) {
	switch {
	case v.barrier.on() && s.at.Before(v.barrier.due):
		v.endPoller.ask() // it was begun before what waits was due
	case v.barrier.on() || v.watermark.goal != nil || v.dueBeyond():
		v.watermark.aim(s)
	}
}

// reach moves the horizon as far as it can and asks for the next goal.
func (v *evaluator) reach() {
	v.lowerBarrier()
	if g := v.watermark.goal; g != nil && !v.handedBefore(g.at) {
		v.watermark.advance(v.applied)
	}
	if v.watermark.goal == nil && v.dueBeyond() && !v.asked {
		v.asked = true // one that is under way would be followed by another, in vain
		v.endPoller.ask()
	}
}

// tidy moves positions past messages that are not meant for the sagas, and
// writes the first position of a stream, by which it is known again.
func (v *evaluator) tidy(s endOffsets) {
	if s.at.Sub(v.tidied) < tidyEvery || v.halted() || v.batches >= pipelineDepth {
		return
	}
	v.tidied = s.at
	t := &set{n: v.sets + 1, last: true}
	for _, end := range s.ends {
		at, known := v.applied[end.Stream]
		if at.Seq >= end.Need && (end.Last.Seq > at.Seq || !known) {
			end.Last.Stream = end.Stream
			t.move(end.Last)
		}
	}
	if len(t.change.Checkpoints) > 0 {
		v.submit([]*set{t}, nil)
	}
}

// ride does what tidy does with a set that is committed anyway: where results come
// from within, most messages of their stream are not meant for the sagas.
func (v *evaluator) ride(sets []*set) {
	for _, end := range v.ends {
		at, known := v.applied[end.Stream]
		moved := slices.ContainsFunc(sets, func(s *set) bool { return s.moves(end.Stream) })
		if !moved && known && at.Seq >= end.Need && end.Last.Seq > at.Seq {
			end.Last.Stream = end.Stream
			sets[len(sets)-1].move(end.Last)
		}
	}
}
