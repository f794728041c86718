package systemtest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda"
	"edda/effects"
	"edda/effects/httpeffect"
	"edda/engine"
	"edda/handoff"
	"edda/internal/lifecycle"
	"edda/internal/testkit/natscluster"
	"edda/manifests"
	"edda/outbox"
	"edda/saga"
	"edda/scheduler"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
	"edda/stream/wire"
)

const tenant = "acme"

// TestMain runs the tests, or a NATS server of a cluster if this process is one.
func TestMain(m *testing.M) { natscluster.Main(suite{m}) }

type suite struct{ *testing.M }

// atOnce is how many of the tests that may run beside others do: they wait for
// processes more than they compute.
const atOnce = "4"

// Run starts the NATS server's clock of accesses, which must run outside every
// bubble, and at the end removes the binaries that tests have built.
func (s suite) Run() int {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ats.Register()
	defer ats.Unregister()
	defer leftovers.remove()
	return s.M.Run()
}

// leftovers are folders that outlive the test that made them.
var leftovers sharedDirs

type sharedDirs struct {
	mu   sync.Mutex // guards dirs
	dirs []string
}

func sharedDir() (string, error) {
	dir, err := os.MkdirTemp("", "edda-systemtest")
	if err != nil {
		return "", err
	}
	leftovers.mu.Lock()
	defer leftovers.mu.Unlock()
	leftovers.dirs = append(leftovers.dirs, dir)
	return dir, nil
}

func (s *sharedDirs) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range s.dirs {
		_ = os.RemoveAll(dir) // it is the system's folder for such things
	}
}

// world is the whole system: NATS, a store, everything that works on them, and
// the shop and the gateway outside. In a bubble time is virtual.
type world struct {
	t       testing.TB
	dir     string
	sagas   []*saga.Program
	effects []*effects.Effect
	shop    *shop
	gateway *gateway
	synced  bool                    // the streams and their server, as in edda dev
	quiet   bool                    // transitions are not kept
	bounds  bounds                  // zero: the defaults
	virtual bool                    // it is in a bubble
	direct  bool                    // commands go to their stream, there is no gateway
	apart   bool                    // effect commands and results go through their streams
	slow    time.Duration           // how long it takes until what goes out is in its stream
	deaf    atomic.Bool             // the streams take no copies of results
	count   func([]edda.Transition) // where set, is told of transitions too
	nats    *kv.Embedded
	conn    *nats.Conn
	js      jetstream.JetStream
	running *system
	mu      sync.Mutex // guards seen
	seen    []edda.Transition
}

// system is one run of the saga worker and the effect worker.
type system struct {
	db        *store.DB
	conn      *nats.Conn
	set       *saga.Set
	source    *stream.Source
	publisher *stream.Publisher
	engine    *engine.Engine
	scheduler *scheduler.Scheduler
	relay     *outbox.Relay
	worker    *effects.Worker
	handoff   *handoff.Handoff
	registry  *prometheus.Registry
	codec     wire.Codec
	stop      func()
}

// inBubble runs a test of the whole system in virtual time, with the manifests.
func inBubble(t *testing.T, texts []string, test func(w *world)) {
	t.Helper()
	inBubbleOf(t, texts, false, test)
}

// bothWays runs a test with effects that are handed over within the process, and
// with such that go through their streams.
func bothWays(t *testing.T, texts []string, test func(w *world)) {
	t.Helper()
	for name, apart := range map[string]bool{"within": false, "apart": true} {
		t.Run(name, func(t *testing.T) { inBubbleOf(t, texts, apart, test) })
	}
}

func inBubbleOf(t *testing.T, texts []string, apart bool, test func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir, texts...)
		w.virtual, w.apart = true, apart
		w.startNATS()
		defer w.close() // also when the test has failed: a bubble waits for all its goroutines
		w.start()
		test(w)
	})
}

func newWorld(t testing.TB, dir string, texts ...string) *world {
	t.Helper()
	w := &world{t: t, dir: dir, shop: newShop(), gateway: &gateway{}}
	for i, text := range texts {
		w.compile(fmt.Sprintf("manifest-%d.yaml", i), []byte(text))
	}
	return w
}

