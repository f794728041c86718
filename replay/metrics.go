package replay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have no label but the final state, because replays are few and GET /admin/replay lists
// them.
type metrics struct {
	running prometheus.Gauge
	ends    *prometheus.CounterVec
	events  prometheus.Counter
	sent    prometheus.Counter
	seconds prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		running: f.NewGauge(prometheus.GaugeOpts{Name: "edda_replay_running", Help: "1 while a replay runs."}),
		ends: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_replay_ends_total", Help: "Replays that ended, by how.",
		}, []string{"state"}),
		events:  f.NewCounter(prometheus.CounterOpts{Name: "edda_replay_events_total", Help: "Events that replays applied again."}),
		sent:    f.NewCounter(prometheus.CounterOpts{Name: "edda_replay_sent_total", Help: "Work that replays sent."}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Name: "edda_replay_seconds", Help: "How long replays took.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)}),
	}
}

func (m *metrics) done(r *Report, took time.Duration) {
	m.ends.WithLabelValues(r.State).Inc()
	m.seconds.Observe(took.Seconds())
}
