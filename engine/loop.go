package engine

import (
	"context"
	"fmt"
	"time"

	"edda"
)

// tickEvery is how often the loop looks for room, and into its source, without a signal.
const tickEvery = 250 * time.Millisecond

// loop owns everything that is not yet durable. Only its goroutine touches the fields
// below; other goroutines send it messages through the inbox.
type loop struct {
	*Engine
	endPoller *endPoller

	// From the streams to the commit.
	queue     inputQueue
	inFlight  inFlight
	cache     *instanceCache
	positions positions

	// When inputs are evaluated.
	watermark watermark
	barrier   timerBarrier
	linger    linger

	// What stops or delays them.
	pressure backpressure
	parking  *parking
	recovery recovery
	catchUp  catchUp
	draining draining
}

// draining is the state of a drain. Its callers are answered when nothing is left to commit.
type draining struct {
	on      bool
	callers []report
}

func newLoop(e *Engine, durable []edda.Checkpoint) *loop {
	return &loop{
		Engine: e, endPoller: newEndPoller(e), parking: newParking(e), cache: newInstanceCache(),
		queue: inputQueue{batchLimit: maxBatch}, inFlight: newInFlight(), positions: newPositions(durable),
		linger: newLinger(), recovery: newRecovery(), catchUp: catchUp{laggards: laggards{}},
	}
}

// run is the loop. When ctx ends, it waits for the change sets in flight and returns nil.
func (v *loop) run(ctx context.Context) error {
	defer v.recovery.alarm.Stop()
	defer v.linger.timer.Stop()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	v.press()
	for {
		v.gather()
		if v.ready() && !v.lingers() {
			v.step()
			continue
		}
		v.answerDrained()
		select {
		case act := <-v.inbox:
			act(v)
		case <-v.inFlight.answers.ready:
			v.takeAnswers()
		case <-v.arriving():
			v.take()
		case <-ticker.C:
			v.tick()
		case <-v.results.ready:
			v.takeResults()
		case <-v.linger.timer.C:
		case <-v.recovery.alarm.C:
			v.recovery.pausing = false
		case <-ctx.Done():
			for len(v.inFlight.sets) > 0 {
				<-v.inFlight.answers.ready
				v.takeAnswers()
			}
			return nil
		}
	}
}

// gather takes all messages, answers, events and results that are there. It does not block.
func (v *loop) gather() {
	for {
		select {
		case act := <-v.inbox:
			act(v)
		case <-v.inFlight.answers.ready:
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

// tick looks for room, and into the source without its signal: on such a call a source
// finds out whether the events it gave are durable.
func (v *loop) tick() {
	if v.arriving() == nil {
		v.press()
		return
	}
	v.take()
}

// ready tells whether a batch can be evaluated now. No batch is before the end poller has
// reported when the streams were created.
func (v *loop) ready() bool {
	if v.positions.tidied.IsZero() || v.recovering() || v.inFlight.batches >= pipelineDepth {
		return false
	}
	return v.eventsReady() > 0 || v.duesReady() > 0 || v.catchUpReady()
}

// step evaluates one batch and submits its change sets. A batch that fails, or that holds
// an event which must wait for a timer, goes back to the queue.
func (v *loop) step() {
	items, caughtUp := v.form()
	now := time.Now()
	v.linger.begin(len(items)-caughtUp, now)
	v.parking.update(items)
	rejoining := v.rejoin()
	if len(items) == 0 {
		v.submitPositions(rejoining)
		return
	}
	b := &batch{
		items: items, sagas: v.sagas, overlay: v.inFlight.overlay, cache: v.cache, db: v.db,
		watermark: v.watermark.reached, livedUntil: v.positions.livedUntil, now: now,
		barrierAllowed: v.barrierAllowed(now), room: v.parking.room, encoders: &v.inFlight.encoders, laggards: v.catchUp.laggards,
		shard: v.opts.Shard,
	}
	err := b.evaluate(v.opts.lanesFor(len(items)))
	if due := b.barrier(); err != nil || !due.IsZero() {
		v.inFlight.free(b.usedEncoders())
		v.undoRejoin(rejoining)
		v.putBack(items)
		if err == nil {
			v.raiseBarrier(due)
			return
		}
		v.fail(fmt.Errorf("evaluate: %w", err))
		v.startOver()
		return
	}
	// gofail: var engineEvaluated struct{}
	v.metrics.batch.Observe(float64(len(items)))
	c := cutter{created: v.positions.created, applied: v.positions.applied, n: v.inFlight.lastSet}
	sets := c.cut(items)
	sets[len(sets)-1].encoders = b.usedEncoders()
	v.queue.pace(len(items), sets)
	v.piggyback(sets)
	v.addPositions(sets, b, rejoining)
	v.submit(sets, b)
	v.serveReaders()
	v.advance()
}

// drain stops the intake, refuses what is due, and answers once the rest is committed.
func (v *loop) drain(done report) {
	v.draining.on = true
	v.results.close()
	v.takeResults()
	v.status.setDraining()
	v.draining.callers = append(v.draining.callers, done)
	for _, it := range v.queue.dues {
		it.due.handed.refuse()
	}
	v.queue.dues = nil
	for _, l := range v.catchUp.laggards { // the next start reads their queues again
		l.dismiss()
		l.queue, l.read = nil, map[string]readPosition{}
	}
}

// answerDrained answers the callers of Drain when nothing waits or is in flight.
func (v *loop) answerDrained() {
	if !v.draining.on || len(v.queue.events)+len(v.queue.dues)+len(v.inFlight.sets) > 0 || v.recovering() {
		return
	}
	for _, done := range v.draining.callers {
		done <- nil
	}
	v.draining.callers = nil
}
