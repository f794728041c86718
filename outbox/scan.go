package outbox

import (
	"math/bits"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// scan reads the next rows of the routes that have room, and reports whether there are more. A full
// route leaves its rows in the store and catches up later from its own cursor, so that it stops no
// other route.
func (r *Relay) scan() bool {
	if !r.scanDue && !slices.ContainsFunc(r.routes, (*route).wantsScan) {
		return false
	}
	from, room := r.scanFrom()
	if !room {
		r.scanDue = false
		return false
	}
	rows, err := r.db.Outbox(from, scanRows)
	if err != nil {
		r.scanDue = false // the slow tick scans again
		r.logOnce("read the outbox", err)
		return false
	}
	r.admitAll(held(rows))
	r.scanDue = len(rows) > 0 // the bytes of a page are bounded, too, so a short page is not the last
	return r.scanDue
}

// take admits the rows that a commit has added. Where a scan is due it finds them, behind the
// rows that were added before.
func (r *Relay) take(a store.Added) {
	r.scanDue = r.scanDue || a.Missed
	if !r.scanDue {
		r.admitAll(a.Rows)
	}
}

// scanFrom is the first cursor of the routes with room. No route has any while an echo is in the
// store because its route has no room: the work that follows from the result is behind it.
func (r *Relay) scanFrom() (from ulid.ULID, room bool) {
	r.echoLeft = r.echoLeft && r.byKind[edda.WorkResult].full()
	for _, l := range r.routes {
		if l.full() || r.echoLeft {
			l.behind = true // assumed, until a scan finds no rows
			continue
		}
		l.behind = false
		if !room || l.cursor.Compare(from) < 0 {
			from, room = l.cursor, true
		}
	}
	return from, room
}

// held gives each row memory of its own, so that one that is held for long does not keep its page.
func held(rows []store.Row) []store.NewRow {
	out := make([]store.NewRow, len(rows))
	for i := range rows {
		w := rows[i].Work
		out[i] = store.NewRow{ID: rows[i].ID, Work: &w}
	}
	return out
}

func (r *Relay) admitAll(rows []store.NewRow) {
	if len(rows) == 0 {
		return
	}
	for _, row := range rows {
		r.admit(row)
	}
	last := rows[len(rows)-1].ID
	for _, l := range r.routes {
		if !l.behind && l.cursor.Compare(last) < 0 {
			l.cursor = last // the rows before it belong to other routes
		}
	}
}

// admit holds a row, unless its route has it already or has no room, or an echo before it stayed in
// the store.
func (r *Relay) admit(row store.NewRow) {
	l := r.byKind[row.Work.Kind]
	if l == nil {
		r.logUnrouted(row.Work)
		return
	}
	if row.ID.Compare(l.cursor) <= 0 {
		return
	}
	if l.behind || l.full() || r.echoLeft {
		l.behind = true
		r.echoLeft = r.echoLeft || row.Work.Kind == edda.WorkResult
		return
	}
	l.cursor = row.ID
	r.hold(row, l)
}

func (r *Relay) hold(row store.NewRow, l *route) {
	l.addHeld(row)
	it := &item{row: row, route: l, chain: r.chainOf(row.Work.From)}
	it.chain.add(it)
	it.chain.release()
}

// logUnrouted logs once a kind that work without a destination arrived. The work stays.
func (r *Relay) logUnrouted(w *edda.Work) {
	if !r.unrouted[w.Kind] {
		r.unrouted[w.Kind] = true
		r.o.Log.Error("work has no destination and stays in the outbox", zap.String("kind", string(w.Kind)), zap.String("work", w.ID))
	}
}

// sweep walks the outbox page by page for effects that still wait for their result. It exists
// because a NATS server that loses power may lose a message that it has acknowledged.
type sweep struct {
	active bool
	all    bool // every effect, regardless of its age, after a reconnect
	cursor ulid.ULID
	last   time.Time // start of the sweep before this one
	began  time.Time
}

// Republish publishes every effect that waits for its result again, and retries destinations that
// were down at once. Call it when a connection came back. It does not block and may be called
// concurrently.
func (r *Relay) Republish() {
	select {
	case r.again <- struct{}{}:
	default: // one is already pending
	}
}

func (r *Relay) republish() {
	now := time.Now()
	r.sweep = sweep{active: true, all: true, last: r.sweep.last, began: now}
	for _, l := range r.routes {
		l.until = time.Time{}
		l.retryNow(now)
	}
}

// sweepOnce looks at one page, and reports whether more can be done now.
func (r *Relay) sweepOnce(now time.Time) bool {
	s := &r.sweep
	if l := r.byKind[edda.WorkEffect]; l == nil || l.full() || l.down {
		return false // the effect could not be sent
	}
	if !s.active && now.Sub(s.last) < sweepAfter {
		return false
	}
	if !s.active {
		*s = sweep{active: true, last: s.last, began: now}
	}
	rows, err := r.db.Outbox(s.cursor, scanRows)
	if err != nil {
		r.logOnce("sweep the outbox", err)
		rows = nil
	}
	for _, row := range held(rows) {
		if !r.resend(row) {
			return false // the route is full: continue here when it has room
		}
		s.cursor = row.ID
	}
	if len(rows) > 0 {
		return true
	}
	*s = sweep{last: s.began}
	return false
}

// resend holds a row again if it is an effect that is due to be published again. It returns false
// if the route has no room.
func (r *Relay) resend(row store.NewRow) bool {
	l := r.byKind[row.Work.Kind]
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

func (r *Relay) age(row store.NewRow, at time.Time) time.Duration {
	return at.Sub(ulid.Time(row.ID.Time()))
}

// publishings is how often an effect of this age should have been published again: at one minute,
// two, four, …, and every hour after the first.
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
