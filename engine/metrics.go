package engine

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"edda"
)

// metrics are the engine's. Their labels are sagas, fates and reasons.
type metrics struct {
	transitions *prometheus.CounterVec
	events      prometheus.Counter
	commit      prometheus.Histogram
	batch       prometheus.Histogram
	inFlight    prometheus.Gauge
	late        prometheus.Histogram
	barriers    prometheus.Counter
	dead        *prometheus.CounterVec
	waiters     prometheus.Gauge
	parkedFull  prometheus.Gauge
	paused      *prometheus.GaugeVec
	pauses      *prometheus.CounterVec
	caught      prometheus.Counter
	behind      *prometheus.GaugeVec
	behindBy    prometheus.Gauge
	named       map[string]bool // sagas with a label of their own; owned by the loop
}

const (
	// maxNamedSagas bounds the sagas with a label of their own. Manifests name few sagas, but
	// a message may name any.
	maxNamedSagas = 500
	// otherSagas is the label of all other sagas.
	otherSagas = "other"
)

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		named: map[string]bool{},
		transitions: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_transitions_total", Help: "What became of events, by saga and fate.",
		}, []string{"saga", "fate"}),
		events: f.NewCounter(prometheus.CounterOpts{
			Name: "edda_events_total", Help: "Events of the streams that are durably handled.",
		}),
		commit: f.NewHistogram(prometheus.HistogramOpts{
			Name: "edda_commit_seconds", Help: "From submitting a change set until it is durable.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		batch: f.NewHistogram(prometheus.HistogramOpts{
			Name: "edda_batch_events", Help: "Inputs evaluated at once.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "edda_engine_in_flight", Help: "Inputs that are evaluated and not yet durable.",
		}),
		late: f.NewHistogram(prometheus.HistogramOpts{
			Name: "edda_timers_late_seconds", Help: "From when a timer was due until its transition is durable.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300, 3600},
		}),
		barriers: f.NewCounter(prometheus.CounterOpts{
			Name: "edda_timer_turns_total", Help: "How often events waited for a timer that was due before they were stored.",
		}),
		dead: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_dead_letters_total", Help: "Events that could not be applied, by reason.",
		}, []string{"reason"}),
		waiters: f.NewGauge(prometheus.GaugeOpts{
			Name: "edda_waiters", Help: "Calls that wait for a commit.",
		}),
		parkedFull: f.NewGauge(prometheus.GaugeOpts{
			Name: "edda_parked_full_tenants", Help: "Tenants that may park no more events.",
		}),
		paused: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_intake_paused", Help: "1 while new events stay in their streams, those of some sagas and tenants or all, by reason.",
		}, []string{"reason"}),
		pauses: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_intake_pauses_total", Help: "Times that new events began to stay in their streams, by reason.",
		}, []string{"reason"}),
		caught: f.NewCounter(prometheus.CounterOpts{
			Name: "edda_catch_up_events_total", Help: "Events of the streams that were read again for sagas that are behind, and are durably handled.",
		}),
		behind: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_sagas_behind", Help: "Sagas that are behind the streams, each tenant that is so by itself apart, by state: catching_up, paused, or failing where they cannot be read for.",
		}, []string{"state"}),
		behindBy: f.NewGauge(prometheus.GaugeOpts{
			Name: "edda_sagas_behind_messages", Help: "Messages, others' included, that the saga which is farthest behind has to pass.",
		}),
	}
}

// The states of a saga that is behind.
const (
	stateCatching = "catching_up"
	statePaused   = "paused"
	stateFailing  = "failing"
)

func (m *metrics) showBehind(all []Behind) {
	n, most := map[string]int{stateCatching: 0, statePaused: 0, stateFailing: 0}, uint64(0)
	for i := range all {
		n[all[i].state()]++
		most = max(most, all[i].Left)
	}
	for state, n := range n {
		m.behind.WithLabelValues(state).Set(float64(n))
	}
	m.behindBy.Set(float64(most))
}

func (b *Behind) state() string {
	switch {
	case b.Paused != "":
		return statePaused
	case b.Problem != "":
		return stateFailing
	}
	return stateCatching
}

func (m *metrics) pause(reason string, yes bool) {
	if !yes {
		m.paused.WithLabelValues(reason).Set(0)
		return
	}
	m.paused.WithLabelValues(reason).Set(1)
	m.pauses.WithLabelValues(reason).Inc()
}

func (m *metrics) fate(saga string, fate edda.Fate) {
	m.transitions.WithLabelValues(saga, string(fate)).Inc()
}

// count counts a transition. Anybody may send a message to a saga that does not exist, so a
// name is no label while all its messages become dead letters without an instance. Only the
// loop calls it.
func (m *metrics) count(t *edda.Transition) {
	stranger := t.Dead != nil && t.Dead.Reason == edda.DeadNoInstance
	if !stranger && len(m.named) < maxNamedSagas {
		m.named[t.Key.Saga] = true
	}
	if name := t.Key.Saga; m.named[name] {
		m.fate(name, t.Fate)
		return
	}
	m.fate(otherSagas, t.Fate)
}

// lagCollector collects how many messages each position is behind the end of its stream.
type lagCollector struct{ status *status }

func lagDesc() *prometheus.Desc {
	return prometheus.NewDesc("edda_stream_lag_messages", "Messages of a stream behind its durable position, others' included.", []string{"stream"}, nil)
}

func (c lagCollector) Describe(ch chan<- *prometheus.Desc) { ch <- lagDesc() }

func (c lagCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.status.info().Positions {
		ch <- prometheus.MustNewConstMetric(lagDesc(), prometheus.GaugeValue, float64(p.Lag), p.Stream)
	}
}
