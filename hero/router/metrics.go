package router

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/hero"
)

// The fates of a message in the metrics.
const (
	fateProcessed = "processed"
	fateError     = "error"
	fateDenied    = "denied"
	fateDuplicate = "duplicate"
	fateBroken    = "broken"
)

type metrics struct {
	messages *prometheus.CounterVec
	jobs     *prometheus.CounterVec
	took     *prometheus.HistogramVec
	depth    *prometheus.GaugeVec
	alive    *prometheus.GaugeVec
	inFlight prometheus.Gauge
	strays   *prometheus.CounterVec

	mu    sync.Mutex // guards named
	named int        // contexts with a label of their own
}

const (
	// maxNamedContexts bounds the contexts with a label of their own, which costs two
	// series. Calls create contexts, so there may be many.
	maxNamedContexts = 100
	// otherContexts is the label of the sum over all other contexts.
	otherContexts = "other"
)

// contextGauges are the gauges of one context, under its own label or as a part of the sum.
// Its methods must not be called concurrently.
type contextGauges struct {
	m            *metrics
	name         string
	depth, alive float64
}

// of makes the gauges of a context. release frees its label.
func (m *metrics) of(context uint32) *contextGauges {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.named >= maxNamedContexts {
		return &contextGauges{m: m, name: otherContexts}
	}
	m.named++
	return &contextGauges{m: m, name: strconv.FormatUint(uint64(context), 10)}
}

func (g *contextGauges) waiting(n float64) {
	g.m.depth.WithLabelValues(g.name).Add(n - g.depth)
	g.depth = n
}

func (g *contextGauges) living(n float64) {
	g.m.alive.WithLabelValues(g.name).Add(n - g.alive)
	g.alive = n
}

func (g *contextGauges) release() {
	g.waiting(0)
	g.living(0)
	if g.name == otherContexts {
		return
	}
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	g.m.named--
	g.m.depth.DeleteLabelValues(g.name)
	g.m.alive.DeleteLabelValues(g.name)
}

// newMetrics registers the metrics. Without a registry they only count.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_messages_total", Help: "Messages that the router has ended, by type and fate."}, []string{"type", "fate"}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_inbound_jobs_total", Help: "Job messages taken from msg_in, by fate."}, []string{"fate"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_hero_delivery_seconds", Help: "From taking a message out of msg_out to its fate.",
			Buckets: prometheus.ExponentialBuckets(.001, 4, 10)}, []string{"type"}),
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_hero_msg_out_depth", Help: "Messages in msg_out that the router has not taken yet."}, []string{"context"}),
		alive: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "edda_hero_runners_alive", Help: "Registered runners with a heartbeat."}, []string{"context"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "edda_hero_messages_underway", Help: "Messages that the router has taken and not ended."}),
		strays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_strays_total", Help: "Waiting jobs of other programs that none of them released, by fate: released or denied."}, []string{"fate"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.messages, m.jobs, m.took, m.depth, m.alive, m.inFlight, m.strays} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("router: register metrics: %w", err)
		}
	}
	return m, nil
}

// done counts a message. All unknown types share a label.
func (m *metrics) done(t hero.MessageType, fate string) {
	m.messages.WithLabelValues(label(t), fate).Inc()
}

func (m *metrics) timed(t hero.MessageType, since time.Time) {
	m.took.WithLabelValues(label(t)).Observe(time.Since(since).Seconds())
}

func label(t hero.MessageType) string {
	switch t {
	case hero.MessageJob, hero.MessageChat, hero.MessageMail, hero.MessageResult:
		return string(t)
	}
	return "other"
}
