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
	// maxCaught bounds the events of the past in one batch: few enough that live events,
	// which share the batch and its commit, are a millisecond or two later.
	maxCaught = 128
	// maxPaused bounds the pairs that are behind at once, those that are caught up included:
	// each has rows in the store and a look at every event. Beyond it a destination fills
	// up, and pauses everything.
	maxPaused = 256
	// farBehind is how many messages a reader that has come to the end of what lay in the
	// streams may still be behind: beyond that it begins anew, in the order in which the
	// streams stored what has come meanwhile.
	farBehind = 2048
)

// AllTenants stands for every tenant that has no pair of its own with a saga.
const AllTenants = store.AllTenants

// SagaTenant is a saga, and the tenant for which it is behind, or [AllTenants].
type SagaTenant struct{ Tenant, Saga string }

func (p SagaTenant) compare(other SagaTenant) int {
	return cmp.Or(cmp.Compare(p.Saga, other.Saga), cmp.Compare(p.Tenant, other.Tenant))
}

// laggard is a pair that is behind: it has positions of its own in the streams. The main
// line leaves aggregate events and facts to it, and the catch-up reader gives them in the
// order in which they were stored, up to where the main line is. It is live again once
// everything that was left to it is applied: its positions go with that commit.
//
// The loop owns it. Lanes read it while they run, when nothing changes it.
type laggard struct {
	SagaTenant
	done    map[string]edda.Checkpoint // evaluated
	durable map[string]edda.Checkpoint // committed; nil while nothing of it is
	begun   map[string]uint64          // where this process found it
	// given is, of each stream, the last sequence up to which everything that is meant for
	// the pair is done or in the queue; withheld the last event that was left to it.
	given, withheld map[string]uint64
	queue           []*item
	// bound is until when what is due in its keys may fire; it has none until an event waits.
	bound   time.Time
	bounded bool
	live    bool   // it has rejoined in what was evaluated, and that is not durable yet
	dirty   bool   // done is to be written with the next change set
	paused  string // why its reader rests; empty: it does not
	errand  *errand
	asking  report // of a reader that waits for room
	problem error  // why it cannot be read
	again   time.Time
}

func newLaggard(p SagaTenant) *laggard {
	return &laggard{
		SagaTenant: p, done: map[string]edda.Checkpoint{}, begun: map[string]uint64{},
		given: map[string]uint64{}, withheld: map[string]uint64{},
	}
}

// at sets where the pair is, when it is met for the first time.
func (l *laggard) at(c edda.Checkpoint) {
	l.done[c.Stream], l.begun[c.Stream] = c, c.Seq
}

// reached is up to where the pair has everything of a stream.
func (l *laggard) reached(stream string) uint64 {
	return max(l.done[stream].Seq, l.given[stream])
}

// positions are those that are evaluated, in the order of their streams.
func (l *laggard) positions() []store.SagaPosition {
	out := make([]store.SagaPosition, 0, len(l.done))
	for _, stream := range slices.Sorted(maps.Keys(l.done)) {
		out = append(out, store.SagaPosition{Tenant: l.Tenant, Saga: l.Saga, Checkpoint: l.done[stream]})
	}
	return out
}

// left is how many messages, ours or not, there are up to the last that was left to it.
func (l *laggard) left() (n uint64) {
	for stream, seq := range l.withheld {
		if done := l.done[stream].Seq; seq > done {
			n += seq - done
		}
	}
	return n
}

// caughtUp tells whether the reader has given everything that was left to the pair.
func (l *laggard) caughtUp() bool {
	for stream, seq := range l.withheld {
		if l.reached(stream) < seq {
			return false
		}
	}
	return true
}

// lagging are the pairs that are behind; mostly there are none.
type lagging map[SagaTenant]*laggard

// find is the pair that a saga of a tenant belongs to, also where it is live again.
func (g lagging) find(tenant, saga string) *laggard {
	if l := g[SagaTenant{tenant, saga}]; l != nil {
		return l
	}
	return g[SagaTenant{AllTenants, saga}]
}

// behind is the pair that a saga of a tenant is behind with; nil where it is not.
func (g lagging) behind(tenant, saga string) *laggard {
	if l := g.find(tenant, saga); l != nil && !l.live {
		return l
	}
	return nil
}

// within is until when what is due in a key may fire, of all that is due by t: of a pair
// that is behind, up to the first event that it has not taken in.
func (g lagging) within(k edda.Key, t time.Time) time.Time {
	if len(g) == 0 {
		return t
	}
	if l := g.behind(k.Tenant, k.Saga); l != nil && l.bounded {
		return earlier(t, l.bound)
	}
	return t
}

