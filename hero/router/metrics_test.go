package router

import (
	"testing"

	"edda/internal/testkit"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The first contexts have their own labels. A later one gets a label that was released.
func TestManyContextsShareALabel(t *testing.T) {
	m, err := newMetrics(nil)
	testkit.Must(t, err)
	var all []*contextGauges
	for i := range uint32(maxNamedContexts + 5) {
		g := m.of(i)
		g.waiting(9)
		g.waiting(2)
		g.living(1)
		all = append(all, g)
	}
	series := func(want int, others float64) {
		t.Helper()
		if n := testutil.CollectAndCount(m.depth); n != want {
			t.Errorf("%d series, want %d", n, want)
		}
		if got := testutil.ToFloat64(m.depth.WithLabelValues(otherContexts)); got != others {
			t.Errorf("%v wait in the others, want %v", got, others)
		}
		if n := testutil.CollectAndCount(m.alive); n != want {
			t.Errorf("%d series of runners, want %d", n, want)
		}
	}
	series(maxNamedContexts+1, 10)
	all[3].release()
	all[maxNamedContexts].release()
	series(maxNamedContexts, 8)
	g := m.of(7000)
	g.waiting(4)
	g.living(1)
	series(maxNamedContexts+1, 8)
	if got := testutil.ToFloat64(m.depth.WithLabelValues("7000")); got != 4 {
		t.Errorf("%v wait in context 7000", got)
	}
}
