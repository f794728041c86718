package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

const (
	// maxCaught bounds the catch-up events of a batch. They delay the live events of the same
	// batch and commit by a millisecond or two.
	maxCaught = 128
	// maxLaggards bounds the laggards, because each has rows in the store and filters every
	// event. With more of them a destination fills up, which pauses everything.
	maxLaggards = 256
	// farBehind is how many messages a reader may be behind when it has read its backlog. With
	// more it starts over, to read those in stored order too.
	farBehind = 2048
)

// AllTenants is the tenant of a [SagaTenant] that covers every tenant without its own.
const AllTenants = store.AllTenants

// SagaTenant names a saga and the tenant for which it is behind, or [AllTenants].
type SagaTenant struct{ Tenant, Saga string }

func (p SagaTenant) compare(other SagaTenant) int {
	return cmp.Or(cmp.Compare(p.Saga, other.Saga), cmp.Compare(p.Tenant, other.Tenant))
}

// laggard is a saga, for one tenant or for all, that is behind the streams. It has its own
// positions. The main line withholds aggregate events and facts from it. A catch-up reader
// reads them in stored order, and they are applied up to where the main line is. When every
// withheld event is applied, the laggard rejoins the main line: that commit drops its positions.
//
// The loop owns it. Lanes read it while they run, when nothing changes it.
type laggard struct {
	SagaTenant
	start    map[string]uint64          // where this process found it, by stream
	read     map[string]readPosition    // all its events up to here are applied or in the queue
	applied  map[string]edda.Checkpoint // evaluated
	durable  map[string]edda.Checkpoint // committed; nil before its first commit
	withheld map[string]uint64          // last event that the main line withheld
	queue    []*item                    // events read and not applied

	// Timers of its keys fire up to bound. They fire freely until an event is withheld.
	bound   time.Time
	bounded bool

	rejoining  bool   // the batch in which it rejoins is evaluated and not durable
	dirty      bool   // the next change set writes applied
	paused     string // destination without room, for which reading stops; else empty
	assignment *assignment
	blocked    report // of the reader, which waits for room in the queue
	problem    error  // of the last reader
	retryAt    time.Time
}

func newLaggard(p SagaTenant) *laggard {
	return &laggard{
		SagaTenant: p, start: map[string]uint64{}, read: map[string]readPosition{},
		applied: map[string]edda.Checkpoint{}, withheld: map[string]uint64{},
	}
}

// startAt sets the position of a new laggard in one stream.
func (l *laggard) startAt(c edda.Checkpoint) {
	l.applied[c.Stream], l.start[c.Stream] = c, c.Seq
}

// reached is the sequence up to which all its events of a stream are applied or queued.
func (l *laggard) reached(stream string) uint64 {
	return max(l.applied[stream].Seq, l.read[stream].seq)
}

// has tells whether an event is applied or was queued.
func (l *laggard) has(ev *edda.Event) bool {
	return l.applied[ev.Stream].Covers(ev) || l.read[ev.Stream].has(ev)
}

// positions returns the applied positions in the order of their streams.
func (l *laggard) positions() []store.SagaPosition {
	out := make([]store.SagaPosition, 0, len(l.applied))
	for _, stream := range slices.Sorted(maps.Keys(l.applied)) {
		out = append(out, store.SagaPosition{Tenant: l.Tenant, Saga: l.Saga, Checkpoint: l.applied[stream]})
	}
	return out
}

// lag counts the messages, others' included, from the positions of a laggard to the last
// events withheld from it.
func (l *laggard) lag(position func(stream string) uint64) (n uint64) {
	for stream, seq := range l.withheld {
		if at := position(stream); seq > at {
			n += seq - at
		}
	}
	return n
}

// allRead tells whether its readers have read every event that was withheld from it.
func (l *laggard) allRead() bool { return l.lag(l.reached) == 0 }