func (w *world) compile(name string, text []byte) {
	w.t.Helper()
	file, problems := manifests.Parse(name, text)
	for _, m := range file.Sagas {
		p, more := saga.Compile(m, saga.Options{})
		w.sagas, problems = append(w.sagas, p), append(problems, more...)
	}
	for _, m := range file.Effects {
		e, more := effects.Compile(m, map[string]effects.ProviderKind{"http": httpeffect.Kind()})
		w.effects, problems = append(w.effects, e), append(problems, more...)
	}
	w.effects = slices.DeleteFunc(w.effects, w.unused)
	if problems.Failed() {
		problems.Print(os.Stderr, false)
		w.t.Fatalf("%s does not compile", name)
	}
}

// unused tells of an effect that no saga so far runs: it would only poll.
func (w *world) unused(e *effects.Effect) bool {
	return !slices.ContainsFunc(w.sagas, func(p *saga.Program) bool { return slices.Contains(p.Effects(), e.Name()) })
}

func (w *world) startNATS() {
	w.t.Helper()
	var err error
	w.nats, err = kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: filepath.Join(w.dir, "nats"), SyncAlways: w.synced})
	if err != nil {
		w.t.Fatal(err)
	}
	w.conn, w.js = w.connect()
	if _, err := stream.EnsureStreams(context.Background(), w.js, stream.StreamOptions{SyncAlways: w.synced}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) connect() (*nats.Conn, jetstream.JetStream) {
	w.t.Helper()
	conn, js, err := kv.Connect(kv.Connection{Server: w.nats.Server()})
	if err != nil {
		w.t.Fatal(err)
	}
	return conn, js
}

// stopNATS stops the server, in a bubble once it has nothing left to do: while
// shutting down it sleeps with locks held, and whoever waits for one of them, such
// as a request for a consumer, stops the bubble's clock and so that sleep.
func (w *world) stopNATS() {
	w.conn.Close()
	if w.virtual {
		synctest.Wait()
	}
	w.nats.Close()
}

func (w *world) close() {
	w.stop()
	w.stopNATS()
}

// caughtUpWithin bounds how long a restored store may take for its past.
const caughtUpWithin = time.Minute

// start starts everything that works on the streams, on the world's data.
func (w *world) start() {
	w.t.Helper()
	s := &system{registry: prometheus.NewRegistry()}
	conn, js := w.connect()
	s.conn = conn
	w.open(s, js)
	w.build(s, js)
	started := make(chan struct{})
	group := lifecycle.New(lifecycle.Options{}, append(s.parts(), lifecycle.Component{
		Name: "start", Stage: lifecycle.Intake, Run: func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return nil
		}})...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()
	s.stop = func() {
		// A relay that waits for the past of a restored store cannot be flushed.
		if restored, _ := s.db.Restored(); restored {
			select {
			case <-s.source.CaughtUp():
			case err := <-ended:
				ended <- err // it is reported below
			case <-time.After(caughtUpWithin):
				w.t.Error("the restored store did not catch up")
			}
		}
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("stop: %v", err)
		}
	}
	w.running = s
	select {
	case <-started:
	case err := <-ended:
		ended <- err // stop reports it
	}
}

