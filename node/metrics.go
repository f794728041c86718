package node

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/server"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
)

// instanceCollector exports the number of instances by saga and status. Every commit
// maintains the counts.
type instanceCollector struct{ db *store.DB }

func instancesDesc() *prometheus.Desc {
	return prometheus.NewDesc("edda_instances", "Instances by saga and status.", []string{"saga", "status"}, nil)
}

func (c *instanceCollector) Describe(ch chan<- *prometheus.Desc) { ch <- instancesDesc() }

func (c *instanceCollector) Collect(ch chan<- prometheus.Metric) {
	type label struct{ saga, status string }
	sums := map[label]int{}
	for _, n := range c.db.Counts() {
		sums[label{n.Saga, string(n.Status)}] += n.N
	}
	for l, n := range sums {
		ch <- prometheus.MustNewConstMetric(instancesDesc(), prometheus.GaugeValue, float64(n), l.saga, l.status)
	}
}

// observeCommits measures the commits of the store.
func observeCommits(r prometheus.Registerer) func(changes, bytes int, took time.Duration) {
	duration := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "edda_commit_duration_seconds", Help: "Time of one transaction of the store.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	})
	changes := prometheus.NewCounter(prometheus.CounterOpts{Name: "edda_commit_changes_total", Help: "Change sets committed."})
	size := prometheus.NewCounter(prometheus.CounterOpts{Name: "edda_commit_bytes_total", Help: "Bytes written by commits."})
	r.MustRegister(duration, changes, size)
	return func(n, bytes int, took time.Duration) {
		duration.Observe(took.Seconds())
		changes.Add(float64(n))
		size.Add(float64(bytes))
	}
}

// parkedCollector exports the number of parked events.
type parkedCollector struct {
	db  *store.DB
	max int
}

func parkedDescs() (parked, limit *prometheus.Desc) {
	return prometheus.NewDesc("edda_parked_events", "Events that wait for an instance to begin.", nil, nil),
		prometheus.NewDesc("edda_parked_events_limit", "Events of one tenant that may wait; the next is a dead letter.", nil, nil)
}

func (c *parkedCollector) Describe(ch chan<- *prometheus.Desc) {
	parked, limit := parkedDescs()
	ch <- parked
	ch <- limit
}

func (c *parkedCollector) Collect(ch chan<- prometheus.Metric) {
	parked, limit := parkedDescs()
	ch <- prometheus.MustNewConstMetric(parked, prometheus.GaugeValue, float64(c.db.ParkedInAll()))
	ch <- prometheus.MustNewConstMetric(limit, prometheus.GaugeValue, float64(c.max))
}

// streamCollector exports which streams are usable.
type streamCollector struct{ watch *stream.Watch }

func streamUpDesc() *prometheus.Desc {
	return prometheus.NewDesc("edda_stream_up", "1 where the stream was there at the last look, 0 where it is gone or does not answer.", []string{"stream"}, nil)
}

func (c *streamCollector) Describe(ch chan<- *prometheus.Desc) { ch <- streamUpDesc() }

func (c *streamCollector) Collect(ch chan<- prometheus.Metric) {
	for name, up := range c.watch.Up() {
		value := 0.0
		if up {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(streamUpDesc(), prometheus.GaugeValue, value, name)
	}
}

// readyGauge exports whether /ready is 200.
func (p *process) readyGauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edda_ready", Help: "1 while the process takes work, as /ready says.",
	}, func() float64 {
		if p.notReady(p.pipeline.Load()) != "" {
			return 0
		}
		return 1
	})
}

// buildGauge exports the version of this program.
func buildGauge(b server.Build) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "edda_build_info", Help: "1, with the version of this program.", ConstLabels: prometheus.Labels{"version": b.Version},
	})
	g.Set(1)
	return g
}

// diskGauge exports the free bytes of the store's disk; NaN if they cannot be asked for.
func diskGauge(db *store.DB) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edda_store_disk_free_bytes", Help: "Free bytes of the disk on which the store is.",
	}, func() float64 {
		free, err := db.DiskFree()
		if err != nil {
			return math.NaN()
		}
		return float64(free)
	})
}

// leaseGauge exports how long the lease is still valid.
func leaseGauge(of string, lease *kv.Lease) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edda_lease_left_seconds", ConstLabels: prometheus.Labels{"lease": of},
		Help: "How long the process may act without asking NATS; at 0 nothing is called, sent or committed.",
	}, func() float64 { return max(0, lease.Fence().Left().Seconds()) })
}

// strayCounter exports the acks of the NATS server that arrived in place of messages.
func strayCounter(s *stream.Strays) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "edda_stream_stray_acks_total",
		Help: "Acks of the NATS server that came in the place of messages: somebody names subjects of Edda's as where to reply.",
	}, func() float64 { return float64(s.Count()) })
}

// resumedCounter exports how often a stream had lost a handled suffix.
func resumedCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edda_stream_resumed_total",
		Help: "Times that reading went on by itself since the NATS server had lost the end of a stream, all of which was handled.",
	}, []string{"stream"})
}

// remadeCounter exports how often the shared ledger was created again.
func remadeCounter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "edda_ledger_remade_total",
		Help: "Times that this process made the bucket of the shared effect ledger again, which was gone: commands sent before count as unknown.",
	})
}

// writtenCounters exports what the store wrote to its disk.
func writtenCounters(db *store.DB) (out []prometheus.Collector) {
	for _, c := range []struct {
		name, help string
		of         func(store.Written) uint64
	}{
		{"edda_store_syncs_total", "Times that the store made its disk sync.", func(w store.Written) uint64 { return w.Syncs }},
		{"edda_store_log_bytes_total", "Bytes written to the store's log.", func(w store.Written) uint64 { return w.LogBytes }},
	} {
		out = append(out, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help}, func() float64 { return float64(c.of(db.Written())) }))
	}
	return out
}

// standInMessages counts the messages between the nodes of a StandIn.
func standInMessages() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edda_hero_standin_messages_total", Help: "Messages between the nodes of the stand-in, by who sent them; a kind is call or reply.",
	}, []string{"from", "to", "kind"})
}

func republishedCounter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "edda_outbox_republished_total",
		Help: "Messages that the NATS server had acknowledged and lost, and that were published again.",
	})
}

// countMessages counts the messages that arrive from Mycelium.
func (p *process) countMessages() func(string) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edda_hero_mycelium_messages_total", Help: "Messages that arrived from Mycelium, by what became of them.",
	}, []string{"what"})
	p.metrics.MustRegister(c)
	return func(what string) { c.WithLabelValues(what).Inc() }
}