func (g lagging) sorted() []*laggard {
	return slices.SortedFunc(maps.Values(g), func(a, b *laggard) int { return a.compare(b.SagaTenant) })
}

// leaving is an event that the main line leaves to a pair.
type leaving struct {
	to *laggard
	at edda.Checkpoint
}

// leave takes the targets out of an event of the main line that a pair which is behind has
// still to come to, and those of all others out of an event that was read for one pair.
func (b *batch) leave(it *item) {
	if it.event.Kind != edda.KindEvent || it.event.Malformed != "" && it.lag == nil {
		return
	}
	n := 0
	for _, target := range it.targets {
		l := b.lagging.find(it.event.Tenant, target.Key.Saga)
		if it.lag != nil && l == it.lag || it.lag == nil && (l == nil || l.live) {
			it.targets[n] = target
			n++
			continue
		}
		if it.lag == nil {
			it.withheld = true
			b.leaving.Lock()
			b.left = append(b.left, leaving{l, it.position()})
			b.leaving.Unlock()
		}
	}
	it.targets = it.targets[:n]
}

// caughtUpTo takes the events of the past for the next batch: those that the main line has
// passed, of each pair its share, and not of one that is paused. One that is to be alone
// comes with no other.
func (v *loop) caughtUpTo(most int) (items []*item) {
	if v.held {
		return nil
	}
	all := v.lagging.sorted()
	slices.SortStableFunc(all, func(a, b *laggard) int { return cmp.Compare(len(a.queue), len(b.queue)) })
	for i, l := range all {
		if l.paused != "" || l.live {
			continue
		}
		share := len(items) + max(1, (most-len(items))/(len(all)-i))
		full, left := false, l.queue[:0]
		for _, it := range l.queue {
			full = full || len(items) >= min(share, most) || len(items) > 0 && (it.alone || items[0].alone)
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

// catchable tells whether an event of the past can be applied now.
func (v *loop) catchable() bool {
	if v.held {
		return false
	}
	for _, l := range v.lagging {
		if l.paused == "" && !l.live && slices.ContainsFunc(l.queue, v.passed) {
			return true
		}
	}
	return false
}

// passed tells whether the main line has passed an event that was read for a pair.
func (v *loop) passed(it *item) bool {
	at := it.position()
	return at.Seq <= v.applied[at.Stream].Seq
}

// joining are the pairs that are live from the next batch on, once what it takes of their
// queues is applied. A pair of one tenant waits for that of all, which it is an exception of.
func (v *loop) joining() (pairs []*laggard) {
	for _, l := range v.lagging {
		if l.paused != "" || l.live || !l.caughtUp() || slices.ContainsFunc(l.queue, v.passed) {
			continue
		}
		if all := v.lagging[SagaTenant{AllTenants, l.Saga}]; all != nil && all != l {
			continue
		}
		pairs = append(pairs, l)
	}
	return pairs
}

// join makes the pairs live that can be, before the batch in which they are is evaluated.
func (v *loop) join() []*laggard {
	if len(v.lagging) == 0 {
		return nil
	}
	joined := v.joining()
	for _, l := range joined {
		l.live = true
	}
	return joined
}

// part undoes it, as the batch was in vain.
func (v *loop) part(joined []*laggard) {
	for _, l := range joined {
		l.live = false
	}
}

// goOn follows a batch: readers whose pairs have room go on, and others begin.
func (v *loop) goOn() {
	if len(v.lagging) == 0 {
		return
	}
	v.makeRoom()
	v.tellBehind()
	v.employ()
}

// settles tells whether a pair has something to write though no input comes.
func (v *loop) settles() bool {
	if len(v.notes) > 0 {
		return true
	}
	for _, l := range v.lagging {
		if l.dirty && !l.live {
			return true
		}
	}
	return len(v.joining()) > 0
}

// settleUp writes what there is to write of the pairs though no input comes.
func (v *loop) settleUp(joined []*laggard) {
	s := &set{n: v.sets + 1, last: true}
	v.keepUp([]*set{s}, nil, joined)
	if c := &s.change; len(c.Positions)+len(c.DropPositions)+len(c.Audits) > 0 {
		v.submit([]*set{s}, nil)
	}
	v.goOn()
}

// shelve gives back what is due in the keys of pairs that are behind, beyond their bounds:
// the rows stay in the index, and those who handed them in go on.
func (v *loop) shelve() {
	if len(v.lagging) == 0 {
		return
	}
	v.dues = slices.DeleteFunc(v.dues, func(it *item) bool {
		if !it.isRow() || !v.lagging.within(it.due.row.Key, it.due.time).Before(it.due.time) {
			return false
		}
		it.due.handed.settle()
		return true
	})
}

// keepUp writes what became of the pairs into the sets of a batch, which are not submitted
// yet: the positions that have no events, the audit, and that pairs have rejoined, with
// the last event that was read for them.
func (v *loop) keepUp(sets []*set, b *batch, joined []*laggard) {
	if len(v.lagging) == 0 && len(v.notes) == 0 {
		return
	}
	first := sets[0]
	for _, l := range v.lagging {
		if !l.dirty || l.live {
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
	first.change.Audits, first.notes, v.notes = append(first.change.Audits, v.notes...), v.notes, nil
	for _, l := range joined {
		to := first
		for _, s := range sets {
			if s.coversAny(l.SagaTenant) {
				to = s
			}
		}
		to.change.DropPositions = append(to.change.DropPositions, l.positions()...)
		l.queue = nil // the main line gives what it has not passed
	}
	v.taken(b)
}

// taken moves the bounds of what is due: everything stored before an event that was read for
// a pair is applied, and nothing behind the first that was left to it.
func (v *loop) taken(b *batch) {
	if b == nil {
		return
	}
	for _, it := range b.items {
		if l := it.lag; l != nil {
			l.bounded = true
			if upto := it.event.StoredAt().Add(-1); upto.After(l.bound) {
				l.bound = upto
			}
		}
	}
	for _, left := range b.left {
		l := left.to
		l.withheld[left.at.Stream] = max(l.withheld[left.at.Stream], left.at.Seq)
		if !l.bounded {
			l.bounded, l.bound = true, left.at.Time.Add(-1)
		}
	}
}

// committedBehind moves what is durable of the pairs, and forgets those that have rejoined.
func (v *loop) committedBehind(s *set) {
	for _, p := range s.change.Positions {
		if l := v.lagging[SagaTenant{p.Tenant, p.Saga}]; l != nil {
			if l.durable == nil {
				l.durable = map[string]edda.Checkpoint{}
			}
			l.durable[p.Stream] = p.Checkpoint
		}
	}
	for _, p := range s.change.DropPositions {
		l := v.lagging[SagaTenant{p.Tenant, p.Saga}]
		if l == nil || !l.live {
			continue
		}
		// gofail: var engineRejoined struct{}
		delete(v.lagging, l.SagaTenant)
		l.dismiss()
		v.log.Info("a saga has caught up with the streams", zap.String("saga", l.Saga), zap.String("tenant", l.Tenant))
		if v.crowded[l.SagaTenant] != "" {
			v.pause(v.crowded) // it was crowded while it rejoined
		}
	}
	v.tellBehind()
}

// fallBack follows a failure of the store: pairs are where they are durable. What was lost
// of their queues is put back afterwards.
func (v *loop) fallBack() {
	for _, l := range v.lagging {
		if l.live { // what it had read beyond the main line is read again
			l.dismiss()
			l.given = map[string]uint64{}
		}
		from := l.durable
		if all := v.lagging[SagaTenant{AllTenants, l.Saga}]; from == nil && all != nil {
			from = all.durable // it was one of them
		}
		if from == nil { // it has fallen behind in what was lost: all that is durable went to it
			from = map[string]edda.Checkpoint{}
			for stream := range l.done {
				from[stream] = v.durable[stream]
			}
		}
		l.done, l.live, l.dirty = maps.Clone(from), false, true
	}
}

// found takes the pairs that the store says are behind, when the engine starts.
func (v *loop) found(rows []store.SagaPosition) {
	for _, l := range v.lag(rows) {
		l.durable = maps.Clone(l.done)
	}
	v.tellBehind()
}

// lag makes pairs of positions. What the main line has passed may have been for them.
func (v *loop) lag(rows []store.SagaPosition) (added []*laggard) {
	for _, p := range rows {
		pair := SagaTenant{p.Tenant, p.Saga}
		l := v.lagging[pair]
		if l == nil {
			l = newLaggard(pair)
			l.bounded = true
			v.lagging[pair] = l
		}
		if !slices.Contains(added, l) {
			added = append(added, l)
		}
		l.at(p.Checkpoint)
		l.withheld[p.Stream] = v.applied[p.Stream].Seq
	}
	return added
}

// pause has the pairs that have no room fall behind the streams, with the reason, and those
// that have some again go on. A pair that has rejoined in what is not durable yet is paused
// once it is.
func (v *loop) pause(crowded map[SagaTenant]string) {
	v.crowded = crowded
	for _, l := range v.lagging {
		if l.live {
			continue
		}
		if l.paused = crowded[l.SagaTenant]; l.paused != "" {
			l.dismiss()
		}
	}
	for pair, reason := range crowded {
		if v.lagging[pair] == nil && len(v.lagging) < maxPaused {
			v.fallBehind(pair, reason)
		}
	}
	v.tellBehind()
	v.employ()
}

// fallBehind has a pair be behind from what the main line has evaluated on, or where it is
// as one of all tenants.
func (v *loop) fallBehind(pair SagaTenant, reason string) {
	l := newLaggard(pair)
	if all := v.lagging.behind(AllTenants, pair.Saga); all != nil {
		for _, at := range all.done {
			l.at(at)
		}
		l.withheld, l.bound, l.bounded = maps.Clone(all.withheld), all.bound, all.bounded
	} else {
		for _, stream := range v.opts.CatchUp.Streams {
			if at, ok := v.applied[stream]; ok {
				l.at(at)
			}
		}
	}
	l.paused, l.dirty = reason, true
	v.lagging[pair] = l
	v.log.Warn("a saga is paused: its destination has no room for more of its work",
		zap.String("saga", pair.Saga), zap.String("tenant", pair.Tenant), zap.String("destination", reason))
}

// tellBehind tells those outside the loop how the pairs are.
func (v *loop) tellBehind() {
	if len(v.lagging) == 0 && v.waits.Load() == nil {
		return
	}
	bounds := make(map[SagaTenant]*time.Time, len(v.lagging))
	infos := make([]Behind, 0, len(v.lagging))
	for _, l := range v.lagging.sorted() {
		switch {
		case l.live || !l.bounded:
			bounds[l.SagaTenant] = nil
		default:
			bound := l.bound
			bounds[l.SagaTenant] = &bound
		}
		if !l.live {
			infos = append(infos, l.info())
		}
	}
	if len(v.lagging) == 0 {
		v.waits.Store(nil)
	} else {
		v.waits.Store(&bounds)
	}
	v.metrics.lags(infos)
	v.status.lags(infos)
}

// Waits tells whether what is due in a key has to wait for events that were stored before
// it and that its saga, which is behind, has still to take in. It may be called concurrently.
func (e *Engine) Waits(d store.Due) bool {
	bounds := e.waits.Load()
	if bounds == nil {
		return false
	}
	bound, ok := (*bounds)[SagaTenant{d.Key.Tenant, d.Key.Saga}]
	if !ok {
		bound = (*bounds)[SagaTenant{AllTenants, d.Key.Saga}]
	}
	return bound != nil && bound.Before(d.Time)
}

// cover sets the position of a pair in one stream.
func (s *set) cover(p SagaTenant, at edda.Checkpoint) {
	for i := range s.change.Positions {
		if q := &s.change.Positions[i]; q.Tenant == p.Tenant && q.Saga == p.Saga && q.Stream == at.Stream {
			q.Checkpoint = at
			return
		}
	}
	s.change.Positions = append(s.change.Positions, store.SagaPosition{Tenant: p.Tenant, Saga: p.Saga, Checkpoint: at})
}

func (s *set) coversAny(p SagaTenant) bool {
	return slices.ContainsFunc(s.change.Positions, func(q store.SagaPosition) bool { return q.Tenant == p.Tenant && q.Saga == p.Saga })
}

// Behind is a saga that is behind the streams, for people.
type Behind struct {
	// Tenant is [AllTenants] where it is behind for every tenant.
	Tenant string `json:"tenant"`
	Saga   string `json:"saga"`
	// Done is how far it has come in each stream, and Left how many messages, others'
	// included, lie up to the last one that it may have to take in.
	Done []edda.Checkpoint `json:"done"`
	Left uint64            `json:"left"`
	// From is where it was when this process met it.
	From []edda.Checkpoint `json:"from"`
	// Paused says which destination it waits for; empty: it does not.
	Paused string `json:"paused,omitempty"`
	// Problem says why it cannot go on now.
	Problem string `json:"problem,omitempty"`
}

func (l *laggard) info() Behind {
	b := Behind{Tenant: l.Tenant, Saga: l.Saga, Left: l.left(), Paused: l.paused}
	for _, p := range l.positions() {
		b.Done = append(b.Done, p.Checkpoint)
		b.From = append(b.From, edda.Checkpoint{Stream: p.Stream, Seq: l.begun[p.Stream]})
	}
	if l.problem != nil {
		b.Problem = l.problem.Error()
	}
	return b
}
