package engine

import (
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// item is one input on its way through the engine: an event of a stream, or
// something that came due.
type item struct {
	event  edda.Event
	due    *due             // nil for an event of a stream
	handed *handed          // set for a result that came from within the process
	echo   *edda.Checkpoint // where the copy of such a result lies; its event is as it was handed in
	past   bool             // everything stored before the event came before it
	lived  bool             // and the process worked when it was stored
	// withheld says that a saga which is behind has still to come to the event.
	withheld bool
	lag      *laggard // set for an event that was read for a pair that is behind
	targets  []saga.Target
	// about is the event that died, of a verb about a dead letter; for the audit.
	about *edda.Event
	// results are what each target changed; each is written by one lane.
	results [][]edda.Transition
	one     [1][]edda.Transition // room for them: mostly there is one target
	// encoded are the rows of the results, in the order of the targets; result those of the
	// claim and the echo that were handed in.
	encoded    [][]store.Encoded
	oneEncoded [1][]store.Encoded
	result     []store.Encoded
	// alone is set when what it changed may be what the store cannot write:
	// it is tried in a batch of its own. Spoiled says that it was that.
	alone   bool
	spoiled error
}

// due is a row of the due index, the start of a schedule, or an exchange.
type due struct {
	time     time.Time
	row      *store.Due          // set for a row
	schedule *edda.ScheduleState // set for a start
	exchange *exchange           // set for a cell that is changed beside the streams
	handed   *handover
}

// handover is what one caller of Wake or Start waits for.
type handover struct {
	left int // owned by the loop
	done report
}

func (h *handover) settle() {
	if h.left--; h.left == 0 {
		h.done <- nil
	}
}

// arrival is an event of a stream.
func arrival(ev edda.Event, from Fetched) *item {
	it := &item{event: ev.Taken(), past: from.Past, lived: from.Lived}
	if !ev.Stored.IsZero() {
		it.echo = &edda.Checkpoint{Stream: ev.Stream, Seq: ev.Seq, Time: ev.Stored}
	}
	return it
}

// position is where an event of a stream lies in it.
func (it *item) position() edda.Checkpoint {
	if it.echo != nil {
		return *it.echo
	}
	return edda.Checkpoint{Stream: it.event.Stream, Seq: it.event.Seq, Time: it.event.Time}
}

func newRow(row store.Due, h *handover) *item {
	return &item{due: &due{time: row.Time, row: &row, handed: h}, targets: []saga.Target{{Key: row.Key}}}
}

func newStart(ev edda.Event, s edda.ScheduleState, h *handover) *item {
	return &item{event: ev, due: &due{time: ev.Time, schedule: &s, handed: h}}
}

// isRow tells a due row from what is routed and applied.
func (it *item) isRow() bool { return it.due != nil && it.due.row != nil }

func (it *item) isExchange() bool { return it.due != nil && it.due.exchange != nil }

// forget clears what an evaluation found, before the next one.
func (it *item) forget() {
	it.results, it.one, it.encoded, it.oneEncoded, it.result, it.withheld = nil, [1][]edda.Transition{}, nil, [1][]store.Encoded{}, nil, false
	if !it.isRow() && !it.isExchange() {
		it.targets = nil
	}
}

// outcome sums up what became of the item's event.
func (it *item) outcome() EventResult {
	o := EventResult{Fate: edda.FateIgnored}
	for i, target := range it.targets {
		if target.Dead != nil {
			o.take(target.Key, edda.FateDead, target.Dead)
			continue
		}
		o.takeAll(it.event.ID, it.results[i])
	}
	return o
}

// takeAll adds one target's transitions. The outputs of events that this one
// released are its doing too; their fates are not its own.
func (o *EventResult) takeAll(event string, ts []edda.Transition) {
	for _, t := range ts {
		if t.Event.ID == event && t.Fate != "" {
			o.take(t.Key, t.Fate, t.Dead)
		}
		if t.Event.ID != event && t.Fate != "" {
			o.Released = append(o.Released, Released{Event: t.Event.ID, Fate: t.Fate, Dead: t.Dead})
		}
		o.Outputs = append(o.Outputs, t.Outputs...)
		if t.Instance != nil && t.Key == o.Key {
			o.Status = t.Instance.Status
		}
	}
}

// take keeps the first key that took the event, and its fate.
func (o *EventResult) take(k edda.Key, fate edda.Fate, dead *edda.DeadLetter) {
	if o.Fate != edda.FateIgnored {
		return
	}
	o.Key, o.Fate, o.Dead = k, fate, dead
}

// refuse answers for all of what was handed over.
func (h *handover) refuse() {
	if h.left > 0 {
		h.left = 0
		h.done <- ErrDraining
	}
}
