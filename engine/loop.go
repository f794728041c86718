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
	// lookEvery is how often the loop looks for room, and into its source, where no event comes.
	lookEvery = 250 * time.Millisecond
	// tidyEvery is how often positions move past messages that are not meant
	// for the sagas, so that they do not point at what expires.
	tidyEvery = 10 * time.Second
)

// loop owns what is not yet durable. Everything below is touched by its
// goroutine only; the others send it messages.
type loop struct {
	*Engine
	endPoller *endPoller
	parking   *parking

	read     map[string]uint64 // the last sequence that was taken of each stream
	pressure backpressure
	events   []*item // waiting, in order
	bytes    int     // of their payloads
	most     int     // inputs of the next batch, by what those of the last one made
	dues     []*item // waiting, by time
	seed     maphash.Seed

	overlay  overlay
	cache    *instanceCache   // what is durable and need not be read again
	encoders []*store.Encoder // that no batch uses: at most those of the batches in flight
	answers  *answers
	line     submitter // takes the sets; nil after a failure
	refused  error     // why it takes no more of them
	inFlight []*set    // submitted and not yet answered, in order
	batches  int       // whose last set is not yet answered
	sets     uint64

	applied   map[string]edda.Checkpoint // evaluated
	durable   map[string]edda.Checkpoint // committed
	created   map[string]time.Time       // of each stream; known once the end poller has looked
	watermark watermark
	asked     bool // the end poller, for the next goal of the watermark
	barrier   timerBarrier
	linger    linger    // what a batch waits for
	lived     time.Time // until when this store's process worked, before it was restored
	tidied    time.Time
	ends      []End // as they were when last looked at

	lost    []*set // those that failed
	failure error  // the last one; nil once a commit succeeded again
	failing bool   // a failure waits until nothing is in flight
	pausing bool   // after a failure, before trying again
	backoff backoff.Exponential
	alarm   *time.Timer // ends the pause

	ctx     context.Context // of run
	looks   <-chan time.Time
	lagging lagging
	idle    []chan *errand        // readers that wait for a pair
	notes   []store.Audit         // to be written
	crowded map[SagaTenant]string // pairs that have no room, and why
	held    bool                  // no event is taken in, and nothing is caught up

	draining bool
	drained  []report
}

func newLoop(e *Engine, positions []edda.Checkpoint) *loop {
	v := &loop{
		Engine: e, endPoller: newEndPoller(e), parking: newParking(e), answers: newAnswers(), read: map[string]uint64{},
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
		v.applied[p.Stream], v.durable[p.Stream], v.read[p.Stream] = p, p, p.Seq
	}
	return v
}

func (v *loop) run(ctx context.Context) error {
	defer v.alarm.Stop()
	defer v.linger.timer.Stop()
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	v.ctx, v.looks = ctx, looks.C
	v.press()
	for {
		v.gather()
		if v.ready() && !v.lingers() {
			v.step()
			continue
		}
		v.answerDrained()
		if !v.wait(ctx) {
			return v.finish()
		}
	}
}

// gather takes what is waiting.
func (v *loop) gather() {
	for {
		select {
		case act := <-v.inbox:
			act(v)
		case <-v.answers.ready:
			v.takeAnswers()
		case <-v.arriving():
			v.take()
		case <-v.results.ready:
			v.takeResults()
		default:
			return
		}
	}
}

// wait takes one thing, however long that takes; it tells whether to go on.
func (v *loop) wait(ctx context.Context) bool {
	select {
	case act := <-v.inbox:
		act(v)
	case <-v.answers.ready:
		v.takeAnswers()
	case <-v.arriving():
		v.take()
	case <-v.looks:
		v.tick()
	case <-v.results.ready:
		v.takeResults()
	case <-v.linger.timer.C: // the batch lingers no longer
	case <-v.alarm.C:
		v.pausing = false
	case <-ctx.Done():
		return false
	}
	return true
}

// tick looks for room, and takes though nothing was signalled: a source finds out then
// whether what it gave is durable.
func (v *loop) tick() {
	if v.arriving() == nil {
		v.press()
		return
	}
	v.take()
}

