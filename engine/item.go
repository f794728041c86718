package engine

import (
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// item is one input on its way through the engine: an event or a due input.
type item struct {
	event  edda.Event
	due    *due             // nil for an event
	handed *handed          // set for a handed-in result
	echo   *edda.Checkpoint // position of an echo, whose event is as it was handed in
	past   bool             // everything stored before the event came before it
	lived  bool             // and a process ran when it was stored
	// withheld says that a laggard has not applied the event yet.
	withheld bool
	lag      *laggard // set for a catch-up event, which was read for this laggard
	// elsewhere says that only the stores of other shards are concerned with the event.
	elsewhere bool
	targets   []saga.Target
	// about is the event of the dead letter that an operator's command names, for the audit.
	about *edda.Event
	// results are the transitions of each target, each written by one lane.
	results [][]edda.Transition
	one     [1][]edda.Transition // backs results: usually there is one target
	// encoded are the rows of the results, in the order of the targets. Result is the row of
	// a handed-in result's claim and echo.
	encoded    [][]store.Encoded
	oneEncoded [1][]store.Encoded
	result     []store.Encoded
	// alone marks a suspect: the store refused a set with it, so it is tried in a batch of its
	// own. Spoiled is the store's error if that fails too.
	alone   bool
	spoiled error
}

// due is a due input: a row of the due index, the start of a schedule, or an exchange.
type due struct {
	time     time.Time
	row      *store.Due          // set for a row
	schedule *edda.ScheduleState // set for a start
	exchange *exchange           // set for a call of Exchange
	handed   *handover
}

// handover counts the inputs of one call of Wake, Start or Exchange that are not yet durable.
type handover struct {
	left int // owned by the loop
	done report
}

func (h *handover) settle() {
	if h.left--; h.left == 0 {
		h.done <- nil
	}
}

// arrival makes an item of an event that a source gave.
func arrival(ev edda.Event, from Fetched) *item {
	it := &item{event: ev.Taken(), past: from.Past, lived: from.Lived}
	if !ev.Stored.IsZero() {
		it.echo = &edda.Checkpoint{Stream: ev.Stream, Seq: ev.Seq, Time: ev.Stored}
	}
	return it
}

// position is the event's position in its stream.
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

// isRow tells whether the item is a row of the due index, which needs no routing.
func (it *item) isRow() bool { return it.due != nil && it.due.row != nil }

func (it *item) isExchange() bool { return it.due != nil && it.due.exchange != nil }

// forget clears the outcome of an evaluation, before the next one.
func (it *item) forget() {
	it.results, it.one, it.encoded, it.oneEncoded, it.result = nil, [1][]edda.Transition{}, nil, [1][]store.Encoded{}, nil
	it.withheld, it.elsewhere = false, false
	if !it.isRow() && !it.isExchange() {
		it.targets = nil
	}
}

// outcome is the outcome of the item's event.
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

// takeAll adds one target's transitions. The outputs of released events count for this
// event, their fates do not.
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

// take sets the key and the fate of the first target that took the event.
func (o *EventResult) take(k edda.Key, fate edda.Fate, dead *edda.DeadLetter) {
	if o.Fate != edda.FateIgnored {
		return
	}
	o.Key, o.Fate, o.Dead = k, fate, dead
}

// refuse answers the call with ErrDraining.
func (h *handover) refuse() {
	if h.left > 0 {
		h.left = 0
		h.done <- ErrDraining
	}
}
