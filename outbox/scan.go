package outbox

import (
	"math/bits"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// scan reads the next rows of the lanes that have room, and tells whether there
// are more. A lane that is full leaves its rows in the store and catches up
// later from its own cursor, so it stops no other.
func (r *Relay) scan() bool {
	if !r.fresh && !r.anyHungry() {
		return false
	}
	from, room := r.from()
	if !room {
		r.fresh = false
		return false
	}
	rows, err := r.page(from)
	defer clear(rows)
	if err != nil {
		r.fresh = false // the slow tick looks again
		r.complain("read the outbox", err)
		return false
	}
	r.takeAll(rows)
	r.fresh = len(rows) > 0 // a page ends by its bytes, too
	return r.fresh
}

// page reads the next rows after one. Who has looked at them clears them: the next page
// takes their place.
func (r *Relay) page(after ulid.ULID) (rows []store.Row, err error) {
	rows, err = r.db.AppendOutbox(r.rows[:0], after, scanRows)
	r.rows = rows[:0]
	return rows, err
}

func (r *Relay) anyHungry() bool {
	for _, l := range r.lanes {
		if l.hungry() {
			return true
		}
	}
	return false
}

// from is the first cursor of the lanes with room. None has any while a copy lies in the
// store that its lane cannot hold: what the result set off is behind it.
func (r *Relay) from() (from ulid.ULID, room bool) {
	r.copyLeft = r.copyLeft && r.routes[edda.WorkResult].full()
	for _, l := range r.lanes {
		if l.full() || r.copyLeft {
			l.behind = true // as far as it knows
			continue
		}
		l.behind = false
		if !room || l.cursor.Compare(from) < 0 {
			from, room = l.cursor, true
		}
	}
	return from, room
}

func (r *Relay) takeAll(rows []store.Row) {
	if len(rows) == 0 {
		return
	}
	for _, row := range rows {
		r.take(row)
	}
	last := rows[len(rows)-1].ID
	for _, l := range r.lanes {
		if !l.behind && l.cursor.Compare(last) < 0 {
			l.cursor = last // the rows between are not its own
		}
	}
}

// take holds a row unless its lane has it already or is full, or a copy before it was
// left in the store.
func (r *Relay) take(row store.Row) {
	l := r.routes[row.Work.Kind]
	if l == nil {
		r.strange(row.Work)
		return
	}
	if row.ID.Compare(l.cursor) <= 0 {
		return
	}
	if l.behind || l.full() || r.copyLeft {
		l.behind = true
		r.copyLeft = r.copyLeft || row.Work.Kind == edda.WorkResult
		return
	}
	l.cursor = row.ID
	r.hold(row, l)
}

func (r *Relay) hold(row store.Row, l *lane) {
	l.hold(row)
	it := r.item()
	it.row, it.lane, it.chain = row, l, r.chain(row.Work.From)
	it.chain.add(it)
	it.chain.release()
}

// strange complains, once, about work that has no destination; it stays.
func (r *Relay) strange(w edda.Work) {
	if !r.unrouted[w.Kind] {
		r.unrouted[w.Kind] = true
		r.o.Log.Error("work has no destination and stays in the outbox", zap.String("kind", string(w.Kind)), zap.String("work", w.ID))
	}
}

// sweep walks the outbox for effects that still wait for their result, a piece
// at a time: a message may be lost with the power of a NATS server that had
// acknowledged it.
type sweep struct {
	active bool
	all    bool // every one, after a reconnect
	cursor ulid.ULID
	last   time.Time // when the sweep before this one began
	began  time.Time
}

// Republish publishes every effect that waits for its result again, and tries
// destinations that were down at once. It is for a connection that came back,
// returns immediately and may be called from anywhere.
func (r *Relay) Republish() {
	select {
	case r.again <- struct{}{}:
	default: // one is already asked for
	}
}

func (r *Relay) republish() {
	now := time.Now()
	r.sweep = sweep{active: true, all: true, last: r.sweep.last, began: now}
	for _, l := range r.lanes {
		l.until = time.Time{}
		l.hurry(now)
	}
}

// sweepOnce looks at one piece, and tells whether there is more to do now.
func (r *Relay) sweepOnce(now time.Time) bool {
	s := &r.sweep
	if l := r.routes[edda.WorkEffect]; l == nil || l.full() || l.down {
		return false // it would only be held back
	}
	if !s.active && now.Sub(s.last) < sweepAfter {
		return false
	}
	if !s.active {
		*s = sweep{active: true, last: s.last, began: now}
	}
	rows, err := r.page(s.cursor)
	defer clear(rows)
	if err != nil {
		r.complain("sweep the outbox", err)
		rows = nil
	}
	for _, row := range rows {
		if !r.lost(row) {
			return false // its lane is full: go on from here when it has room
		}
		s.cursor = row.ID
	}
	if len(rows) > 0 {
		return true
	}
	*s = sweep{last: s.began}
	return false
}

// lost takes a row again if it is an effect that was published long ago. It is
// false where there is no room for it.
func (r *Relay) lost(row store.Row) bool {
	l := r.routes[row.Work.Kind]
	switch {
	case row.Work.Kind != edda.WorkEffect || l == nil:
	case row.ID.Compare(l.cursor) > 0 || r.chains[row.Work.From].holds(row.ID): // not published yet
	case !r.sweep.all && publishings(r.age(row, r.sweep.began)) == publishings(r.age(row, r.sweep.last)):
	case l.full():
		return false
	default:
		r.hold(row, l)
	}
	return true
}

func (r *Relay) age(row store.Row, at time.Time) time.Duration {
	return at.Sub(ulid.Time(row.ID.Time()))
}

// publishings is how often an effect of an age should have been published
// again: at one minute, two, four, … and every hour after the first.
func publishings(age time.Duration) int {
	switch {
	case age < sweepAfter:
		return 0
	case age < lastSweep:
		return bits.Len64(uint64(age / sweepAfter))
	default:
		return bits.Len64(uint64(lastSweep/sweepAfter)) + int(age/lastSweep)
	}
}
