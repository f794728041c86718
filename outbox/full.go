package outbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/store"
)

// DefaultMax is how many rows of one destination the outbox may hold before it
// is full, with the effects that wait for their result: some minutes of a busy
// system. Of each effect among them the store keeps a few hundred bytes in memory.
const DefaultMax = 50_000

// roomAgain is how much of the bound must be free until a destination that was
// full has room again: one fifth, so that a slow one slows the intake instead
// of stopping and starting it with every row.
const roomAgain = 5

// sharesEvery is the least time between two looks at who has how much of a destination.
const sharesEvery = 20 * time.Millisecond

// maxShares bounds the sagas and tenants that have their share of one destination, those with
// the most: beyond that it is full before long, for everybody.
const maxShares = 128

// fullness tells which destinations have no room, and whose work has enough of one.
type fullness struct {
	db     box
	max    int
	lanes  []*lane
	full   map[string]bool // owned by the one who asks, as all below
	shares map[Share]bool
	looked time.Time
}

// Share is a saga of a tenant and a destination of which its work has its share.
type Share struct{ Tenant, Saga, Destination string }

// Full names the destinations of which the outbox holds as much as it may;
// nothing that makes more work for them should begin until it says that there
// is room again. What lets work go, such as results, must still be taken in:
// work that follows from it is written all the same. The number is a mark and
// not a wall, and is passed by what was under way. Only one goroutine may ask,
// and the same for [Relay.Shares].
func (r *Relay) Full() []string {
	f := &r.fullness
	var names []string
	for _, l := range f.lanes {
		if f.look(l); f.full[l.Name] {
			names = append(names, l.Name)
		}
	}
	return names
}

func (f *fullness) look(l *lane) {
	rows := f.db.Outboxed(l.Kinds...)
	switch {
	case rows >= f.max:
		f.full[l.Name] = true
	case rows <= f.max-f.max/roomAgain-1:
		f.full[l.Name] = false
	}
}

// Shares lists the sagas and tenants that have as many rows of a destination as are free
// there: nothing that makes more work of theirs for it should begin until they are not
// listed any more, which is when they have four fifths of what is free. So one whose other
// side is gone takes half of the room at most, two a third each, and there is room for whoever
// comes new (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory
// Packet Switches", 1998). The list stays as it is until the next call.
func (r *Relay) Shares() map[Share]bool {
	f := &r.fullness
	now := time.Now()
	if now.Sub(f.looked) < sharesEvery {
		return f.shares
	}
	f.looked = now
	var next map[Share]bool
	for _, l := range f.lanes {
		next = f.share(l, next)
	}
	f.shares = next
	return next
}

// share adds those of one destination. While less than half of it is taken nobody has as
// much as is free; then it is not looked who has what.
func (f *fullness) share(l *lane, to map[Share]bool) map[Share]bool {
	free := max(f.max-f.db.Outboxed(l.Kinds...), 0)
	again := free - free/roomAgain
	if len(f.shares) == 0 && free > f.max/2 {
		return to
	}
	owners := slices.DeleteFunc(f.db.Owners(min(again+1, free), l.Kinds...), func(o store.Owner) bool {
		return o.Rows < free && !f.shares[Share{o.Tenant, o.Saga, l.Name}]
	})
	if len(owners) > maxShares {
		slices.SortFunc(owners, func(a, b store.Owner) int { return cmp.Compare(b.Rows, a.Rows) })
		owners = owners[:maxShares]
	}
	for _, o := range owners {
		if to == nil {
			to = map[Share]bool{}
		}
		to[Share{o.Tenant, o.Saga, l.Name}] = true
	}
	return to
}

// rowsCollector shows how much the outbox holds for each destination.
type rowsCollector struct {
	db          box
	lanes       []*lane
	max         int
	rows, limit *prometheus.Desc
}

func newRowsCollector(db box, lanes []*lane, max int) *rowsCollector {
	return &rowsCollector{
		db: db, lanes: slices.Clone(lanes), max: max,
		rows: prometheus.NewDesc("edda_outbox_rows", "Rows in the outbox for a destination, with the effects that wait for their result.",
			[]string{"destination"}, nil),
		limit: prometheus.NewDesc("edda_outbox_rows_limit", "Rows of one destination at which no new events are taken in.", nil, nil),
	}
}

func (c *rowsCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.rows; ch <- c.limit }

func (c *rowsCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range c.lanes {
		ch <- prometheus.MustNewConstMetric(c.rows, prometheus.GaugeValue, float64(c.db.Outboxed(l.Kinds...)), l.Name)
	}
	ch <- prometheus.MustNewConstMetric(c.limit, prometheus.GaugeValue, float64(c.max))
}
