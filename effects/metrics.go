package effects

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda"
)

// metrics of the worker. The effects' names are few: they come from manifests.
type metrics struct {
	calls, results *prometheus.CounterVec
	seconds        *prometheus.HistogramVec
	running        *prometheus.GaugeVec
}

// newMetrics registers them; without a registry they only count.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_effect_calls_total", Help: "Calls of providers, by what they brought: ok, failed, retry or unknown."}, []string{"effect", "outcome"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_effect_results_total", Help: "Results of commands, by outcome."}, []string{"effect", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_effect_seconds", Help: "Duration of one call.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"effect"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_effect_in_flight", Help: "Commands begun and without a result."}, []string{"effect"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.calls, m.results, m.seconds, m.running} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("effects: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) inFlight(effect string, n float64) { m.running.WithLabelValues(effect).Add(n) }

func (m *metrics) result(effect string, o outcome) {
	m.results.WithLabelValues(effect, string(o.kind)).Inc()
}

func (m *metrics) call(effect string, a answer, took time.Duration) {
	m.calls.WithLabelValues(effect, a.word()).Inc()
	m.seconds.WithLabelValues(effect).Observe(took.Seconds())
}

// word is what a call brought, for the metric.
func (a answer) word() string {
	switch {
	case a.kind == edda.Succeeded:
		return "ok"
	case a.unknown:
		return "unknown"
	case a.again:
		return "retry"
	default:
		return "failed"
	}
}
