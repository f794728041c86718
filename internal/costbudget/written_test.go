//go:build linux && !race

package costbudget

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"edda"
	"edda/saga"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
	"edda/stream/wire"
)

// load is how orders come to the store.
type load struct {
	name      string
	under     int // orders under way at once
	each      int // of their changes that share a commit
	warm, run int // orders before those that are counted, and these, at least
	// whole begins and ends where the log was folded, so that as much is counted of
	// what is folded as of what is to be.
	whole bool
}

// loads are as the workload W1 was seen to commit: the changes of nine orders in a
// commit at full load, and every change by itself where an order is alone. Whoever
// wants what is folded of orders that are alone asks for a thousand of them: -orders 8.
func loads() []load {
	return []load{
		{"an order at full load", 512, 104, 2048, 2048 * *orders, true},
		{"an order alone", 1, 1, 32, 128 * *orders, false},
	}
}

var orders = flag.Int("orders", 1, "how many times as many orders are counted")

// tries bounds how often a load is counted.
const tries = 5

// wrote is what orders cost the store.
type wrote struct {
	load
	put     map[string][2]int // bytes of keys and values in the log, by keyspace
	rows    map[string]int
	orders  float64
	commits int
	did     store.Written
	total   int64 // that the process handed to the kernel
}

// counted takes orders through the store, and complains unless the log's bytes are those
// of the records that were read in it. What else the process writes meanwhile is counted,
// too: so it does so until the least came twice, but for a hundredth.
func (l load) counted(t *testing.T) map[string]float64 {
	w := l.through(t)
	for range tries - 1 {
		again := l.through(t)
		same := max(again.total, w.total)-min(again.total, w.total) < w.total/100
		if again.total < w.total {
			w = again
		}
		if same {
			break
		}
	}
	w.print(t)
	n := w.orders
	return map[string]float64{"written-B/op": rounded(float64(w.total) / n), "log-B/op": rounded(float64(w.did.Logged) / n), "fsyncs/op": rounded(float64(w.did.Syncs) / n)}
}

// print shows all that was counted, with -v.
func (w *wrote) print(tb testing.TB) {
	n, raw := w.orders, 0
	for _, space := range slices.Sorted(maps.Keys(w.put)) {
		kv := w.put[space]
		raw += kv[0] + kv[1]
		tb.Logf("%-22s %6.2f rows, %6.0f bytes of keys, %6.0f of values", space, float64(w.rows[space])/n, float64(kv[0])/n, float64(kv[1])/n)
	}
	tb.Logf("%-22s %6.0f bytes, as records %.0f", "all rows", float64(raw)/n, float64(w.did.Logged)/n)
	tb.Logf("%-22s %6.0f bytes", "room in the log", float64(w.did.LogBytes-w.did.Logged)/n)
	tb.Logf("%-22s %6.0f bytes of %d tables", "folded into pages", float64(uint64(w.total)-w.did.LogBytes)/n, w.did.Folded)
	tb.Logf("%-22s %6.0f bytes in %.3f commits, with %.3f syncs", "all", float64(w.total)/n, float64(w.commits)/n, float64(w.did.Syncs)/n)
}

