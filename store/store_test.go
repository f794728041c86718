package store

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/wal"
)

// noon is the commit clock of most tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// opened is a store with its committer running; stop ends both.
type opened struct {
	*DB
	stop  func()
	leave func() // stop by Leave
}

func open(t testing.TB, dir string, o Options) *opened {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return noon }
	}
	if o.initialMap == 0 {
		o.initialMap = 1 << 20
	}
	db, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return running(t, db)
}

// running runs the committer of a store.
func running(t testing.TB, db *DB) *opened {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	stopped := false
	end := func(by func() error) {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := by(); err != nil {
			t.Error(err)
		}
	}
	stop := func() { end(db.Close) }
	t.Cleanup(stop)
	return &opened{DB: db, stop: stop, leave: func() { end(db.Leave) }}
}

func (o *opened) commit(t testing.TB, c Change) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := o.Commit(ctx, c); err != nil {
		t.Fatal(err)
	}
}

// begun commits the first or a later transition of a key.
func (o *opened) begun(t *testing.T, k edda.Key, revision uint64) {
	t.Helper()
	o.commit(t, Change{Transitions: []edda.Transition{step(k, revision)}})
}

// flush brings all rows into their buckets, for a test that looks there.
func (o *opened) flush(t testing.TB) {
	t.Helper()
	if err := o.file.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (o *opened) check(t testing.TB) {
	t.Helper()
	for _, err := range o.examine(context.Background(), nil, true).Findings {
		t.Error(err)
	}
}

func (o *opened) cell(t testing.TB, k edda.Key) edda.Cell {
	t.Helper()
	v, err := o.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	cell, err := v.Cell(k)
	if err != nil {
		t.Fatal(err)
	}
	return cell
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return // a comparison byte by byte takes a thousand times as long
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func key(correlation string) edda.Key {
	return edda.Key{Tenant: "acme", Saga: "order", Correlation: correlation}
}

func instance(k edda.Key, revision uint64) *edda.Instance {
	return &edda.Instance{
		Key: k, Version: 1, Hash: "h", Generation: 1, Status: edda.StatusRunning, Revision: revision,
		State:   json.RawMessage(fmt.Sprintf(`{"html":"<&>","n":9007199254740993,"revision":%d}`, revision)),
		Started: noon, Updated: noon.Add(time.Duration(revision)), Recent: []string{"e1"},
	}
}

func event(id string) edda.Event {
	return edda.Event{Kind: edda.KindEvent, ID: id, Tenant: "acme", Type: "Order.Placed", Time: noon, Payload: json.RawMessage(`{"a":1}`)}
}

func effect(k edda.Key, id string) edda.Work {
	return edda.Work{ID: id, Kind: edda.WorkEffect, From: k, Name: "charge", Payload: json.RawMessage(`{"amount":12345678901234567}`), Time: noon}
}

func step(k edda.Key, revision uint64) edda.Transition {
	return edda.Transition{
		Key: k, Event: event(fmt.Sprint("e", revision)), Fate: edda.FateHandled,
		Handlers: []string{"Order.Placed"}, Instance: instance(k, revision),
		Outputs: []edda.Output{{Word: "effect", Name: "charge"}},
	}
}

func TestInstanceSurvivesReopen(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	one := step(key("1"), 1)
	one.Work = []edda.Work{effect(key("1"), "c1"), {ID: "f1", Kind: edda.WorkFact, From: key("1"), Name: "Paid", Time: noon}}
	one.Arm = []time.Time{noon.Add(time.Hour)}
	one.Instance.Armed = noon.Add(time.Hour)
	db.commit(t, Change{Transitions: []edda.Transition{one}})
	id := db.ID()
	db.check(t)
	db.stop()

	db = open(t, dir, Options{})
	db.check(t)
	same(t, "store id", db.ID(), id)
	same(t, "cell", db.cell(t, key("1")), edda.Cell{Key: key("1"), Instance: one.Instance})
	rows := must(db.Outbox(ulid.ULID{}, 10))
	same(t, "work", []edda.Work{rows[0].Work, rows[1].Work}, one.Work)
	work, ok := db.Waiting("c1")
	same(t, "waiting", ok, true)
	same(t, "waiting work", work, one.Work[0])
	if _, ok := db.Waiting("f1"); ok {
		t.Error("a fact waits for nothing")
	}
	n, oldest := db.OutboxSize()
	same(t, "outbox size", n, 2)
	same(t, "oldest", oldest, noon)
	same(t, "counts", db.Counts(), []Count{{Tenant: "acme", Saga: "order", Version: 1, Status: edda.StatusRunning, N: 1}})
}

// working is a step that emits one effect command.
func working(correlation string, revision uint64, command string) edda.Transition {
	t := step(key(correlation), revision)
	t.Work = []edda.Work{effect(t.Key, command)}
	return t
}

// dump is every row of the file in readable form.
func dump(t testing.TB, db *DB) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := db.file.View(func(tx *wal.Tx) error {
		return tx.ForEach(func(name []byte, b *wal.Bucket) error { return dumpBucket(out, string(name), b) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func dumpBucket(out map[string]string, path string, b *wal.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		at := fmt.Sprintf("%s/%q", path, k)
		if v == nil {
			return dumpBucket(out, at, b.Bucket(k))
		}
		out[at] = fmt.Sprintf("%q", v)
		return nil
	})
}

// owners are those that have rows.
func owners(x *index) map[string]string {
	out := map[string]string{}
	for k, o := range x.owners {
		if *o != (rowCounts{}) {
			out[k.Tenant+" "+k.Saga] = fmt.Sprint(*o)
		}
	}
	return out
}

// checkIndex compares what is kept in memory with what a restart would read.
// The committer must be idle.
func checkIndex(t testing.TB, db *DB) {
	t.Helper()
	err := db.file.View(func(tx *wal.Tx) error {
		x, err := db.loadIndex(tx)
		if err != nil {
			return err
		}
		same(t, "waiting in memory", db.index.waiting, x.waiting)
		same(t, "effects in memory", db.index.effects, x.effects)
		same(t, "counters in memory", db.index.counts, x.counts)
		same(t, "owners in memory", owners(db.index), owners(x))
		same(t, "queues in memory", db.index.queues, x.queues)
		same(t, "outbox size in memory", db.index.total, x.total)
		same(t, "parked in memory", db.index.parked, x.parked)
		same(t, "oldest in memory", db.index.oldest, x.oldest)
		same(t, "stamp in memory", db.stamp, stampOf(tx))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
