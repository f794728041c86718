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

// maxBatch bounds the inputs of one evaluation. Larger transactions gain
// little beyond it, and an input waits for the whole batch to commit.
const maxBatch = 1024

// maxBatchBytes bounds the payloads that wait for an evaluation, and about what
// one evaluation makes: a batch that made more is followed by a smaller one.
const maxBatchBytes = 16 << 20

// batch is what is evaluated at once: first what is due, by time, then events,
// in the order of their streams.
type batch struct {
	items   []*item
	sagas   Sagas
	over    overlay
	kept    *instanceCache
	db      records
	horizon time.Time
	lived   time.Time // until then nothing that was due was missed
	now     time.Time
	patient bool // an event may wait for what is due before it
	seed    maphash.Seed
	lanes   []*lane
	// encoders are those that no batch uses; the lanes take theirs from them.
	encoders *[]*store.Encoder
	room     map[string]bool // tenants that may park; read only
	lagging  lagging         // read only; mostly there is none
	leaving  sync.Mutex      // guards left
	left     []leaving       // events that are left to pairs that are behind
}

// worthLane is how many inputs a lane is worth, unless somebody says how many lanes there
// are: for fewer, to wake a goroutine and another processor takes longer than they do.
const worthLane = 16

// lanesFor says how many lanes n inputs have.
func (o *Options) lanesFor(n int) int {
	if o.Lanes > 0 {
		return o.Lanes
	}
	return min(runtime.GOMAXPROCS(0), max(n/worthLane, 1))
}

// evaluate fills in the targets and results of all items.
func (b *batch) evaluate(lanes int) error {
	lanes = min(lanes, len(b.items))
	if err := b.route(lanes); err != nil {
		return err
	}
	b.spread(lanes)
	return parallel(len(b.lanes), func(i int) error { return b.lanes[i].run() })
}

// parallel runs n tasks at once, the only one without a goroutine.
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

// route finds the targets, each lane of every lanes-th item.
func (b *batch) route(lanes int) error {
	return parallel(lanes, func(lane int) error {
		for i := lane; i < len(b.items); i += lanes {
			b.routeOne(b.items[i])
		}
		return nil
	})
}

func (b *batch) routeOne(it *item) {
	switch {
	case it.isExchange(): // its key is known
	case it.spoiled != nil:
		it.targets = spoilt(it)
	case !it.isRow():
		it.event, it.about = b.letter(b.match(it.event))
		it.targets = b.targets(it.event)
		if len(b.lagging) > 0 {
			b.leave(it)
		}
		b.crowd(it)
	}
	it.results, it.encoded = it.one[:0], it.oneEncoded[:0]
	if len(it.targets) > 1 {
		it.results, it.encoded = make([][]edda.Transition, 0, len(it.targets)), make([][]store.Encoded, 0, len(it.targets))
	}
	it.results, it.encoded = it.results[:len(it.targets)], it.encoded[:len(it.targets)]
}

// crowd marks the targets of a tenant that may park no more.
func (b *batch) crowd(it *item) {
	for i := range it.targets {
		it.targets[i].Crowded = !b.room[it.event.Tenant]
	}
}

func (b *batch) targets(ev edda.Event) (targets []saga.Target) {
	defer func() {
		if cause := recover(); cause != nil {
			targets = misrouted(ev, cause)
		}
	}()
	return b.sagas.Route(ev)
}

// match gives a result of a foreign worker, which does not say whose it is, the
// key of the command that waits for it. A tenant's result never settles
// another's command.
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

// letter gives a verb about a dead letter the event that died: the store has it,
// and whoever sent the verb does not say what it was. A redrive carries it on.
func (b *batch) letter(ev edda.Event) (edda.Event, *edda.Event) {
	if ev.Kind != edda.KindOperator || ev.Malformed != "" || len(ev.Payload) == 0 {
		return ev, nil
	}
	var r edda.Redrive
	if !slices.Contains(letterVerbs, ev.Type) || json.Unmarshal(ev.Payload, &r) != nil {
		return ev, nil // it names none
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

// letterVerbs are the verbs that may be about a dead letter.
var letterVerbs = []string{edda.VerbRedrive, edda.VerbDrop, edda.VerbSkip}

// carrying is the verb with all that is known of its dead letter.
func carrying(ev edda.Event, r edda.Redrive) edda.Event {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // payloads stay as they are, byte for byte
	if enc.Encode(r) == nil {
		ev.Payload = bytes.TrimSpace(buf.Bytes())
	}
	return ev
}

// spread gives each key to one lane, so that its items stay in order.
func (b *batch) spread(lanes int) {
	b.lanes = make([]*lane, lanes)
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

// encoder is one that no other batch uses.
func (b *batch) encoder() *store.Encoder {
	free := *b.encoders
	if len(free) == 0 {
		return new(store.Encoder)
	}
	*b.encoders = free[:len(free)-1]
	return free[len(free)-1]
}

// used are the encoders of the lanes.
func (b *batch) used() (all []*store.Encoder) {
	for _, l := range b.lanes {
		all = append(all, l.encoder)
	}
	return all
}

// first is what an event of the batch waits for; the latest, where several do.
func (b *batch) first() (due time.Time) {
	for _, l := range b.lanes {
		if l.first.After(due) {
			due = l.first
		}
	}
	return due
}

// laneOf is where the items of a key are evaluated.
func (b *batch) laneOf(k edda.Key) *lane {
	if len(b.lanes) == 1 {
		return b.lanes[0]
	}
	return b.lanes[maphash.Comparable(b.seed, k)%uint64(len(b.lanes))]
}

// cell is that of a key that changed, as the batch leaves it.
func (b *batch) cell(k edda.Key) edda.Cell { return b.laneOf(k).cells[k] }

// overlay holds the cells that are evaluated and not yet durable. Only the
// evaluator changes it, and never while lanes run.
type overlay map[edda.Key]overlaid

// overlaid is a cell and the number of the change set that writes it last.
type overlaid struct {
	cell edda.Cell
	set  uint64
}

// release drops what the change set wrote last. It is durable now, and kept where its
// instance is the very one that was written.
func (o overlay) release(s *set, to *instanceCache) {
	for _, t := range s.transitions() {
		if c, ok := o[t.Key]; ok && c.set <= s.n && t.Instance != nil && t.Instance == c.cell.Instance {
			to.keep(t.Key, c.cell)
		}
	}
	for _, t := range s.transitions() {
		if c, ok := o[t.Key]; ok && c.set <= s.n {
			delete(o, t.Key)
		}
	}
}
