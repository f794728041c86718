package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/engine"
	"edda/engine/sourcetest"
	"edda/internal/jsonvalue"
	"edda/internal/testkit"
	"edda/manifests"
	"edda/saga"
	"edda/store"
	"edda/store/wal"
)

// orderSaga has a timer, steps with undo, a must step, restarts, and events that are parked or
// poison.
const orderSaga = `saga: order
version: 1
key: event.id
deadline: 200h
state: {n: 0, total: 0, reminded: 0}
on:
  Placed:
    start: true
    restart: true
    set: {total: =event.total}
    do:
      - {timer: remind, every: 5h, catchup: none}
      - {timer: close, after: 20h}
      - seq:
          - {effect: charge, due: 90m, with: {amount: =event.total}, undo: {effect: refund, due: 2h, with: {of: =id}}}
          - {effect: ship, due: 3h, undo: {effect: unship, with: {of: =id}}}
  Noted: {set: {n: "=state.n + event.by * 2"}}
  Paid: {do: [{effect: thank, must: true, due: 2h}]}
  Closed: {do: [{done: =state.n}]}
  Dropped: {missing: drop, set: {n: "=state.n + 100"}}
  timer.remind: {set: {reminded: "=state.reminded + 1"}}
  timer.close: {do: [{event: Reminded}]}
  saga.failed: {do: [{event: Failed}]}
`

// watchSaga is another saga, which continues during the replays.
const watchSaga = `saga: watch
version: 1
key: event.id
state: {seen: 0}
on:
  Seen: {start: true, set: {seen: 1}}
  More: {set: {seen: "=state.seen + 1"}}
`

const (
	testStream  = "AGGREGATE_EVENTS"
	otherStream = "WORKFLOW_COMMANDS"
	tenant      = "acme"
)

// log stands for the streams: it keeps what was published, and the engine reads it.
type log struct {
	mu      sync.Mutex // guards the fields below
	created time.Time
	all     []edda.Event
	at      int // index of the next event to read
	read    map[string]uint64
	last    map[string]edda.Checkpoint
	begins  map[string]uint64 // first sequences of streams whose earlier events have expired
	wake    chan struct{}
}

func newLog() *log {
	return &log{created: time.Unix(1, 0).UTC(), read: map[string]uint64{}, last: map[string]edda.Checkpoint{}, begins: map[string]uint64{}, wake: make(chan struct{}, 1)}
}

func (l *log) publish(ev edda.Event) edda.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(ev)
}

func (l *log) put(ev edda.Event) edda.Event {
	if ev.Stream == "" {
		ev.Stream = testStream
	}
	ev.Seq = l.last[ev.Stream].Seq
	if ev.Member < 2 { // the next message
		ev.Seq++
	}
	l.last[ev.Stream] = edda.Checkpoint{Stream: ev.Stream, Seq: ev.Seq, Time: ev.Time, Created: l.created}
	l.all = append(l.all, ev)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return ev
}

// begin sets where the engine reads after a restart.
func (l *log) begin(positions []edda.Checkpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.read = 0, map[string]uint64{}
	for _, p := range positions {
		l.read[p.Stream] = p.Seq
	}
}

func (l *log) Ready() <-chan struct{} { return l.wake }

func (l *log) Hold(bool) {}

func (l *log) Take(max int) engine.Fetched {
	out := l.waiting(max)
	if len(out) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return engine.Fetched{Events: out}
}

func (l *log) waiting(max int) (out []edda.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; l.at < len(l.all) && len(out) < max; l.at++ {
		if ev := l.all[l.at]; ev.Seq > l.read[ev.Stream] || ev.Seq == l.read[ev.Stream] && ev.Member > 1 {
			l.read[ev.Stream] = ev.Seq
			out = append(out, ev)
		}
	}
	return out
}

func (l *log) Ends(context.Context) ([]engine.End, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []engine.End
	for name, c := range l.last {
		out = append(out, engine.End{Stream: name, Need: c.Seq, Last: c})
	}
	return out, nil
}

