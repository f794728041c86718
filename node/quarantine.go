package node

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda"
	"edda/engine"
	"edda/store"
)

// quarantine counts and logs what operators do with dead letters and instances.
type quarantine struct {
	log      *zap.Logger
	commands *prometheus.CounterVec
	left     *prometheus.CounterVec
}

func newQuarantine(r prometheus.Registerer, log *zap.Logger) *quarantine {
	q := &quarantine{
		log: log,
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_operator_acts_total", Help: "Operators' verbs that were committed, by verb.",
		}, []string{"verb"}),
		left: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_dead_letters_settled_total", Help: "Dead letters that were redriven, dropped or skipped, by verb and by the reason they died of.",
		}, []string{"verb", "reason"}),
	}
	r.MustRegister(q.commands, q.left)
	return q
}

// verbs are the values of the label; any other verb counts as "other".
var verbs = []string{edda.VerbCancel, edda.VerbTerminate, edda.VerbRetry, edda.VerbSkip, edda.VerbResolve, edda.VerbRedrive, edda.VerbDrop}

func (q *quarantine) settled(verb, reason string) {
	q.commands.WithLabelValues(oneOf(verbs, verb)).Inc()
	q.left.WithLabelValues(oneOf(verbs, verb), oneOf(edda.DeadReasons, reason)).Inc()
}

func oneOf(known []string, word string) string {
	if slices.Contains(known, word) {
		return word
	}
	return "other"
}

// observe counts the operator commands among durable transitions. It does not block.
func (q *quarantine) observe(ts []edda.Transition) {
	for i := range ts {
		if t := &ts[i]; t.Event.Kind == edda.KindOperator && t.Event.CommandID == "" && t.Fate != "" && !t.Event.Redriven {
			q.acted(t, engine.Became(ts[i:]))
		}
	}
}

// acted counts and logs an operator command from the stream with its outcome, without its
// payload.
func (q *quarantine) acted(t *edda.Transition, became string) {
	ev := &t.Event
	q.commands.WithLabelValues(oneOf(verbs, ev.Type)).Inc()
	var r edda.Redrive
	if len(ev.Payload) > 0 {
		_ = json.Unmarshal(ev.Payload, &r) // an unreadable payload names no dead letter
	}
	for range t.Resolved {
		q.left.WithLabelValues(oneOf(verbs, ev.Type), oneOf(edda.DeadReasons, cmp.Or(r.Reason, edda.DeadPoison))).Inc()
	}
	q.log.Info("an operator acted", zap.String("verb", ev.Type), zap.String("step", ev.Step), zap.String("dead_letter", r.DeadLetter),
		zap.String("tenant", t.Key.Tenant), zap.String("saga", t.Key.Saga), zap.String("correlation", t.Key.Correlation),
		zap.String("by", ev.By), zap.String("why", ev.Why), zap.String("fate", became))
}

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