// inStreams is what the messages of an order take in the files of the embedded server's
// streams, by stream. The client's is as small as it may be.
func inStreams(t *testing.T, n int) map[string]float64 {
	dir := t.TempDir()
	server, err := kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, js, err := kv.Connect(kv.Connection{Server: server.Server()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := stream.EnsureStreams(t.Context(), js, stream.StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	set := program(t)
	for i := range n {
		for _, m := range messages(t, set, i) {
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	server.Close() // writes what it has not yet
	return blocks(t, dir, n)
}

// messages are those of one order: its own, a command and a result of each effect,
// and the fact that it ended.
func messages(t *testing.T, set *saga.Set, i int) []*nats.Msg {
	first := numbered(i)
	all := []*nats.Msg{{Subject: first.Subject, Data: first.Data}}
	for _, made := range tellOf(t, set, first.Subject, first).made {
		for _, w := range made.Work {
			m, err := wire.Codec{}.Work(w)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
			if w.Kind == edda.WorkEffect {
				r := resultMessage(t, w)
				all = append(all, &nats.Msg{Subject: r.Subject, Header: r.Header, Data: r.Data})
			}
		}
	}
	return all
}

func blocks(t *testing.T, dir string, n int) map[string]float64 {
	out := map[string]float64{}
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the streams have no files: %v", err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(filepath.Dir(filepath.Dir(f)))+"-B/op"] += rounded(float64(info.Size()) / float64(n))
	}
	return out
}

// steps are the changes of one order: four transitions, a claim of each effect and what
// came of it, and that its fact was delivered.
const steps = 4 + 3*2 + 1

// line is an order on its way through the store: what is to be changed next.
type line struct {
	key  edda.Key
	todo []store.Change
}

// through takes orders through a store, in commits that are the same every time.
func (l load) through(tb testing.TB) *wrote {
	dir := tb.TempDir()
	db := openedAt(tb, dir)
	log := watchLog(tb, filepath.Join(dir, store.FileName))
	r := &runner{tb: tb, db: db, set: program(tb), load: l, committed: func() {
		log.records(func(string, byte, []byte, []byte) {})
	}}
	r.orders(l.warm)
	w := &wrote{load: l, put: map[string][2]int{}, rows: map[string]int{}}
	before := db.Written()
	logged := 0
	r.committed = func() {
		w.commits++
		logged += log.records(func(space string, _ byte, key, value []byte) {
			kv := w.put[space]
			w.put[space] = [2]int{kv[0] + len(key), kv[1] + len(value)}
			w.rows[space]++
		})
	}
	w.total = -written(tb)
	w.orders = r.orders(l.run)
	w.total += written(tb)
	w.did = db.Written()
	w.did.Syncs, w.did.Logged, w.did.LogBytes, w.did.Folded = w.did.Syncs-before.Syncs, w.did.Logged-before.Logged, w.did.LogBytes-before.LogBytes, w.did.Folded-before.Folded
	if uint64(logged) != w.did.Logged {
		tb.Errorf("%d bytes of records were seen, and the store wrote %d", logged, w.did.Logged)
	}
	return w
}

// openedAt is a store whose clock goes on by a millisecond with every commit.
func openedAt(tb testing.TB, dir string) *store.DB {
	tb.Helper()
	var tick atomic.Int64
	db, err := store.Open(dir, store.Options{Now: func() time.Time { return noon.Add(time.Duration(tick.Add(1)) * time.Millisecond) }})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, db.Close()); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// runner takes orders through a store, one commit at a time.
type runner struct {
	tb    testing.TB
	db    *store.DB
	set   *saga.Set
	load  load
	begun int
	lines []*line
	seen  ulid.ULID                // the last row of the outbox that was looked at
	sent  map[edda.Key][]ulid.ULID // rows to be delivered
	// committed is called after each commit.
	committed func()
}

// orders takes as many to their end, with as many under way at once as the load says,
// and where it says so goes on until a table was folded. It tells how many it were, by
// their steps.
func (r *runner) orders(n int) float64 {
	ended, taken := 0, 0
	for tables := r.db.Written().Folded; ended < n || r.load.whole && r.db.Written().Folded == tables; {
		if ended < n {
			tables = r.db.Written().Folded
		}
		for range r.load.each/steps + 1 { // so many end in a commit: they do not begin together, nor end
			if len(r.lines) < r.load.under {
				r.lines = append(r.lines, r.begin())
			}
		}
		next := r.lines[:min(r.load.each, len(r.lines))]
		rest := slices.Clone(r.lines[len(next):])
		taken += len(next)
		var c store.Change
		for _, o := range next {
			r.join(&c, o)
			if len(o.todo) == 0 {
				ended++
				continue
			}
			rest = append(rest, o)
		}
		r.lines = rest
		commit(r.tb, r.db, c)
		r.look()
		folded(r.tb, r.db)
		r.committed()
	}
	return float64(taken) / steps
}

// begin is the next order.
func (r *runner) begin() *line {
	i := r.begun
	r.begun++
	m := numbered(i)
	s := tellOf(r.tb, r.set, m.Subject, m)
	o := &line{key: s.last.Key}
	for j, t := range s.made {
		ev := s.events[j]
		o.todo = append(o.todo, store.Change{Transitions: []edda.Transition{t}, Checkpoints: []edda.Checkpoint{{Stream: ev.Stream, Seq: ev.Seq, Time: ev.Time, Created: noon}}})
		for _, w := range t.Work {
			if w.Kind == edda.WorkEffect {
				o.todo = append(o.todo, claimed(w)...)
			}
		}
	}
	o.todo = append(o.todo, store.Change{}) // its fact was delivered
	return o
}

// apart is how far orders are from one another: so that of those under way at full load
// the first has its last result, a second after each command, when the last is placed.
const apart = 6 * time.Millisecond

// numbered is the message of an order as W1 sends them: ids and times ascend.
func numbered(i int) wire.Message {
	m := placed(fmt.Sprintf("W1-%07d", i))
	m.Seq, m.Time = uint64(i+1), noon.Add(time.Duration(i)*apart)
	return m
}

// claimed is a command on its way through the ledger.
func claimed(w edda.Work) []store.Change {
	c := edda.Claim{Tenant: w.From.Tenant, CommandID: w.ID, Effect: w.Name, Owner: "a-host-4711-01KB0Q4M7T", Claimed: w.Time.Add(time.Millisecond)}
	done := c
	r := resultOf(w)
	done.Done, done.Outcome, done.Result, done.Attempts, done.Finished = true, r.Outcome, r.Payload, 1, w.Time.Add(2*time.Millisecond)
	return []store.Change{{Claims: []edda.Claim{c}}, {Claims: []edda.Claim{done}}}
}

// join adds the next change of an order to those that share a commit.
func (r *runner) join(c *store.Change, o *line) {
	next := o.todo[0]
	o.todo = o.todo[1:]
	c.Transitions = append(c.Transitions, next.Transitions...)
	c.Claims = append(c.Claims, next.Claims...)
	for _, p := range next.Checkpoints {
		c.Checkpoints = append(slices.DeleteFunc(c.Checkpoints, func(x edda.Checkpoint) bool { return x.Stream == p.Stream }), p)
	}
	if len(o.todo) == 0 {
		c.Delivered = append(c.Delivered, r.sent[o.key]...)
		delete(r.sent, o.key)
	}
}

// look notes what the last commit put into the outbox to be delivered.
func (r *runner) look() {
	if r.sent == nil {
		r.sent = map[edda.Key][]ulid.ULID{}
	}
	for {
		rows, err := r.db.Outbox(r.seen, 1024)
		if err != nil {
			r.tb.Fatal(err)
		}
		for _, row := range rows {
			r.seen = row.ID
			if row.Work.Kind != edda.WorkEffect {
				r.sent[row.Work.From] = append(r.sent[row.Work.From], row.ID)
			}
		}
		if len(rows) == 0 {
			return
		}
	}
}