// laggards are the sagas that are behind. Usually there are none.
type laggards map[SagaTenant]*laggard

// find returns the laggard of a saga and tenant, else that of the saga for all tenants.
func (g laggards) find(tenant, saga string) *laggard {
	if l := g[SagaTenant{tenant, saga}]; l != nil {
		return l
	}
	return g[SagaTenant{AllTenants, saga}]
}

// behind is find without a laggard that is rejoining.
func (g laggards) behind(tenant, saga string) *laggard {
	if l := g.find(tenant, saga); l != nil && !l.rejoining {
		return l
	}
	return nil
}

// within limits t to the time up to which timers of the key may fire: for a laggard, up to
// the first withheld event that is not applied.
func (g laggards) within(k edda.Key, t time.Time) time.Time {
	if len(g) == 0 {
		return t
	}
	if l := g.behind(k.Tenant, k.Saga); l != nil && l.bounded {
		return earlier(t, l.bound)
	}
	return t
}

func (g laggards) sorted() []*laggard {
	return slices.SortedFunc(maps.Values(g), func(a, b *laggard) int { return a.compare(b.SagaTenant) })
}

// withheldEvent is an event that the main line leaves to a laggard.
type withheldEvent struct {
	from *laggard
	at   edda.Checkpoint
}

// withhold removes the targets of an event that do not apply it now: from an event of the
// main line those of laggards, from a catch-up event those of all other sagas.
func (b *batch) withhold(it *item) {
	if it.event.Kind != edda.KindEvent || it.event.Malformed != "" && it.lag == nil {
		return
	}
	n := 0
	for _, target := range it.targets {
		l := b.laggards.find(it.event.Tenant, target.Key.Saga)
		if it.lag != nil && l == it.lag || it.lag == nil && (l == nil || l.rejoining) {
			it.targets[n] = target
			n++
			continue
		}
		if it.lag == nil {
			it.withheld = true
			b.mu.Lock()
			b.withheld = append(b.withheld, withheldEvent{l, it.position()})
			b.mu.Unlock()
		}
	}
	it.targets = it.targets[:n]
}

// takeCatchUp removes catch-up events for the next batch from the laggards' queues, about as
// many of each: those that the main line has passed. A suspect event comes alone.
func (v *loop) takeCatchUp(limit int) (items []*item) {
	if len(v.catchUp.laggards) == 0 || v.pressure.holds() {
		return nil
	}
	all := v.catchUp.laggards.sorted()
	slices.SortStableFunc(all, func(a, b *laggard) int { return cmp.Compare(len(a.queue), len(b.queue)) })
	for i, l := range all {
		if l.paused != "" || l.rejoining {
			continue
		}
		share := len(items) + max(1, (limit-len(items))/(len(all)-i))
		full, left := false, l.queue[:0]
		for _, it := range l.queue {
			full = full || len(items) >= min(share, limit) || len(items) > 0 && (it.alone || items[0].alone)
			if full || !v.passed(it) {
				left = append(left, it)
				continue
			}
			items = append(items, it)
		}
		clear(l.queue[len(left):])
		l.queue = left
	}
	return items
}

// catchUpReady tells whether a batch can apply a catch-up event, or write a position or an
// audit of a laggard.
func (v *loop) catchUpReady() bool {
	if len(v.catchUp.audits) > 0 {
		return true
	}
	for _, l := range v.catchUp.laggards {
		if !l.rejoining && (l.dirty || l.paused == "" && !v.pressure.holds() && slices.ContainsFunc(l.queue, v.passed)) {
			return true
		}
	}
	return len(v.canRejoin()) > 0
}

// passed tells whether the main line has passed a catch-up event.
func (v *loop) passed(it *item) bool {
	return v.positions.applied[it.event.Stream].Covers(&it.event)
}

