package coordinator

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/hero"
	"edda/hero/jsonrpc"
)

// meter counts calls and created jobs. Its labels are bounded: the defined methods, the
// codes of the protocol, and the accepted script types.
type meter struct {
	calls   *prometheus.CounterVec
	denied  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	jobs    *prometheus.CounterVec
	types   map[hero.ScriptType]bool
}

// otherMethod replaces the name of a method that is not defined: a client cannot make labels.
const otherMethod = "unknown"

// otherType replaces a script type that is not accepted.
const otherType = "other"

// newMeter makes the metrics, and registers them unless reg is nil.
func newMeter(reg prometheus.Registerer, methods []string, types map[hero.ScriptType]bool) (*meter, error) {
	m := &meter{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_calls_total", Help: "Calls of the coordinator's methods, by what they answered: ok, or the code of the error."}, []string{"method", "code"}),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_denied_total", Help: "Calls of actors that lack the right."}, []string{"method"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edda_hero_call_seconds", Help: "How long calls took.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9)}, []string{"method"}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_hero_jobs_created_total", Help: "Jobs that job.create stored, by the type of their script."}, []string{"type"}),
		types: types,
	}
	for t := range types {
		m.jobs.WithLabelValues(string(t))
	}
	for _, name := range append([]string{otherMethod}, methods...) { // so that every method shows from the start
		m.calls.WithLabelValues(name, codeOK)
		m.denied.WithLabelValues(name)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.calls, m.denied, m.seconds, m.jobs} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("coordinator: register metrics: %w", err)
		}
	}
	return m, nil
}

const codeOK = "ok"

func (m *meter) observe(method string, took time.Duration, err error) {
	if method == "" {
		method = otherMethod
	}
	code := codeOf(err)
	m.calls.WithLabelValues(method, code).Inc()
	m.seconds.WithLabelValues(method).Observe(took.Seconds())
	if code == strconv.Itoa(jsonrpc.PermissionDenied) {
		m.denied.WithLabelValues(method).Inc()
	}
}

// created counts a new job.
func (m *meter) created(t hero.ScriptType) {
	label := string(t)
	if !m.types[t] {
		label = otherType
	}
	m.jobs.WithLabelValues(label).Inc()
}

func codeOf(err error) string {
	if err == nil {
		return codeOK
	}
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return strconv.Itoa(jsonrpc.InternalError)
	}
	return strconv.Itoa(e.Code)
}

func names(methods []jsonrpc.Method) []string {
	var out []string
	for _, m := range methods {
		out = append(out, m.Name())
	}
	return out
}