// open opens the store, which must hold the beginning before the engine runs.
func (w *world) open(s *system, js jetstream.JetStream) {
	w.t.Helper()
	var err error
	if s.db, err = store.Open(filepath.Join(w.dir, "store"), store.Options{}); err != nil {
		w.t.Fatal(err)
	}
	held, err := s.db.Checkpoints()
	if err != nil {
		w.t.Fatal(err)
	}
	restored, err := s.db.Restored()
	if err != nil {
		w.t.Fatal(err)
	}
	s.source, err = stream.OpenSource(context.Background(), js, held, stream.SourceOptions{Codec: s.codec, Name: s.db.ID(), From: stream.FromAll, Committed: s.db.Checkpoints, Restored: restored})
	if err != nil {
		w.t.Fatal(err)
	}
	if s.set, err = saga.NewSet(w.sagas...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) build(s *system, js jetstream.JetStream) {
	w.t.Helper()
	log := zap.NewNop()
	s.publisher = stream.NewPublisher(js, s.codec)
	s.handoff = handoff.New(s.codec, s.publisher, nil, log)
	gate, err := outbox.NewGateway(outbox.GatewayOptions{URL: "http://gateway.example", Transport: w.gateway})
	if err != nil {
		w.t.Fatal(err)
	}
	kinds := []edda.WorkKind{edda.WorkEffect, edda.WorkRevoke, edda.WorkFact, edda.WorkStart, edda.WorkCancel, edda.WorkEnd, edda.WorkResult}
	routes := []outbox.Route{{Name: "jetstream", Kinds: kinds, Destination: slow{s.handoff, w}}, gate.Route()}
	if w.direct {
		routes = []outbox.Route{{Name: "jetstream", Kinds: append(kinds, edda.WorkCommand), Destination: slow{s.handoff, w}}}
	}
	var destinations []engine.DestinationKinds
	for _, l := range routes {
		destinations = append(destinations, engine.DestinationKinds{Name: l.Name, Kinds: l.Kinds})
	}
	s.engine = engine.New(s.source, s.db, s.set, engine.Options{
		Log: log, Registry: s.registry, Observe: w.observe, MaxParked: w.bounds.parked,
		Destinations: destinations, MaxOutbox: w.bounds.outbox,
		CatchUp: engine.CatchUpOptions{Streams: stream.EventStreams(s.codec), After: s.afterRestore(),
			Open: func(ctx context.Context, p engine.SagaTenant, from []edda.Checkpoint) (engine.Past, error) {
				past, err := stream.OpenCatchUp(ctx, js, p, from, stream.SourceOptions{Name: s.db.ID()})
				if err != nil {
					return nil, err
				}
				return past, nil
			}},
	})
	s.scheduler = scheduler.New(s.db, s.engine, s.set, scheduler.Options{Log: log})
	s.relay, err = outbox.New(s.db, outbox.Options{
		Routes: routes, Rejecter: s.publisher, Log: log, Metrics: s.registry, Max: w.bounds.outbox,
		After: s.afterRestore(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	provider := httpeffect.New(httpeffect.Options{Transport: w.shop})
	s.worker, err = effects.New(s.db, effects.Options{
		Source: stream.NewCommands(js, stream.CommandsOptions{Sole: true}), Publisher: s.publisher,
		Providers: map[string]effects.Provider{"http": provider}, Log: log, Metrics: s.registry, Applier: s.handoff,
	}, w.effects...)
	if err != nil {
		w.t.Fatal(err)
	}
	if !w.apart {
		s.handoff.Connect(s.worker, s.engine, s.source.CaughtUp())
	}
}

// slow is a destination that takes its time, or no copies.
type slow struct {
	*handoff.Handoff
	w *world
}

var errDeaf = edda.Classify(edda.Temporary, "the streams take no copies")

func (s slow) Deliver(ctx context.Context, batch []edda.Work) []error {
	time.Sleep(s.w.slow)
	if !s.w.deaf.Load() {
		return s.Handoff.Deliver(ctx, batch)
	}
	errs := make([]error, len(batch))
	for i := range batch {
		errs[i] = errDeaf
		if batch[i].Kind == edda.WorkResult {
			continue
		}
		errs[i] = nil
		if err := s.Handoff.Deliver(ctx, batch[i:i+1]); err != nil {
			errs[i] = err[0]
		}
	}
	return errs
}

// crowded are the sagas that have their share of a destination.
// afterRestore is what the relay of a restored store waits for.
func (s *system) afterRestore() <-chan struct{} {
	if restored, _ := s.db.Restored(); !restored {
		return nil
	}
	return s.source.CaughtUp()
}

// parts are those of the binary, in the same stages.
func (s *system) parts() []lifecycle.Component {
	return []lifecycle.Component{
		{Name: "store", Stage: lifecycle.Store, Run: s.db.Run, Close: s.db.Close, Ready: func(ctx context.Context) error {
			return s.db.Commit(ctx, store.Change{Checkpoints: s.source.Start()})
		}},
		{Name: "nats", Stage: lifecycle.Connections, Run: func(ctx context.Context) error {
			<-ctx.Done()
			s.conn.Close()
			return nil
		}},
		{Name: "outbox", Stage: lifecycle.Flush, Run: s.relay.Run, Finish: s.relay.Flush},
		{Name: "handoff", Stage: lifecycle.Flush, Run: s.handoff.Run, Finish: s.handoff.Flush},
		{Name: "source", Stage: lifecycle.InFlight, Run: s.source.Run},
		{Name: "effects", Stage: lifecycle.InFlight, Run: s.worker.Run, Ready: s.worker.Recover},
		{Name: "engine", Stage: lifecycle.Intake, Run: s.engine.Run, Finish: s.engine.Drain},
		{Name: "scheduler", Stage: lifecycle.Intake, Run: func(ctx context.Context) error {
			if err := s.scheduler.Run(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}},
	}
}

func (w *world) stop() {
	if w.running != nil {
		w.running.stop()
		w.running = nil
	}
}

func (w *world) observe(ts []edda.Transition) {
	if !w.quiet {
		w.mu.Lock()
		w.seen = append(w.seen, ts...)
		w.mu.Unlock()
	}
	if w.count != nil {
		w.count(ts)
	}
}

// send publishes an event as any NATS client does.
func (w *world) send(id, name, aggregate, payload string) {
	w.t.Helper()
	w.publish(fmt.Sprintf("tenant.%s.aggregate.Order.%s", tenant, aggregate), fmt.Sprintf(
		`{"event_id":%q,"tenant_id":%q,"aggregate_type":"Order","aggregate_id":%q,"event_type":%q,"payload":%s}`, id, tenant, aggregate, name, payload))
}

// publish stores a message, without an id by which the stream would know it again.
func (w *world) publish(subject, body string) {
	w.t.Helper()
	if _, err := w.js.Publish(context.Background(), subject, []byte(body)); err != nil {
		w.t.Fatal(err)
	}
}

// patience bounds the virtual time that until waits.
const patience = time.Minute

// until lets virtual time pass, a little at a time and only when nothing else can happen, until the
// condition holds. It checks every millisecond at first, then after each further hundredth of the
// time that it has waited.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for began := time.Now(); ; time.Sleep(max(time.Millisecond, time.Since(began)/100)) {
		synctest.Wait()
		if holds() {
			return
		}
		if time.Since(began) > patience {
			w.t.Fatalf("%s: not within %v; %s", what, patience, w.story())
		}
	}
}

// pass lets virtual time pass until then, and everything that is due happen.
func (w *world) pass(then time.Time) {
	time.Sleep(time.Until(then))
	synctest.Wait()
}

// idle waits until no work is left that could still move by itself.
func (w *world) idle() {
	w.t.Helper()
	w.until("the outbox is empty", func() bool { return w.outbox() == 0 })
}

func (w *world) outbox() int {
	n, _ := w.running.db.OutboxSize()
	return n
}

// instance reads what is stored; nil where there is none.
func (w *world) instance(name, correlation string) *edda.Instance {
	w.t.Helper()
	v, err := w.running.db.View()
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Close()
	cell, err := v.Cell(edda.Key{Tenant: tenant, Saga: name, Correlation: correlation})
	if err != nil {
		w.t.Fatal(err)
	}
	return cell.Instance
}

func (w *world) status(name, correlation string) edda.Status {
	if in := w.instance(name, correlation); in != nil {
		return in.Status
	}
	return ""
}

// ends waits until the instance has ended so.
func (w *world) ends(name, correlation string, want edda.Status) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s/%s is %s", name, correlation, want), func() bool { return w.status(name, correlation) == want })
}

// fates lists what became of an event, in commit order.
func (w *world) fates(event string) (out []edda.Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.seen {
		if t.Event.ID == event {
			out = append(out, t.Fate)
		}
	}
	return out
}

// story tells every transition so far, for a failure's message.
func (w *world) story() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := "what happened:"
	for _, t := range w.seen {
		out += fmt.Sprintf("\n  %s %s %s %s%s %s", edda.FormatTime(t.Event.Time), t.Key, t.Fate, t.Event.Kind, "."+t.Event.Type, t.Event.Step)
		for _, o := range t.Outputs {
			out += " [" + o.Word + " " + o.Name + o.Reason + "]"
		}
	}
	return out
}

// same fails unless the lists are equal.
func same[T comparable](t testing.TB, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// field reads one field of a JSON object as text.
func field(object json.RawMessage, name string) string {
	var m map[string]any
	if json.Unmarshal(object, &m) != nil {
		return ""
	}
	return fmt.Sprint(m[name])
}