// canRejoin lists the laggards that rejoin with the next batch, which applies the rest of
// their queues. One of a single tenant waits for the saga's laggard of all tenants, because it
// is an exception of that.
func (v *loop) canRejoin() (all []*laggard) {
	for _, l := range v.catchUp.laggards {
		if l.paused != "" || l.rejoining || !l.allRead() || slices.ContainsFunc(l.queue, v.passed) {
			continue
		}
		if of := v.catchUp.laggards[SagaTenant{AllTenants, l.Saga}]; of != nil && of != l {
			continue
		}
		all = append(all, l)
	}
	return all
}

// rejoin marks the laggards that rejoin with the batch, before it is evaluated.
func (v *loop) rejoin() []*laggard {
	all := v.canRejoin()
	for _, l := range all {
		l.rejoining = true
	}
	return all
}

// undoRejoin undoes rejoin for a batch that is not submitted.
func (v *loop) undoRejoin(all []*laggard) {
	for _, l := range all {
		l.rejoining = false
	}
}

// submitPositions submits the laggards' positions and audits without a batch.
func (v *loop) submitPositions(rejoining []*laggard) {
	s := &set{n: v.inFlight.lastSet + 1, last: true}
	v.addPositions([]*set{s}, nil, rejoining)
	if c := &s.change; len(c.Positions)+len(c.DropPositions)+len(c.Audits) > 0 {
		v.submit([]*set{s}, nil)
	}
	v.serveReaders()
}

// returnDues removes due rows beyond the bounds of laggards from the queue, and answers
// their callers. The rows stay in the due index.
func (v *loop) returnDues() {
	if len(v.catchUp.laggards) == 0 {
		return
	}
	v.queue.dues = slices.DeleteFunc(v.queue.dues, func(it *item) bool {
		if !v.beyondBound(it) {
			return false
		}
		it.due.handed.settle()
		return true
	})
}

// beyondBound tells whether the item is a due row that a laggard's bound keeps from firing.
func (v *loop) beyondBound(it *item) bool {
	return it.isRow() && v.catchUp.laggards.within(it.due.row.Key, it.due.time).Before(it.due.time)
}

// addPositions adds the state of the laggards to the sets of a batch that is to be submitted:
// positions that moved without an event, audits, and which laggards rejoin. A laggard rejoins
// with the last set that moves it.
func (v *loop) addPositions(sets []*set, b *batch, rejoining []*laggard) {
	if len(v.catchUp.laggards) == 0 && len(v.catchUp.audits) == 0 {
		return
	}
	first := sets[0]
	for _, l := range v.catchUp.laggards {
		if !l.dirty || l.rejoining {
			continue
		}
		l.dirty = false
		for _, p := range l.positions() {
			if !slices.ContainsFunc(first.change.Positions, func(q store.SagaPosition) bool {
				return q.Tenant == p.Tenant && q.Saga == p.Saga && q.Stream == p.Stream
			}) {
				first.change.Positions = append(first.change.Positions, p)
			}
		}
	}
	first.audits, v.catchUp.audits = v.catchUp.audits, nil
	first.change.Audits = append(first.change.Audits, first.audits...)
	for _, l := range rejoining {
		to := first
		for _, s := range sets {
			if s.movesLaggard(l.SagaTenant) {
				to = s
			}
		}
		for _, p := range l.positions() {
			if slices.Contains(v.opts.CatchUp.Streams, p.Stream) { // it goes on in another stream once that is read again
				to.change.DropPositions = append(to.change.DropPositions, p)
			}
		}
		l.queue = nil // the main line applies what it has not passed
	}
	if b != nil {
		b.moveBounds()
	}
}

// moveBounds moves the times up to which timers of laggards may fire. All that was stored
// before a catch-up event is applied. Nothing is applied that was stored after the first
// withheld event.
func (b *batch) moveBounds() {
	for _, it := range b.items {
		if l := it.lag; l != nil {
			l.bounded = true
			if upto := it.event.StoredAt().Add(-1); upto.After(l.bound) {
				l.bound = upto
			}
		}
	}
	for _, w := range b.withheld {
		l := w.from
		l.withheld[w.at.Stream] = max(l.withheld[w.at.Stream], w.at.Seq)
		if !l.bounded {
			l.bounded, l.bound = true, w.at.Time.Add(-1)
		}
	}
}

