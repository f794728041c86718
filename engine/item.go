package engine

import (
	"sync"
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
	// alone is set when what it changed may be what the store cannot write:
	// it is tried in a batch of its own. Spoiled says that it was that.
	alone   bool
	spoiled error
}

// due is a row of the due index, the start of a schedule, or an exchange.
type due struct {
	time     time.Time
	row      *store.Due     // set for a row
	schedule *edda.Schedule // set for a start
	exchange *exchange      // set for a cell that is changed beside the streams
	handed   *handover
	woken    *woken // set for a row: where it lies
}

// woken is the item of a due row, with all that it refers to.
type woken struct {
	item   item
	due    due
	row    store.Due
	target [1]saga.Target
}

// handover is what one caller of Wake or Start waits for.
type handover struct {
	left int // owned by the evaluator
	done report
}

func (h *handover) settle() {
	if h.left--; h.left == 0 {
		h.done <- nil
	}
}

// arrivals, handovers and wakings are items that are over, for the next ones: see [item.free].
var (
	wakings   = sync.Pool{New: func() any { return new(woken) }}
	arrivals  = sync.Pool{New: func() any { return new(item) }}
	handovers = sync.Pool{New: func() any { return new(handed) }}
)

// newArrival is an event of a stream.
func newArrival(ev edda.Event, from Fetched) *item {
	it := arrivals.Get().(*item)
	it.event, it.past, it.lived = ev.Taken(), from.Past, from.Lived
	if !ev.Stored.IsZero() {
		it.echo = &edda.Checkpoint{Stream: ev.Stream, Seq: ev.Seq, Time: ev.Stored}
	}
	return it
}

// newHanded is a result that was handed in.
func newHanded(r Handed, done report) *item {
	h := handovers.Get().(*handed)
	h.claim, h.echo, h.done = r.Claim, r.Echo, done
	h.item.event, h.item.handed = r.Event, h
	return &h.item
}

// free gives back an item that is durable and of which everyone was told: only the set that
// it ended in has it still, and is over. What else is due is its caller's.
func (it *item) free() {
	switch h := it.handed; {
	case h != nil:
		*h = handed{}
		handovers.Put(h)
	case it.due == nil:
		*it = item{}
		arrivals.Put(it)
	case it.due.woken != nil:
		w := it.due.woken
		*w = woken{}
		wakings.Put(w)
	}
}

// position is where an event of a stream lies in it.
func (it *item) position() edda.Checkpoint {
	if it.echo != nil {
		return *it.echo
	}
	return edda.Checkpoint{Stream: it.event.Stream, Seq: it.event.Seq, Time: it.event.Time}
}

func newRow(row store.Due, h *handover) *item {
	w := wakings.Get().(*woken)
	w.row, w.target[0].Key = row, row.Key
	w.due = due{time: row.Time, row: &w.row, handed: h, woken: w}
	w.item.due, w.item.targets = &w.due, w.target[:]
	return &w.item
}

func newStart(ev edda.Event, s edda.Schedule, h *handover) *item {
	return &item{event: ev, due: &due{time: ev.Time, schedule: &s, handed: h}}
}

// isRow tells a due row from what is routed and applied.
func (it *item) isRow() bool { return it.due != nil && it.due.row != nil }

func (it *item) isExchange() bool { return it.due != nil && it.due.exchange != nil }

// moved says where the results are now, of all targets: what the lanes work in is for the
// next batch.
func (it *item) moved(to []edda.Transition) {
	for i := range it.results {
		n := len(it.results[i])
		it.results[i], to = to[:n:n], to[n:]
	}
}

// forget clears what an evaluation found, before the next one.
func (it *item) forget() {
	it.results, it.one, it.withheld = nil, [1][]edda.Transition{}, false
	if !it.isRow() && !it.isExchange() {
		it.targets = nil
	}
}

// outcome sums up what became of the item's event.
func (it *item) outcome() Outcome {
	o := Outcome{Fate: edda.FateIgnored}
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
func (o *Outcome) takeAll(event string, ts []edda.Transition) {
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
func (o *Outcome) take(k edda.Key, fate edda.Fate, dead *edda.DeadLetter) {
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
