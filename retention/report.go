package retention

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda/store"
)

// Report says what a run removed, or would remove.
type Report struct {
	DryRun bool          `json:"dry_run"`
	Clock  time.Time     `json:"clock"` // the time by which age was counted
	Kinds  []Tally       `json:"kinds"`
	Took   time.Duration `json:"took"`
}

// Tally counts the rows of one kind.
type Tally struct {
	Kind  store.RowKind `json:"kind"`
	Rows  int           `json:"rows"`
	Bytes int64         `json:"bytes"` // of keys and values
}

// Rows sums the rows of all kinds.
func (r Report) Rows() (n int) {
	for _, t := range r.Kinds {
		n += t.Rows
	}
	return n
}

// String formats the tallies on one line.
func (r Report) String() string {
	var parts []string
	for _, t := range r.Kinds {
		if t.Rows > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d rows, %d bytes", t.Kind, t.Rows, t.Bytes))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

func (r Report) fields() []zap.Field {
	var out []zap.Field
	for _, t := range r.Kinds {
		if t.Rows > 0 {
			out = append(out, zap.Int(string(t.Kind), t.Rows), zap.Int64(string(t.Kind)+"_bytes", t.Bytes))
		}
	}
	return out
}

type metrics struct {
	rows, bytes *prometheus.CounterVec
	ran         prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rows:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "edda_retention_removed_rows_total", Help: "Rows removed because they had expired, by kind."}, []string{"kind"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "edda_retention_removed_bytes_total", Help: "Bytes of keys and values of those rows."}, []string{"kind"}),
		ran:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "edda_retention_last_run_timestamp_seconds", Help: "When the background clean-up last went through."}),
	}
	for _, kind := range store.Kinds() {
		m.removed(kind, 0, 0) // a graph then begins at 0
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.rows, m.bytes, m.ran} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("retention: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) removed(kind store.RowKind, rows int, bytes int64) {
	m.rows.WithLabelValues(string(kind)).Add(float64(rows))
	m.bytes.WithLabelValues(string(kind)).Add(float64(bytes))
}