// Each gives the events to a replay, in the order of each stream.
func (l *log) Each(_ context.Context, tenant string, upto []edda.Checkpoint, visit func(edda.Event) error) (map[string]uint64, error) {
	l.mu.Lock()
	all, first := slices.Clone(l.all), map[string]uint64{}
	for _, c := range upto {
		first[c.Stream] = max(1, l.begins[c.Stream])
	}
	l.mu.Unlock()
	for _, c := range upto {
		for _, ev := range all {
			if ev.Stream != c.Stream || ev.Seq > c.Seq || ev.Seq < first[c.Stream] || ev.Tenant != tenant {
				continue
			}
			if err := visit(ev); err != nil {
				return nil, err
			}
		}
	}
	return first, nil
}

// world is a running store, engine and replayer.
type world struct {
	shard    edda.Shard // whose keys a replay builds; the engine has all
	t        testing.TB
	dir      string
	log      *log
	set      *saga.Set
	db       *store.DB
	engine   *engine.Engine
	replayer *Replayer
	reached  func(string)
	stopAll  func()
	unkept   int           // a version whose text is gone
	killed   chan struct{} // closed when the process dies
	now      time.Time
	clock    atomic.Int64 // the time of the engine
	n        int
	// maxParked is the engine's limit of parked events; 0 is the default.
	maxParked int
	// room is the replayer's Room; nil means always.
	room func() bool
}

func (w *world) Set() *saga.Set { return w.set }
func (w *world) Kept() ([]edda.Manifest, error) {
	all, err := w.db.Manifests()
	return slices.DeleteFunc(all, func(m edda.Manifest) bool { return m.Version == w.unkept }), err
}
func (w *world) Compile(m edda.Manifest) (*saga.Program, error) {
	return program(w.t, m.Text), nil
}

func program(t testing.TB, text string) *saga.Program {
	t.Helper()
	f, ps := manifests.Parse("test.yaml", []byte(text))
	if ps.Failed() {
		t.Fatalf("parse: %v", ps)
	}
	p, ps := saga.Compile(f.Sagas[0], saga.Options{})
	if p == nil {
		t.Fatalf("compile: %v", ps)
	}
	return p
}

func newWorld(t testing.TB, texts ...string) *world {
	w := &world{t: t, dir: t.TempDir(), log: newLog(), now: time.Now().UTC().Add(-2000 * time.Hour).Truncate(time.Second), reached: func(string) {}, killed: make(chan struct{})}
	w.later(0)
	w.load(texts...)
	w.start()
	w.keep(texts...)
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *world) load(texts ...string) {
	var programs []*saga.Program
	for _, text := range texts {
		programs = append(programs, program(w.t, text))
	}
	set, err := saga.NewSet(programs...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.set = set
}

// keep stores the manifests as the process does.
func (w *world) keep(texts ...string) {
	var c store.Change
	for _, text := range texts {
		p := program(w.t, text)
		c.Manifests = append(c.Manifests, edda.Manifest{Saga: p.Saga(), Version: p.Version(), Hash: p.Hash(), Text: text, Loaded: w.now})
	}
	testkit.Commit(w.t, w.db, c)
}

// swap loads other manifests into the running process.
func (w *world) swap(texts ...string) {
	w.load(texts...)
	w.keep(texts...)
	if err := w.engine.Swap(context.Background(), w.deciders()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) start() {
	var stopStore func()
	w.db, stopStore = testkit.OpenStore(w.t, w.dir, store.Options{})
	positions, err := w.db.Checkpoints()
	if err != nil {
		w.t.Fatal(err)
	}
	w.log.begin(positions)
	w.engine = engine.New(w.log, w.db, w.deciders(), engine.Options{MaxParked: w.maxParked})
	w.replayer = New(w.db, w.engine, w.log, w, Options{Reached: func(point string) { w.reached(point) }, Room: w.room, Shard: w.shard})
	stopEngine, stopReplayer := testkit.Run(w.t, w.engine.Run), testkit.Run(w.t, w.replayer.Run)
	w.stopAll = func() { stopReplayer(); stopEngine(); stopStore() }
}

// clocked holds timers back that are not due by the clock of the test.
type clocked struct {
	*saga.Set
	w *world
}

func (w *world) deciders() engine.Sagas { return clocked{w.set, w} }

func (c clocked) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	if now := time.Unix(0, c.w.clock.Load()).UTC(); now.Before(horizon) {
		horizon = now
	}
	return c.Set.Wake(cell, row, horizon)
}

func (w *world) failed(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) stop() { w.stopAll() }

// kill keeps the file as it is at this moment, as a kill does. What the process writes while it
// ends goes to another file.
func (w *world) kill() {
	w.t.Helper()
	dir := w.t.TempDir()
	files, err := filepath.Glob(filepath.Join(w.dir, store.FileName+"*")) // the WAL is beside the file
	for _, f := range files {
		var raw []byte
		if raw, err = os.ReadFile(f); err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(f)), raw, 0o600)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	close(w.killed)
	w.stop()
	w.dir = dir
}

