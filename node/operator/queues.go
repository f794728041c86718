package operator

import (
	"github.com/prometheus/client_golang/prometheus"

	"edda"
	"edda/store"
)

// queueCollector exports the number of dead letters and held events. Every commit maintains
// the counts.
type queueCollector struct {
	db      *store.DB
	maxDead int // bound of a tenant's dead letters, in bytes
}

var (
	deadDesc   = prometheus.NewDesc("edda_dead_letters", "Dead letters in the store, by reason.", []string{"reason"}, nil)
	heldDesc   = prometheus.NewDesc("edda_held_keys", "Keys that a poison event holds.", nil, nil)
	cutDesc    = prometheus.NewDesc("edda_dead_letters_cut", "Dead letters in the store that lack their payload, which is in its stream.", nil, nil)
	bytesDesc  = prometheus.NewDesc("edda_dead_letters_bytes", "Bytes of dead letters in the store.", nil, nil)
	mostDesc   = prometheus.NewDesc("edda_dead_letters_bytes_limit", "Bytes of dead letters that one tenant may have; the next is kept without its payload.", nil, nil)
	behindDesc = prometheus.NewDesc("edda_held_events", "Events that are held, the poison ones included.", nil, nil)
)

func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{deadDesc, heldDesc, behindDesc, cutDesc, bytesDesc, mostDesc} {
		ch <- d
	}
}

func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.db.Queues()
	for d, value := range map[*prometheus.Desc]int{
		heldDesc: n.HeldKeys, behindDesc: n.Held, cutDesc: n.Cut, bytesDesc: c.db.DeadBytes(), mostDesc: c.maxDead,
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value))
	}
	sums := map[string]int{}
	for reason, k := range n.Dead {
		sums[oneOf(edda.DeadReasons, reason)] += k
	}
	for reason, k := range sums {
		ch <- prometheus.MustNewConstMetric(deadDesc, prometheus.GaugeValue, float64(k), reason)
	}
}