// arriving tells of events in the source, while there is room for more.
func (v *loop) arriving() <-chan struct{} {
	if len(v.events) >= maxBatch || v.bytes >= maxBatchBytes || v.failure != nil || v.draining {
		return nil
	}
	return v.source.Ready()
}

// take takes in what waits in the source, as far as there is room. What was read before
// comes again where a connection was made anew.
func (v *loop) take() {
	v.press()
	got := v.source.Take(maxBatch - len(v.events))
	// gofail: var engineFetched struct{}
	for i := range got.Events {
		ev := &got.Events[i]
		if ev.Stream != "" { // else it has no place in a stream that it could have been read at
			if ev.Seq <= v.read[ev.Stream] {
				v.metrics.fate("", edda.FateDuplicate)
				continue
			}
			v.read[ev.Stream] = ev.Seq
		}
		v.enqueue(arrival(*ev, got))
		v.bytes += len(ev.Payload)
		if got.Lived && ev.Time.After(v.lived) {
			v.lived = ev.Time
		}
	}
}

// finish waits for what is being committed.
func (v *loop) finish() error {
	for len(v.inFlight) > 0 {
		<-v.answers.ready
		v.takeAnswers()
	}
	return nil
}

// ready tells whether a batch can be evaluated now. The end poller must have
// said when the streams were created.
func (v *loop) ready() bool {
	if v.tidied.IsZero() || v.halted() || v.batches >= pipelineDepth {
		return false
	}
	return v.goingOn() > 0 || v.dueNow() > 0 || len(v.lagging) > 0 && (v.catchable() || v.settles()) || len(v.notes) > 0
}

// halted tells whether it waits for a failure to be over.
func (v *loop) halted() bool { return v.failing || v.pausing }

// step evaluates one batch and submits its change sets.
func (v *loop) step() {
	items, caught := v.form()
	now := time.Now()
	v.linger.took(len(items)-caught, now)
	v.parking.look(items)
	joined := v.join()
	b := &batch{items: items, sagas: v.sagas, over: v.overlay, kept: v.cache, db: v.db, horizon: v.watermark.reached, lived: v.lived,
		now: now, patient: v.patient(now), seed: v.seed, room: v.parking.room, encoders: &v.encoders, lagging: v.lagging}
	if len(items) == 0 {
		v.settleUp(joined)
		return
	}
	if err := b.evaluate(v.opts.lanesFor(len(items))); err != nil {
		v.release(b.used())
		v.part(joined)
		v.putBack(items)
		v.fail(fmt.Errorf("evaluate: %w", err))
		v.beginAnew()
		return
	}
	if due := b.first(); !due.IsZero() {
		v.release(b.used())
		v.part(joined)
		v.putBack(items)
		v.raiseBarrier(due)
		return
	}
	// gofail: var engineEvaluated struct{}
	v.metrics.batch.Observe(float64(len(items)))
	c := cutter{created: v.created, n: v.sets}
	sets := c.cut(items)
	sets[len(sets)-1].encoders = b.used()
	v.pace(len(items), sets)
	v.piggyback(sets)
	v.keepUp(sets, b, joined)
	v.submit(sets, b)
	v.goOn()
	v.advance()
}

// release makes encoders free whose rows are committed, or are not wanted.
func (v *loop) release(all []*store.Encoder) {
	for _, e := range all {
		e.Reset()
	}
	v.encoders = append(v.encoders, all...)
}

