package runner

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/hero"
	"edda/hero/script"
)

// metrics are the metrics of a runner.
type metrics struct {
	starts   *prometheus.CounterVec
	ends     *prometheus.CounterVec
	duration *prometheus.HistogramVec
	depth    *prometheus.GaugeVec
	running  prometheus.Gauge
	lost     prometheus.Counter
	types    []string

	mu     sync.Mutex // guards depths
	depths map[string]map[uint32]int64
}

func newMetrics(reg prometheus.Registerer, types []string) (*metrics, error) {
	m := &metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_runner_jobs_started_total", Help: "Scripts that were begun."}, []string{"type"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_runner_jobs_ended_total", Help: "Runs of jobs that ended; dispatched means that the job is tried again."}, []string{"type", "status", "error"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_hero_runner_job_duration_seconds", Help: "How long scripts ran.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)}, []string{"type"}),
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_hero_runner_queue_jobs", Help: "Jobs that wait in queue:<type>, over all contexts."}, []string{"type"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "edda_hero_runner_jobs_running", Help: "Jobs that run now."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edda_hero_runner_jobs_lost_total", Help: "Runs of runners that died, as this one found them."}),
		types: slices.Clone(types), depths: map[string]map[uint32]int64{},
	}
	for _, kind := range types { // so that they show from the start
		m.starts.WithLabelValues(kind)
		m.duration.WithLabelValues(kind)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.starts, m.ends, m.duration, m.depth, m.running, m.lost} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("runner: register metrics: %w", err)
		}
	}
	return m, nil
}

// other is the label of unknown script types.
const other = "other"

func (m *metrics) label(kind string) string {
	if slices.Contains(m.types, kind) {
		return kind
	}
	return other
}

func (m *metrics) started(kind string) {
	m.starts.WithLabelValues(m.label(kind)).Inc()
	m.running.Inc()
}

func (m *metrics) ran(kind string, took time.Duration) {
	m.running.Dec()
	m.duration.WithLabelValues(m.label(kind)).Observe(took.Seconds())
}

func (m *metrics) ended(kind string, status hero.JobStatus, class string) {
	m.ends.WithLabelValues(m.label(kind), string(status), class).Inc()
}

// waiting sets the number of queued jobs in one context.
func (m *metrics) waiting(context uint32, kind string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.depths[kind] == nil {
		m.depths[kind] = map[uint32]int64{}
	}
	m.depths[kind][context] = n
	var sum int64
	for _, n := range m.depths[kind] {
		sum += n
	}
	m.depth.WithLabelValues(kind).Set(float64(sum))
}

// class is the label of an error: one for all exit codes, one for all signals.
func class(out script.RunResult) string {
	word, _, numbered := strings.Cut(out.Reason, " ")
	if numbered && (word == "exit" || word == "signal") {
		return word
	}
	return strings.ReplaceAll(out.Reason, " ", "_")
}
