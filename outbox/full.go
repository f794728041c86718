package outbox

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultMax is how many rows of one destination the outbox may hold before it
// is full, with the effects that wait for their result: some minutes of a busy
// system. Of each effect among them the store keeps a few hundred bytes in memory.
const DefaultMax = 50_000

// roomAgain is how much of the bound must be free until a destination that was
// full has room again: one fifth, so that a slow one slows the intake instead
// of stopping and starting it with every row.
const roomAgain = 5

// fullness tells which destinations have no room.
type fullness struct {
	db    box
	max   int
	lanes []*lane
	full  map[string]bool // owned by the one who asks
}

// Full names the destinations of which the outbox holds as much as it may;
// nothing that makes more work for them should begin until it says that there
// is room again. What lets work go, such as results, must still be taken in:
// work that follows from it is written all the same. The number is a mark and
// not a wall, and is passed by what was under way. Only one goroutine may ask.
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