// form takes the items of the next batch, and says how many of them are of the past of pairs
// that are behind.
func (v *loop) form() (items []*item, caught int) {
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
func (v *loop) pace(items int, sets []*set) {
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
func (v *loop) submit(sets []*set, b *batch) {
	for _, s := range sets {
		v.sets = s.n
		for _, t := range s.transitions() {
			v.overlay[t.Key] = overlaid{b.cell(t.Key), s.n}
			v.cache.drop(t.Key)
		}
		for _, c := range s.change.Checkpoints {
			v.applied[c.Stream] = c
		}
		for _, p := range s.change.Positions {
			if l := v.lagging[SagaTenant{p.Tenant, p.Saga}]; l != nil {
				l.done[p.Stream] = p.Checkpoint
			}
		}
	}
	v.inFlight = append(v.inFlight, sets...)
	if v.mayWait(sets) {
		sets[0].patient, sets[0].last = true, false // no other batch waits for it
	} else {
		v.batches++
	}
	v.count()
	for _, s := range sets {
		v.send(s)
	}
}

// send submits a set. It was evaluated on top of those before it: when one fails, so do all
// behind it, until the loop begins anew. It does not end with a context: whether a change
// became durable must be known. The store answers always, also when it stops.
func (v *loop) send(s *set) {
	if v.refused != nil {
		v.answers.add(answer{set: s, err: v.refused, behind: true})
		return
	}
	if v.line == nil {
		v.line = v.db.line()
	}
	s.begun = time.Now()
	v.refused = v.line.SubmitWithin(context.Background(), s.change, s.within(), func(err error) { v.answers.add(answer{set: s, err: err}) })
	// gofail: var engineSubmitted struct{}
	if v.refused != nil {
		v.answers.add(answer{set: s, err: v.refused})
	}
}

// mayWait tells whether the sets are one that only moves positions, and no other such waits.
func (v *loop) mayWait(sets []*set) bool {
	return len(sets) == 1 && sets[0].onlyMoves() && !slices.ContainsFunc(v.inFlight, func(s *set) bool { return s.patient })
}

func (v *loop) count() {
	n := 0
	for _, s := range v.inFlight {
		s.ended(func(*item) { n++ })
	}
	v.metrics.inFlight.Set(float64(n))
	v.status.setInFlight(n)
}

// takeAnswers takes the store's answers.
func (v *loop) takeAnswers() {
	for _, r := range v.answers.take() {
		v.inFlight = slices.DeleteFunc(v.inFlight, func(s *set) bool { return s == r.set })
		if r.set.last {
			v.batches--
		}
		if r.err == nil {
			v.metrics.commit.Observe(time.Since(r.set.begun).Seconds())
			v.committed(r.set)
			continue
		}
		v.notCommitted(r)
	}
	v.count()
	v.beginAnew()
}

// committed moves the positions and tells everyone.
func (v *loop) committed(s *set) {
	for _, c := range s.change.Checkpoints {
		v.durable[c.Stream] = c
	}
	v.overlay.release(s, v.cache)
	v.status.moved(s.change.Checkpoints)
	if len(s.change.Positions)+len(s.change.DropPositions) > 0 {
		v.committedBehind(s)
	}
	// gofail: var engineCommitted struct{}
	v.announce(s)
	v.release(s.encoders)
	v.recovered()
}

// endsKnown takes the ends of the streams, and first what was handed in before they
// were looked at.
func (v *loop) endsKnown(s endOffsets) {
	v.takeResults()
	v.asked = false
	v.ends = s.ends
	for _, end := range s.ends {
		v.created[end.Stream] = end.Last.Created
	}
	v.aim(s)
	v.tidy(s)
	v.advance()
}

// aim makes the survey a goal where something waits for it.
func (v *loop) aim(s endOffsets) {
	switch {
	case v.barrier.on() && s.at.Before(v.barrier.due):
		v.endPoller.ask() // it was begun before what waits was due
	case v.barrier.on() || v.watermark.goal != nil || v.dueBeyond():
		v.watermark.aim(s)
	}
}

// advance moves the horizon as far as it can and asks for the next goal.
func (v *loop) advance() {
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
func (v *loop) tidy(s endOffsets) {
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

// piggyback does what tidy does with a set that is committed anyway: where results come
// from within, most messages of their stream are not meant for the sagas.
func (v *loop) piggyback(sets []*set) {
	for _, end := range v.ends {
		at, known := v.applied[end.Stream]
		moved := slices.ContainsFunc(sets, func(s *set) bool { return s.moves(end.Stream) })
		if !moved && known && at.Seq >= end.Need && end.Last.Seq > at.Seq {
			end.Last.Stream = end.Stream
			sets[len(sets)-1].move(end.Last)
		}
	}
}
