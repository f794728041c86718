package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

// world is an engine with a real store, a source in memory and a small saga, in
// a bubble of virtual time.
type world struct {
	t        *testing.T
	streams  *streams
	db       *store.DB
	gate     *gate
	engine   *Engine
	registry *prometheus.Registry
	sagas    Sagas // nil: counter
	logs     *observer.ObservedLogs

	mu   sync.Mutex
	seen [][]edda.Transition

	stopEngine func()
}

// inWorld runs the test with a running engine.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		w.start(Options{})
		test(w)
	})
}

func newWorld(t *testing.T, dir string) *world {
	db, _ := testkit.OpenStore(t, dir, store.Options{})
	w := &world{t: t, streams: newStreams("A", "B"), db: db, gate: newGate(stored{db})}
	testkit.Run(t, func(ctx context.Context) error { w.gate.run(ctx); return nil })
	return w
}

// lanes is the number of lanes in a world, also for few inputs, so that -race sees what they share.
const lanes = 2

// start runs an engine until stop or the next start.
func (w *world) start(o Options) {
	w.stop()
	w.registry = prometheus.NewRegistry()
	core, logs := observer.New(zapcore.InfoLevel)
	w.logs = logs
	o.Lanes = cmp.Or(o.Lanes, lanes)
	o.Registry, o.Observe, o.Log = w.registry, w.observe, zap.New(core)
	var sagas Sagas = counter{}
	if w.sagas != nil {
		sagas = w.sagas
	}
	w.engine = newEngine(w.streams, w.gate, sagas, o)
	w.stopEngine = testkit.Run(w.t, w.engine.Run)
	synctest.Wait()
}

func (w *world) stop() {
	if w.stopEngine != nil {
		w.stopEngine()
	}
}

func (w *world) observe(ts []edda.Transition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, slices.Clone(ts))
}

// sets returns the transitions that Observe got.
func (w *world) sets() [][]edda.Transition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// ids returns the event ids of the observed transitions, in commit order.
func (w *world) ids() (ids []string) {
	for _, set := range w.sets() {
		for _, t := range set {
			ids = append(ids, t.Event.ID)
		}
	}
	return ids
}

// settle waits until nothing is in flight. Virtual time passes only when every goroutine waits;
// it passes longer than a batch lingers or a commit is deferred.
func settle() {
	synctest.Wait()
	time.Sleep(moveWithin + 2*maxLinger)
	synctest.Wait()
}

func event(id, typ, key string) edda.Event {
	return edda.Event{ID: id, Type: typ, AggregateID: key, Tenant: "acme"}
}

func key(correlation string) edda.Key {
	return edda.Key{Tenant: "acme", Saga: "counter", Correlation: correlation}
}

// log reads the durable log of a key.
func (w *world) log(k edda.Key) []string {
	w.t.Helper()
	cell := w.cell(k)
	if cell.Instance == nil {
		return nil
	}
	var s tally
	if err := json.Unmarshal(cell.Instance.State, &s); err != nil {
		w.t.Fatal(err)
	}
	return s.Log
}

func (w *world) cell(k edda.Key) edda.Cell {
	w.t.Helper()
	return testkit.Cell(w.t, w.db, k)
}

func (w *world) wantLog(k edda.Key, want ...string) {
	w.t.Helper()
	if got := w.log(k); !slices.Equal(got, want) {
		w.t.Errorf("log of %s:\n got %v\nwant %v", k, got, want)
	}
}

// position reads the durable position of a stream.
func (w *world) position(stream string) edda.Checkpoint {
	w.t.Helper()
	all, err := w.db.Checkpoints()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range all {
		if c.Stream == stream {
			return c
		}
	}
	return edda.Checkpoint{}
}

// metric sums the samples of one metric whose labels all have the values.
func (w *world) metric(name string, values ...string) float64 {
	w.t.Helper()
	return testkit.Metric(w.t, w.registry, name, values...)
}

func TestMetricsPassTheLinter(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	m.fate("counter", edda.FateHandled)
	m.dead.WithLabelValues(edda.DeadNoKey).Inc()
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestUnknownSagaNamesAreNoLabels, because each label is a series for the life of the process.
func TestUnknownSagaNamesAreNoLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	of := func(saga string) *edda.Transition {
		return &edda.Transition{Key: edda.Key{Tenant: "acme", Saga: saga}, Fate: edda.FateHandled}
	}
	stranger := func(saga string) *edda.Transition {
		tr := of(saga)
		tr.Fate, tr.Dead = edda.FateDead, &edda.DeadLetter{Reason: edda.DeadNoInstance}
		return tr
	}
	for i := range 2 * maxNamedSagas {
		m.count(stranger(fmt.Sprint("forged", i)))
	}
	m.count(stranger("order"))
	m.count(of("order"))
	m.count(stranger("order"))
	for i := range maxNamedSagas {
		m.count(of(fmt.Sprint("saga", i)))
	}
	m.count(of("order"))
	for labels, want := range map[[2]string]float64{
		{"dead", "other"}: 2*maxNamedSagas + 1, {"handled", "order"}: 2, {"dead", "order"}: 1, {"handled", "other"}: 1, {"handled", "saga0"}: 1,
	} {
		if got := testutil.ToFloat64(m.transitions.WithLabelValues(labels[1], labels[0])); got != want {
			t.Errorf("%s of %s: %v, want %v", labels[0], labels[1], got, want)
		}
	}
	if n := testutil.CollectAndCount(m.transitions); n > maxNamedSagas+3 {
		t.Errorf("%d series", n)
	}
}

func many(n int, id func(i int) string) (all []string) {
	for i := range n {
		all = append(all, id(i))
	}
	return all
}

func numbered(prefix string) func(int) string {
	return func(i int) string { return fmt.Sprintf("%s%d", prefix, i) }
}

func joined(ids []string) string { return strings.Join(ids, " ") }

// rewind makes the streams deliver everything after the durable positions again.
func (w *world) rewind() {
	at := map[string]uint64{"A": w.position("A").Seq, "B": w.position("B").Seq}
	w.streams.change(func() {
		w.streams.waiting = slices.DeleteFunc(slices.Clone(w.streams.stored), func(ev edda.Event) bool { return ev.Seq <= at[ev.Stream] })
	})
}