// beforeKill is the state of an instance in the file that the kill kept.
func (w *world) beforeKill(id string) string {
	w.t.Helper()
	db, err := store.Open(w.dir, store.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	was := w.db
	w.db = db
	defer func() {
		w.db = was
		w.failed(db.Close())
	}()
	return w.stateOf(id)
}

// forgetHistory drops the history of all days, as retention does.
func (w *world) forgetHistory() {
	w.t.Helper()
	w.stop()
	raw, err := bolt.Open(filepath.Join(w.dir, store.FileName), 0o600, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	file, err := wal.Load(raw, wal.Options{Spaces: map[string]wal.Space{"history": {Nested: true}}})
	if err != nil {
		w.t.Fatal(err)
	}
	err = file.Update(func(tx *wal.Tx) error {
		history := tx.Bucket([]byte("history"))
		var days [][]byte
		if err := history.ForEach(func(day, _ []byte) error {
			days = append(days, day)
			return nil
		}); err != nil {
			return err
		}
		for _, day := range days {
			if err := history.DeleteBucket(day); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.start()
}

// event makes an event of an aggregate, in the past.
func (w *world) event(name, id string, payload map[string]any) edda.Event {
	w.n++
	if payload == nil {
		payload = map[string]any{}
	}
	payload["id"] = id
	raw, err := jsonvalue.Encode(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	return edda.Event{Kind: edda.KindEvent, ID: fmt.Sprintf("e%d", w.n), Tenant: tenant, Type: name, Time: w.now, Payload: raw}
}

func (w *world) key(id string) edda.Key {
	return edda.Key{Tenant: tenant, Saga: "order", Correlation: id}
}

// to makes a message for one instance.
func (w *world) to(kind edda.Kind, id string) edda.Event {
	w.n++
	return edda.Event{Kind: kind, ID: fmt.Sprintf("m%d", w.n), Tenant: tenant, Key: w.key(id), Time: w.now, Stream: otherStream}
}

func (w *world) verb(verb, id, step string) edda.Event {
	ev := w.to(edda.KindOperator, id)
	ev.Type, ev.Step, ev.By = verb, step, "ann"
	return ev
}

// result makes the result of a command.
func (w *world) result(work edda.Work, outcome edda.Outcome) edda.Event {
	ev := w.to(edda.KindResult, work.From.Correlation)
	ev.Type, ev.Step, ev.CommandID, ev.Outcome, ev.Payload = work.Name, work.Step, work.ID, outcome, json.RawMessage(`{"html": "<&>"}`)
	return ev
}

// give publishes events and waits until they are applied.
func (w *world) give(events ...edda.Event) {
	for _, ev := range events {
		w.log.publish(ev)
	}
	w.settle()
}

// giveBatch publishes events in one message, and waits until they are applied.
func (w *world) giveBatch(events ...edda.Event) {
	for i := range events {
		events[i].Member, events[i].More = i+1, i < len(events)-1
	}
	w.give(events...)
}

// settle waits until every published event is durable.
func (w *world) settle() {
	w.t.Helper()
	w.log.mu.Lock()
	want := map[string]uint64{}
	for name, c := range w.log.last {
		want[name] = c.Seq
	}
	w.log.mu.Unlock()
	w.until("the engine is at the end of the streams", func() bool {
		positions := w.engine.Info().Positions
		n := 0
		for _, p := range positions {
			if p.Seq >= want[p.Stream] {
				n++
			}
		}
		return n >= len(want)
	})
}

// patience bounds the wait for a condition on a busy machine.
const patience = 5 * time.Minute

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	testkit.Until(w.t, patience, what, ok)
}

// fire wakes the instances that are due by the clock of the test.
func (w *world) fire() {
	w.t.Helper()
	for {
		rows, _, err := w.db.Due(w.now, engine.MaxRows)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(rows) == 0 {
			return
		}
		if err := w.engine.Wake(context.Background(), rows); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) later(d time.Duration) {
	w.now = w.now.Add(d)
	w.clock.Store(w.now.UnixNano())
}

// outbox returns the rows that wait to go out.
func (w *world) outbox() []store.Row {
	w.t.Helper()
	rows, err := w.db.Outbox(ulid.ULID{}, 1_000_000)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// state is everything that the store holds of the keys of both sagas, with their due rows.
func (w *world) state() map[string]string {
	w.t.Helper()
	v, err := w.db.View()
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Close()
	out := map[string]string{}
	for _, name := range []string{"order", "watch"} {
		err := v.Keys(tenant, name, edda.Key{}, func(k edda.Key) bool {
			cell, err := v.Cell(k)
			if err != nil {
				w.t.Fatal(err)
			}
			raw, err := store.CellBytes(cell)
			if err != nil {
				w.t.Fatal(err)
			}
			out[k.String()] = string(raw)
			return true
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	rows, _, err := w.db.Due(time.Now().Add(10_000*time.Hour), 1_000_000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range rows {
		out["due "+r.Time.String()+" "+r.Key.String()] = ""
	}
	return out
}

func (w *world) sameState(was map[string]string) {
	w.t.Helper()
	now := w.state()
	for k, v := range was {
		if now[k] != v {
			w.t.Errorf("%s was\n%s\nand is\n%s", k, v, now[k])
			return
		}
	}
	if len(now) != len(was) {
		w.t.Errorf("there were %d rows, and there are %d", len(was), len(now))
	}
}

// replay runs one replay to its end.
func (w *world) replay(q Request) Report {
	w.t.Helper()
	if q.Tenant == "" {
		q.Tenant = tenant
	}
	if q.Saga == "" {
		q.Saga = "order"
	}
	began, err := w.replayer.Begin(context.Background(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.ended(began.ID)
}

// newest is the id of the replay that was begun last.
func (w *world) newest() string {
	all, err := w.replayer.Reports()
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[0].ID
}

// report returns the progress of a replay.
func (w *world) report(id string) Report {
	w.t.Helper()
	all, err := w.replayer.Reports()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range all {
		if r.ID == id {
			return r
		}
	}
	return Report{Replay: store.Replay{State: StateRunning}} // not loaded yet
}

// rows counts the history rows of the order saga.
func (w *world) rows() (n int) {
	w.t.Helper()
	v, err := w.db.View()
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Close()
	if err := v.Keys(tenant, "order", edda.Key{}, func(k edda.Key) bool {
		size, _, err := v.HistorySize(k)
		if err != nil {
			w.t.Fatal(err)
		}
		n += size
		return true
	}); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) ended(id string) (found Report) {
	w.t.Helper()
	w.until("the replay ends", func() bool {
		found = w.report(id)
		return found.State != StateRunning
	})
	if found.State != StateDone {
		w.t.Fatalf("it ended as %s: %s", found.State, found.Error)
	}
	return found
}

func (w *world) stateOf(id string) string {
	w.t.Helper()
	cell := testkit.Cell(w.t, w.db, w.key(id))
	if cell.Instance == nil {
		w.t.Fatalf("%s: there is no instance", id)
	}
	return string(cell.Instance.State)
}

// check fails the test if the store is inconsistent.
func (w *world) check() {
	w.t.Helper()
	var all bytes.Buffer
	for _, err := range w.db.Check(context.Background()) {
		fmt.Fprintln(&all, err)
	}
	if all.Len() > 0 {
		w.t.Error(all.String())
	}
}

func TestFakeLogIsASource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, before []edda.Event, test func(*testing.T, sourcetest.Fixture)) {
		synctest.Test(t, func(t *testing.T) {
			l := newLog()
			put := func(ev edda.Event) edda.Checkpoint {
				ev = l.publish(ev)
				return edda.Checkpoint{Stream: ev.Stream, Seq: ev.Seq}
			}
			for _, ev := range before {
				put(ev)
			}
			test(t, sourcetest.Fixture{Source: l, Store: put})
		})
	})
}
