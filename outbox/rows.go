package outbox

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// rowsCollector exports how many rows the outbox holds for each destination.
type rowsCollector struct {
	db          outboxStore
	routes      []*route
	max         int
	rows, limit *prometheus.Desc
}

func newRowsCollector(db outboxStore, routes []*route, max int) *rowsCollector {
	return &rowsCollector{
		db: db, routes: slices.Clone(routes), max: max,
		rows: prometheus.NewDesc("edda_outbox_rows", "Rows in the outbox for a destination, with the effects that wait for their result.",
			[]string{"destination"}, nil),
		limit: prometheus.NewDesc("edda_outbox_rows_limit", "Rows of one destination at which no new events are taken in.", nil, nil),
	}
}

func (c *rowsCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.rows; ch <- c.limit }

func (c *rowsCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range c.routes {
		ch <- prometheus.MustNewConstMetric(c.rows, prometheus.GaugeValue, float64(c.db.Outboxed(l.Kinds...)), l.Name)
	}
	ch <- prometheus.MustNewConstMetric(c.limit, prometheus.GaugeValue, float64(c.max))
}
