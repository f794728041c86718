package engine

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"edda"
	"edda/saga"
	"edda/store"
)

const (
	// maxBatch bounds the inputs of a batch. A larger transaction gains little, and an input
	// waits for its whole batch to commit.
	maxBatch = 1024
	// maxBatchBytes bounds the payloads in the queue, and roughly the rows of a batch: a
	// batch that made more is followed by a smaller one.
	maxBatchBytes = 16 << 20
	// minLaneInputs is the least number of inputs for another lane, unless Options.Lanes is
	// set. To evaluate fewer takes less time than to wake a goroutine on another processor.
	minLaneInputs = 16
)

// batch is the inputs that are evaluated together: due inputs by time, then events in the
// order of their streams.
type batch struct {
	items          []*item
	sagas          Sagas
	overlay        overlay
	cache          *instanceCache
	db             records
	watermark      time.Time
	livedUntil     time.Time // see [positions]
	now            time.Time
	barrierAllowed bool // an event may wait for a timer
	seed           maphash.Seed
	lanes          []*lane
	encoders       *[]*store.Encoder // free ones, which the lanes take
	room           map[string]bool   // tenants that may park; read only
	laggards       laggards          // read only; usually empty
	shard          edda.Shard
	mu             sync.Mutex // guards withheld
	withheld       []withheldEvent
}

// lanesFor is the number of lanes for n inputs.
func (o *Options) lanesFor(n int) int {
	if o.Lanes > 0 {
		return o.Lanes
	}
	return min(runtime.GOMAXPROCS(0), max(n/minLaneInputs, 1))
}

// evaluate sets the targets and results of all items.
func (b *batch) evaluate(lanes int) error {
	lanes = min(lanes, len(b.items))
	_ = parallel(lanes, func(lane int) error { // never fails
		for i := lane; i < len(b.items); i += lanes {
			b.route(b.items[i])
		}
		return nil
	})
	b.spread(lanes)
	return parallel(len(b.lanes), func(i int) error { return b.lanes[i].run() })
}

// parallel runs n tasks at once. A single task needs no goroutine.
func parallel(n int, task func(i int) error) error {
	if n == 1 {
		return task(0)
	}
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { return task(i) })
	}
	return g.Wait()
}

// route sets the targets of one item.
func (b *batch) route(it *item) {
	switch {
	case it.isExchange(): // has its target already
	case it.spoiled != nil:
		it.targets = spoiledTarget(it)
	case !it.isRow():
		it.event, it.about = b.letter(b.match(it.event))
		it.targets = b.targets(it.event)
		if !b.shard.Whole() {
			b.leave(it)
		}
		if len(b.laggards) > 0 {
			b.withhold(it)
		}
		for i := range it.targets {
			it.targets[i].Crowded = !b.room[it.event.Tenant] // its tenant may park no more
		}
	}
	it.results, it.encoded = it.one[:0], it.oneEncoded[:0]
	if len(it.targets) > 1 {
		it.results, it.encoded = make([][]edda.Transition, 0, len(it.targets)), make([][]store.Encoded, 0, len(it.targets))
	}
	it.results, it.encoded = it.results[:len(it.targets)], it.encoded[:len(it.targets)]
}

// targets asks the sagas for the targets of an event. A panic becomes a dead letter.
func (b *batch) targets(ev edda.Event) (targets []saga.Target) {
	defer func() {
		if cause := recover(); cause != nil {
			targets = misrouted(ev, cause)
		}
	}()
	return b.sagas.Route(ev)
}

// match sets the key of a result that has none, as results of foreign workers do: the key
// of the command that waits for it. A result never matches a command of another tenant.
func (b *batch) match(ev edda.Event) edda.Event {
	if ev.Kind != edda.KindResult || ev.Malformed != "" || ev.Key.Correlation != "" {
		return ev
	}
	work, ok := b.db.Waiting(ev.CommandID)
	if !ok || work.From.Tenant != ev.Tenant {
		return ev
	}
	ev.Key = work.From
	if ev.Step == "" {
		ev.Step = work.Step
	}
	return ev
}

// letter looks up the event of the dead letter that an operator's command names. What the
// sender of the command says about that event is ignored. A redrive gets the event.
func (b *batch) letter(ev edda.Event) (edda.Event, *edda.Event) {
	if ev.Kind != edda.KindOperator || ev.Malformed != "" || len(ev.Payload) == 0 {
		return ev, nil
	}
	var r edda.Redrive
	if !slices.Contains(letterVerbs, ev.Type) || json.Unmarshal(ev.Payload, &r) != nil {
		return ev, nil // names no dead letter
	}
	r.Event, r.Reason, r.Unseen, r.Cut = nil, "", false, 0
	if d, found, err := b.db.DeadLetter(r.DeadLetter); err == nil && found && d.Key == ev.Key {
		r.Event, r.Reason, r.Unseen, r.Cut = &d.Event, d.Reason, d.Unseen, d.Cut
	}
	r.ReadBack = r.ReadBack && r.Cut > 0
	if ev.Type != edda.VerbRedrive {
		return ev, r.Event
	}
	return carrying(ev, r), r.Event
}

// letterVerbs are the verbs that may name a dead letter.
var letterVerbs = []string{edda.VerbRedrive, edda.VerbDrop, edda.VerbSkip}

// carrying returns the verb with r, the whole dead letter, as its payload.
func carrying(ev edda.Event, r edda.Redrive) edda.Event {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // keeps payloads byte for byte
	if enc.Encode(r) == nil {
		ev.Payload = bytes.TrimSpace(buf.Bytes())
	}
	return ev
}

// spread assigns each key to one lane, so that its items stay in order.
func (b *batch) spread(lanes int) {
	b.seed, b.lanes = maphash.MakeSeed(), make([]*lane, lanes)
	for i := range b.lanes {
		b.lanes[i] = &lane{batch: b, encoder: b.encoder(), jobs: make([]job, 0, len(b.items)/lanes+1)}
	}
	for _, it := range b.items {
		for i, target := range it.targets {
			l := b.laneOf(target.Key)
			l.jobs = append(l.jobs, job{it, i})
		}
	}
}

// encoder takes a free encoder, or makes one.
func (b *batch) encoder() *store.Encoder {
	free := *b.encoders
	if len(free) == 0 {
		return new(store.Encoder)
	}
	*b.encoders = free[:len(free)-1]
	return free[len(free)-1]
}

// usedEncoders returns the encoders of the lanes.
func (b *batch) usedEncoders() (all []*store.Encoder) {
	for _, l := range b.lanes {
		all = append(all, l.encoder)
	}
	return all
}

// barrier is the due time of the timer that an event of the batch must wait for: the latest
// of several, zero if there is none.
func (b *batch) barrier() (due time.Time) {
	for _, l := range b.lanes {
		if l.waitFor.After(due) {
			due = l.waitFor
		}
	}
	return due
}

// laneOf is the lane of a key.
func (b *batch) laneOf(k edda.Key) *lane {
	if len(b.lanes) == 1 {
		return b.lanes[0]
	}
	return b.lanes[maphash.Comparable(b.seed, k)%uint64(len(b.lanes))]
}

// cell is the cell of a changed key, as the batch leaves it.
func (b *batch) cell(k edda.Key) edda.Cell { return b.laneOf(k).cells[k] }