// committedBehind follows the commit of a set that moves laggards. Those that have rejoined
// are no laggards any more.
func (v *loop) committedBehind(s *set) {
	for _, p := range s.change.Positions {
		if l := v.catchUp.laggards[SagaTenant{p.Tenant, p.Saga}]; l != nil {
			if l.durable == nil {
				l.durable = map[string]edda.Checkpoint{}
			}
			l.durable[p.Stream] = p.Checkpoint
		}
	}
	for _, p := range s.change.DropPositions {
		l := v.catchUp.laggards[SagaTenant{p.Tenant, p.Saga}]
		if l == nil || !l.rejoining {
			continue
		}
		// gofail: var engineRejoined struct{}
		delete(v.catchUp.laggards, l.SagaTenant)
		l.dismiss()
		v.log.Info("a saga has caught up with the streams", zap.String("saga", l.Saga), zap.String("tenant", l.Tenant))
		if v.pressure.overShare[l.SagaTenant] != "" {
			v.pause(v.pressure.overShare) // it lost its room while it rejoined
		}
	}
	v.showBehind()
}

// resetLaggards follows a failure of the store: it sets the laggards to their durable
// positions. putBack returns the lost items to their queues. One that fell behind in a lost set is none any
// more: what was withheld from it is lost, too, and is applied again by the main line, or by the laggard of all
// tenants. It falls behind once more if its destination still has no room.
func (v *loop) resetLaggards() {
	for _, l := range v.catchUp.laggards {
		if l.durable == nil {
			l.dismiss()
			delete(v.catchUp.laggards, l.SagaTenant)
			continue
		}
		if l.rejoining { // what it had read beyond the main line is read again
			l.dismiss()
			l.read = map[string]readPosition{}
		}
		l.applied, l.rejoining, l.dirty = maps.Clone(l.durable), false, true
	}
	v.pause(v.pressure.overShare)
}

// addLaggards adds the sagas whose own positions the store has. Any event that the main line
// has passed may have been withheld from them. The rows of a stream that is not read any more are
// kept, and nothing of it is awaited. In a stream that is new they begin with the main line.
func (v *loop) addLaggards(rows []store.SagaPosition) {
	read := v.opts.CatchUp.Streams
	for _, p := range rows {
		pair := SagaTenant{p.Tenant, p.Saga}
		l := v.catchUp.laggards[pair]
		if l == nil {
			l = newLaggard(pair)
			l.bounded = true
			v.catchUp.laggards[pair] = l
		}
		if l.durable == nil {
			l.durable = map[string]edda.Checkpoint{}
		}
		l.startAt(p.Checkpoint)
		l.durable[p.Stream] = p.Checkpoint
		if slices.Contains(read, p.Stream) {
			l.withheld[p.Stream] = v.positions.applied[p.Stream].Last()
		}
	}
	for _, l := range v.catchUp.laggards {
		for _, stream := range read { // that the row's saga has no position in
			if at, known := v.positions.applied[stream]; known && l.durable != nil && l.durable[stream].Stream == "" {
				l.startAt(at)
				l.durable[stream], l.dirty = at, true
			}
		}
	}
	v.showBehind()
}

// pause makes sagas over their share of a destination fall behind, and resumes the others. A
// rejoining laggard is paused after its commit.
func (v *loop) pause(overShare map[SagaTenant]string) {
	for _, l := range v.catchUp.laggards {
		if l.rejoining {
			continue
		}
		if l.paused = overShare[l.SagaTenant]; l.paused != "" {
			l.dismiss()
		}
	}
	for pair, destination := range overShare {
		if v.catchUp.laggards[pair] == nil && len(v.catchUp.laggards) < maxLaggards {
			v.fallBehind(pair, destination)
		}
	}
	v.showBehind()
	v.assignReaders()
}

