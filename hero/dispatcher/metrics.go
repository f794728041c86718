package dispatcher

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"edda/hero"
)

// metrics of clients and workers. Workers are labels, because operators name them and they
// are few. Errors are classes, never texts.
type metrics struct {
	created          prometheus.Counter
	completed        *prometheus.CounterVec
	retried, dropped prometheus.Counter
	seconds          *prometheus.HistogramVec
	running, depth   *prometheus.GaugeVec
	alive            prometheus.Gauge
	swept            *prometheus.CounterVec
}

// newMetrics registers the metrics, or finds those that another part of the process has
// registered. Without a registry they only count.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		created: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edda_hero_dispatcher_jobs_created_total", Help: "Jobs created."}),
		completed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_dispatcher_jobs_completed_total", Help: "Jobs that ended, by status and by class of error: timeout, stopped, stopped_by_request, worker_lost, dependency, invalid or failed."}, []string{"worker", "status", "error"}),
		retried: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edda_hero_dispatcher_jobs_retried_total", Help: "Runs that failed and were queued again within the job's retries."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edda_hero_dispatcher_results_dropped_total", Help: "Results that came after the job was given to another worker or deleted."}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_hero_dispatcher_job_seconds", Help: "Duration of one run.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"worker"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_hero_dispatcher_running", Help: "Jobs that run now."}, []string{"worker"}),
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_hero_dispatcher_queue_depth", Help: "Jobs in the work queue."}, []string{"worker"}),
		alive: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "edda_hero_dispatcher_workers_alive", Help: "Workers with a valid lease."}),
		swept: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_dispatcher_swept_total", Help: "Jobs found by a sweep or a releaser, by fate: requeued, failed, or released because the jobs they waited for had ended."}, []string{"fate"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, err := range []error{
		shared(reg, &m.created), shared(reg, &m.completed), shared(reg, &m.retried), shared(reg, &m.dropped), shared(reg, &m.seconds),
		shared(reg, &m.running), shared(reg, &m.depth), shared(reg, &m.alive), shared(reg, &m.swept),
	} {
		if err != nil {
			return nil, fmt.Errorf("dispatcher: register metrics: %w", err)
		}
	}
	return m, nil
}

// shared registers a collector, or takes the registered one of that name: a process may
// have several workers.
func shared[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	if there, ok := err.(prometheus.AlreadyRegisteredError); ok {
		if mine, ok := there.ExistingCollector.(C); ok {
			*c = mine
			return nil
		}
	}
	return err
}

// class returns the label of an error.
func class(status hero.JobStatus, text string) string {
	switch {
	case status == hero.JobFinished:
		return "none"
	case text == ErrorTimeout, text == ErrorStopped, text == ErrorStoppedByUser:
		return text
	case text == ErrorWorkerLost:
		return "worker_lost"
	case strings.HasPrefix(text, "dependency "):
		return "dependency"
	case strings.HasPrefix(text, "invalid: "):
		return "invalid"
	}
	return "failed"
}
