package outbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	accepted, failures *prometheus.CounterVec
	downNow            *prometheus.GaugeVec
}

// newMetrics registers the metrics. Without a registry they only count.
func newMetrics(reg prometheus.Registerer, db outboxStore, routes []*route, max int) (*metrics, error) {
	label := []string{"destination"}
	m := &metrics{
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_outbox_delivered_total", Help: "Rows of the outbox that their destination accepted."}, label),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_outbox_failures_total", Help: "Times that a destination did not accept a row."}, label),
		downNow: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_outbox_destination_down", Help: "1 while a destination accepts nothing."}, label),
	}
	for _, l := range routes { // export every destination from the start
		l.accepted = m.accepted.WithLabelValues(l.Name)
		m.failures.WithLabelValues(l.Name)
		m.downNow.WithLabelValues(l.Name)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range append(gauges(db), m.accepted, m.failures, m.downNow, newRowsCollector(db, routes, max)) {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("outbox: register metrics: %w", err)
		}
	}
	return m, nil
}

// gauges read the store at each scrape.
func gauges(db outboxStore) []prometheus.Collector {
	items := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edda_outbox_items", Help: "Rows in the outbox, with the effects that wait for their result."},
		func() float64 { n, _ := db.OutboxSize(); return float64(n) })
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edda_outbox_oldest_seconds", Help: "Age of the oldest row in the outbox."},
		func() float64 {
			n, at := db.OutboxSize()
			if n == 0 || at.IsZero() {
				return 0
			}
			return time.Since(at).Seconds()
		})
	return []prometheus.Collector{items, oldest}
}

// setDown records whether the route's destination is down.
func (m *metrics) setDown(l *route, down bool) {
	l.down = down
	v := 0.0
	if down {
		v = 1
	}
	m.downNow.WithLabelValues(l.Name).Set(v)
}

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
