package node

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/cluster"
)

// clusterMetrics are those of a node over all its stays.
type clusterMetrics struct {
	stay      atomic.Pointer[stay] // the current one; nil between two
	takeovers *prometheus.CounterVec
	appends   prometheus.Histogram
	bytes     prometheus.Counter
	unsure    prometheus.Counter
	gauges    []prometheus.Collector
}

func newClusterMetrics(shard int) *clusterMetrics {
	of := prometheus.Labels{"shard": strconv.Itoa(shard)}
	m := &clusterMetrics{
		takeovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_takeovers_total", ConstLabels: of,
			Help: "Times that this node took the store over: at the death of its owner, at a hand-over, or again after its own restart.",
		}, []string{"why"}),
		appends: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "edda_log_append_seconds", ConstLabels: of, Help: "Time until the replicated log had a record.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edda_log_bytes_total", ConstLabels: of, Help: "Bytes of the transactions that were appended to the replicated log.",
		}),
		unsure: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edda_log_unsure_total", ConstLabels: of, Help: "Appends to the replicated log without an answer in time, which were resolved by its last message.",
		}),
	}
	for _, g := range []struct {
		name, help string
		of         func(*stay) float64
	}{
		{"edda_cluster_owner", "1 while this node owns the store of its cluster.", func(t *stay) float64 {
			if t.beat().Owner {
				return 1
			}
			return 0
		}},
		{"edda_cluster_epoch", "The epoch of the last record of the replicated log that this node has.",
			func(t *stay) float64 { return float64(t.beat().Epoch) }},
		{"edda_cluster_copies", "Nodes that are alive and follow the log, as this node knows.",
			func(t *stay) float64 { return copies(t.beat(), t.others()) }},
		{"edda_cluster_copies_wanted", "Copies that the store should have beside its owner's: cluster.copies, if the cluster has so many nodes.",
			func(t *stay) float64 { return float64(min(t.settings.Cluster.Copies, 1+len(t.others())) - 1) }},
		{"edda_cluster_nodes", "Nodes of the cluster that this node knows, itself and dead ones among them.",
			func(t *stay) float64 { return float64(1 + len(t.others())) }},
		{"edda_replica_lag_records", "Records that the owner has and this node's copy has not.",
			func(t *stay) float64 { return float64(lag(t.beat(), t.others())) }},
	} {
		m.gauges = append(m.gauges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help, ConstLabels: of}, func() float64 {
			if t := m.stay.Load(); t != nil {
				return g.of(t)
			}
			return 0
		}))
	}
	return m
}

// register registers the metrics with the registry of a process or of a standby.
func (m *clusterMetrics) register(r prometheus.Registerer) {
	r.MustRegister(append(m.gauges, m.takeovers, m.appends, m.bytes, m.unsure)...)
}

func copies(b cluster.Beat, others []cluster.Member) (n float64) {
	if b.Following {
		n++
	}
	for _, o := range others {
		if !o.Dead && o.Beat.Following {
			n++
		}
	}
	return n
}

// lag is how many records the owner had at its last beat that a node has not.
func lag(b cluster.Beat, others []cluster.Member) (n uint64) {
	for _, o := range others {
		if o.Beat.Owner && !o.Dead && o.Beat.LSN > b.LSN {
			n = max(n, o.Beat.LSN-b.LSN)
		}
	}
	return n
}

// measured is a log whose appends are measured.
type measured struct {
	cluster.Log
	m *clusterMetrics
}

func (l measured) Append(ctx context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	began := time.Now()
	at, err := l.Log.Append(ctx, after, r)
	if err == nil {
		l.m.appends.Observe(time.Since(began).Seconds())
		l.m.bytes.Add(float64(len(r.Entry)))
	}
	return at, err
}
