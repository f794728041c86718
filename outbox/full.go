package outbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/store"
)

// DefaultMax is how many rows of one destination the outbox may hold before it is full, with the
// effects that wait for their result. It is some minutes of work of a busy system. The store keeps
// a few hundred bytes in memory for each such effect.
const DefaultMax = 50_000

// roomAgain is the part of the bound, one fifth, that must be free before a full destination has
// room again. Without it a slow destination would stop and start the intake with every row.
const roomAgain = 5

// sharesEvery is the least time between two counts of the rows that each saga has at a
// destination.
const sharesEvery = 20 * time.Millisecond

// maxShares bounds the listed sagas and tenants of one destination. Those with the most rows are
// listed. With more of them the destination is soon full for all.
const maxShares = 128

// fullness tells which destinations have no room, and which sagas have used up their share of one.
type fullness struct {
	db     outboxStore
	max    int
	lanes  []*lane
	full   map[string]bool // owned by the goroutine that calls Full and Shares, like all fields below
	shares map[Share]bool
	looked time.Time
}

// Share names a saga of a tenant and a destination where the saga has used up its share.
type Share struct{ Tenant, Saga, Destination string }

// Full names the destinations whose bound in the outbox is reached. Until Full omits one again,
// callers should not start anything that makes more work for it. They must still take in what
// removes work, such as results, and the work that follows from it is written all the same. The
// bound is a mark and no hard limit: inputs in flight may exceed it. Only one goroutine may call
// Full and [Relay.Shares].
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

// Shares lists the sagas and tenants that have as many rows of a destination as are free there.
// Callers should not start anything that makes more work of theirs for it while they are listed.
// An entry goes when it has less than four fifths of what is free. So one saga whose destination
// is dead takes half of the room at most, two take a third each. A new saga finds room. The method
// is Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches",
// 1998. The map does not change before the next call.
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

// share adds the entries of one destination. It counts nothing while the destination is less than
// half full, because then no saga has as much as is free.
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

// rowsCollector exports how many rows the outbox holds for each destination.
type rowsCollector struct {
	db          outboxStore
	lanes       []*lane
	max         int
	rows, limit *prometheus.Desc
}

func newRowsCollector(db outboxStore, lanes []*lane, max int) *rowsCollector {
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