// fallBehind adds a paused laggard. It starts at the applied positions of the main line, or
// of the saga's laggard of all tenants.
func (v *loop) fallBehind(pair SagaTenant, destination string) {
	l := newLaggard(pair)
	if all := v.catchUp.laggards.behind(AllTenants, pair.Saga); all != nil {
		for _, at := range all.applied {
			l.startAt(at)
		}
		l.withheld, l.bound, l.bounded = maps.Clone(all.withheld), all.bound, all.bounded
	} else {
		for _, stream := range v.opts.CatchUp.Streams {
			if at, ok := v.positions.applied[stream]; ok {
				l.startAt(at)
			}
		}
	}
	l.paused, l.dirty = destination, true
	v.catchUp.laggards[pair] = l
	v.log.Warn("a saga is paused: its destination has no room for more of its work",
		zap.String("saga", pair.Saga), zap.String("tenant", pair.Tenant), zap.String("destination", destination))
}

// showBehind shows the laggards in Waits, the metrics and the status.
func (v *loop) showBehind() {
	if len(v.catchUp.laggards) == 0 && v.bounds.Load() == nil {
		return
	}
	bounds := make(map[SagaTenant]*time.Time, len(v.catchUp.laggards))
	infos := make([]Behind, 0, len(v.catchUp.laggards))
	for _, l := range v.catchUp.laggards.sorted() {
		bounds[l.SagaTenant] = nil
		if l.rejoining {
			continue
		}
		infos = append(infos, l.info())
		if bound := l.bound; l.bounded {
			bounds[l.SagaTenant] = &bound
		}
	}
	if len(v.catchUp.laggards) == 0 {
		v.bounds.Store(nil)
	} else {
		v.bounds.Store(&bounds)
	}
	v.metrics.showBehind(infos)
	v.status.setBehind(infos)
}

// Waits tells whether a due row must wait: its saga is behind, and has not applied all events
// stored before the row was due. It may be called concurrently.
func (e *Engine) Waits(d store.Due) bool {
	bounds := e.bounds.Load()
	if bounds == nil {
		return false
	}
	bound, ok := (*bounds)[SagaTenant{d.Key.Tenant, d.Key.Saga}]
	if !ok {
		bound = (*bounds)[SagaTenant{AllTenants, d.Key.Saga}]
	}
	return bound != nil && bound.Before(d.Time)
}

// Behind describes a saga that is behind the streams.
type Behind struct {
	// Tenant is [AllTenants] when the saga is behind for every tenant.
	Tenant string `json:"tenant"`
	Saga   string `json:"saga"`
	// Done is the applied position in each stream. Left counts the messages, others' included,
	// from there to the last event withheld from the saga.
	Done []edda.Checkpoint `json:"done"`
	Left uint64            `json:"left"`
	// From is the position at which this process found the saga.
	From []edda.Checkpoint `json:"from"`
	// Paused is the destination that has no room for the saga, or empty.
	Paused string `json:"paused,omitempty"`
	// Problem is the error that keeps the saga from catching up, or empty.
	Problem string `json:"problem,omitempty"`
}

func (l *laggard) info() Behind {
	b := Behind{
		Tenant: l.Tenant, Saga: l.Saga, Paused: l.paused,
		Left: l.lag(func(stream string) uint64 { return l.applied[stream].Seq }),
	}
	for _, p := range l.positions() {
		b.Done = append(b.Done, p.Checkpoint)
		b.From = append(b.From, edda.Checkpoint{Stream: p.Stream, Seq: l.start[p.Stream]})
	}
	if l.problem != nil {
		b.Problem = l.problem.Error()
	}
	return b
}
