package effects

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda"
)

// metrics of the worker. Their labels are names from manifests, so they are few.
type metrics struct {
	calls, checks, results   *prometheus.CounterVec
	seconds, attempts, waits *prometheus.HistogramVec
	running, held, breakers  *prometheus.GaugeVec
	bytes                    *prometheus.GaugeVec

	effects sync.Map // name → *effectMetrics
}

// effectMetrics are the metrics of one effect, looked up once.
type effectMetrics struct {
	name           string
	calls, results *prometheus.CounterVec // of all effects: an outcome appears with its first count
	seconds        prometheus.Observer
	attempts       prometheus.Observer
	running        prometheus.Gauge
	held, bytes    prometheus.Gauge
}

func (m *metrics) of(effect string) *effectMetrics {
	if known, ok := m.effects.Load(effect); ok {
		return known.(*effectMetrics)
	}
	made, _ := m.effects.LoadOrStore(effect, &effectMetrics{
		name: effect, calls: m.calls, results: m.results, seconds: m.seconds.WithLabelValues(effect), attempts: m.attempts.WithLabelValues(effect),
		running: m.running.WithLabelValues(effect), held: m.held.WithLabelValues(effect), bytes: m.bytes.WithLabelValues(effect),
	})
	return made.(*effectMetrics)
}

// newMetrics registers the metrics, unless reg is nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_effect_calls_total", Help: "Calls of providers, by what they brought: ok, failed, retry or unknown."}, []string{"effect", "outcome"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_effect_checks_total", Help: "Checks of unknown outcomes, by what they said: happened, failed, again or unknown."}, []string{"effect", "outcome"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_effect_results_total", Help: "Results of commands, by outcome."}, []string{"effect", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_effect_seconds", Help: "Duration of one call.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"effect"}),
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_effect_attempts", Help: "Calls that one command took.", Buckets: []float64{0, 1, 2, 3, 5, 8, 13, 21, 100, 1000}}, []string{"effect"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_effect_wait_seconds", Help: "Wait of a call for its turn, by what stopped it when it came: slot, rate, concurrent or breaker.",
			Buckets: prometheus.ExponentialBuckets(0.001, 8, 8)}, []string{"effect", "reason"}),
		breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_effect_breaker_state", Help: "State of a breaker: 0 closed, 1 half-open, 2 open."}, []string{"breaker"}),
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_effect_held", Help: "Commands taken from the stream and without a result: waiting, called, or to be called again."}, []string{"effect"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_effect_held_bytes", Help: "Memory that the commands of edda_effect_held take, about. At effects.held_bytes no more are fetched."}, []string{"effect"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_effect_in_flight", Help: "Calls under way."}, []string{"effect"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.calls, m.checks, m.results, m.seconds, m.attempts, m.waits, m.running, m.held, m.bytes, m.breakers} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("effects: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) result(effect string, o outcome) {
	e := m.of(effect)
	e.results.WithLabelValues(e.name, string(o.kind)).Inc()
	e.attempts.Observe(float64(o.calls))
}

func (e *effectMetrics) call(a answer, took time.Duration) {
	e.calls.WithLabelValues(e.name, a.word()).Inc()
	e.seconds.Observe(took.Seconds())
}

func (m *metrics) check(effect string, a answer, again bool) {
	word := "happened"
	switch {
	case again:
		word = "again"
	case a.unknown:
		word = "unknown"
	case a.kind != edda.Succeeded:
		word = "failed"
	}
	m.checks.WithLabelValues(effect, word).Inc()
}

func (m *metrics) breaker(name string, state int) {
	m.breakers.WithLabelValues(name).Set(float64(state))
}

func (m *metrics) holding(effect string, n float64) { m.of(effect).held.Add(n) }

func (m *metrics) heldBytes(effect string, n float64) { m.of(effect).bytes.Add(n) }

func (m *metrics) waited(effect, reason string, d time.Duration) {
	m.waits.WithLabelValues(effect, reason).Observe(d.Seconds())
}

// word is the label of a call's outcome.
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
