//go:build !race

package standby_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"edda/internal/testkit"
	"edda/store"
	"edda/store/wal"
)

const (
	// simFaults is how long faults happen.
	simFaults = 45 * time.Second
	// simHeals is how long the cluster may need after the last fault.
	simHeals = 60 * time.Second
	// departsWithin is how long nobody may own the store after the owner has left without a hand-over.
	departsWithin = 20 * time.Second
)

// plan is how much goes wrong in one run, in percent and times.
type plan struct {
	calm       bool // nothing happens to the owner
	latency    time.Duration
	lost       int // sends that never arrive
	late       int // sends that arrive late
	lateMost   time.Duration
	twice      int // sends that arrive twice
	lostAnswer int
	stale      int // looks that show an older end
	lags       int // reads that are behind
	lagMost    time.Duration
	gaps       int           // messages that a reader misses first
	every      time.Duration // mean time between two faults
}

func drawPlan(r *rand.Rand) plan {
	of := func(n ...int) int { return n[r.IntN(len(n))] }
	return plan{
		calm: r.IntN(5) == 0, latency: time.Duration(of(2, 20, 120)) * time.Millisecond,
		lost: of(0, 0, 5, 20), late: of(0, 0, 5, 20), lateMost: time.Duration(of(2, 15, 120)) * time.Second,
		twice: of(0, 10, 30), lostAnswer: of(0, 0, 5, 20), stale: of(0, 0, 10, 30),
		lags: of(0, 5, 20), lagMost: time.Duration(of(1, 6)) * time.Second, gaps: of(0, 5),
		every: time.Duration(of(1, 3, 8)) * time.Second,
	}
}

// world is a cluster of three nodes in one bubble.
type world struct {
	t      *testing.T
	seed   uint64
	dir    string
	began  time.Time
	plan   plan
	stored *stored
	table  *simTable
	dying  chan *life // a process has come to a point at which it dies
	quiet  atomic.Bool
	cut    atomic.Bool // the log has lost its end
	rows   atomic.Int64
	stays  atomic.Int64
	traced bool

	mu      sync.Mutex // guards the fields below
	lives   map[string]*life
	started int
	answers []string
	failed  bool
	trace   []string
	took    int // deliveries
}

func (w *world) since() time.Duration { return time.Since(w.began) }
func (w *world) number() int64        { return w.stays.Add(1) }
func (w *world) row() string          { return strconv.FormatInt(w.rows.Add(1), 10) }

func (w *world) dice(name string) *dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return &dice{r: rand.New(rand.NewPCG(w.seed, h.Sum64()))}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%9.3f ", w.since().Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.note("FAILS: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
}

func (w *world) answered(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, id)
}

func (w *world) life(node string) *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives[node]
}

func (w *world) all() (out []*life) {
	for _, n := range simNodes {
		if l := w.life(n); l != nil {
			out = append(out, l)
		}
	}
	return out
}

// delivers checks that no other node may act now.
func (w *world) delivers(l *life) {
	w.mu.Lock()
	w.took++
	w.mu.Unlock()
	for _, o := range w.all() {
		if o != l && o.acts() {
			w.fail("%s delivers while %s may, too", l.node, o.node)
		}
	}
}

var simNodes = []string{"a", "b", "c"}

// Write makes the world a log file of its nodes.
func (w *world) Write(p []byte) (int, error) {
	w.note("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

func (w *world) logger(node string) *zap.Logger {
	if !w.traced {
		return zap.NewNop()
	}
	c := zap.NewDevelopmentEncoderConfig()
	c.TimeKey = ""
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(c), zapcore.AddSync(w), zap.InfoLevel)).Named(node)
}

// start starts a process of a node. Its folder is as the last process left it, or empty.
func (w *world) start(node string, wipe bool) {
	w.mu.Lock()
	old := w.lives[node]
	w.started++
	l := &life{
		w: w, node: node, n: w.started, dir: filepath.Join(w.dir, fmt.Sprintf("%s%d", node, w.started)), log: w.logger(node), wiped: wipe,
		dead: make(chan struct{}), ended: make(chan struct{}), moves: make(chan string, 1), busy: make(chan struct{}, 1),
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	w.mu.Unlock()
	if old != nil {
		l.wiped = l.wiped || old.wiped && !old.copies.Load()
		if !wipe {
			l.copies.Store(old.copies.Load())
			l.dir = old.dir
		}
	}
	w.mu.Lock()
	w.lives[node] = l
	w.mu.Unlock()
	w.note("%s starts", node)
	go func() {
		defer close(l.ended)
		err := l.run()
		switch {
		case err == nil || l.ctx.Err() != nil || l.isDead():
		case w.cut.Load(): // it says that the log has lost records, or that it is not sound
			w.note("%s ends: %v", node, err)
		default:
			w.fail("%s ends: %v", node, err)
		}
	}()
}

// kill ends a process. Its folder is as it is at this moment.
func (w *world) kill(l *life) {
	synctest.Wait() // so nobody writes to the folder
	to := filepath.Join(w.dir, fmt.Sprintf("%s%dkilled", l.node, l.n))
	if _, err := os.Stat(l.dir); err == nil {
		if err := os.CopyFS(to, os.DirFS(l.dir)); err != nil {
			w.fail("copy a folder: %v", err)
		}
	}
	close(l.dead)
	l.stop()
	<-l.ended
	_ = os.RemoveAll(l.dir)
	l.dir = to
	w.note("%s is killed", l.node)
}

// owner returns the process that owns the store, or nil.
func (w *world) owner() *life {
	for _, l := range w.all() {
		l.mu.Lock()
		owns := l.running && !l.isDead() && l.shipper.Err() == nil
		l.mu.Unlock()
		if owns {
			return l
		}
	}
	return nil
}

// chaos injects the faults of a run.
type chaos struct {
	*world
	d     *dice
	again map[string]time.Time // when a node starts again
	wipes map[string]bool
}

// wait lets time pass. Processes die and start meanwhile.
func (c *chaos) wait(d time.Duration) {
	for until := time.Now().Add(d); ; {
		next := until
		for _, at := range c.again {
			if at.Before(next) {
				next = at
			}
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case l := <-c.dying:
			c.note("%s has come to the point: %s", l.node, l.armed)
			c.kill(l)
			c.restarts(l)
		case <-timer.C:
		}
		timer.Stop()
		for _, node := range simNodes {
			if at, ok := c.again[node]; ok && !time.Now().Before(at) {
				delete(c.again, node)
				c.start(node, c.wipes[node])
			}
		}
		if !time.Now().Before(until) {
			return
		}
	}
}

func (c *chaos) restarts(l *life) {
	c.again[l.node] = time.Now().Add(c.d.between(10*time.Millisecond, 8*time.Second))
	c.wipes[l.node] = c.d.percent(15) && c.anotherCopy(l)
}

// anotherCopy reports whether the store is not lost with a folder.
func (c *chaos) anotherCopy(than *life) bool {
	for _, l := range c.all() {
		if l != than && l.copies.Load() && !c.wipes[l.node] {
			return true
		}
	}
	return false
}

func (c *chaos) fault() {
	l := c.all()[c.d.n(len(c.all()))]
	kind := c.d.n(11)
	if kind == 0 {
		d := c.d.between(4*time.Second, 9*time.Second)
		c.note("the log has no leader for %s", d)
		c.stored.elect(d)
		return
	}
	if kind == 1 {
		d := c.d.between(4*time.Second, 9*time.Second)
		c.note("the table has no leader for %s", d)
		c.table.elect(d)
		return
	}
	if _, down := c.again[l.node]; down || c.plan.calm && l.node == "a" {
		return
	}
	d := c.d.between(time.Second, 20*time.Second)
	switch kind {
	case 2, 3:
		c.note("%s is frozen for %s", l.node, d)
		l.freeze(d)
	case 4, 5:
		c.kill(l)
		c.restarts(l)
	case 6:
		points := []string{"own is sent", "own is stored", "log has it", "disk has it"}
		l.mu.Lock()
		l.armed = points[c.d.n(len(points))]
		l.mu.Unlock()
	case 7:
		c.note("the beats of %s are lost for %s", l.node, d)
		l.mu.Lock()
		l.mute = time.Now().Add(d)
		l.mu.Unlock()
	case 8:
		c.note("the watch of %s is behind for %s", l.node, d)
		l.mu.Lock()
		l.deaf = time.Now().Add(d)
		l.mu.Unlock()
	case 9:
		if o := c.owner(); o != nil && !c.plan.calm {
			c.note("%s hands over", o.node)
			select {
			case o.moves <- []string{"", "a", "b", "c"}[c.d.n(4)]:
			default:
			}
		}
	case 10:
		c.note("%s is asked to stop", l.node)
		l.stop()
		c.again[l.node] = time.Now() // it waits for the end
		timer := time.AfterFunc(30*time.Second, func() { c.fail("%s does not stop", l.node) })
		for stopped := false; !stopped; {
			select {
			case <-l.ended:
				stopped = true
			case o := <-c.dying:
				c.kill(o)
				if o != l {
					c.restarts(o)
				}
			}
		}
		timer.Stop()
		c.restarts(l)
	}
}

// heal ends all faults.
func (c *chaos) heal() {
	for _, l := range c.all() {
		l.mu.Lock()
		l.armed, l.mute, l.deaf = "", time.Time{}, time.Time{}
		l.mu.Unlock()
	}
	c.plan.stale, c.plan.lost, c.plan.lostAnswer, c.plan.late, c.plan.lags = 0, 0, 0, 0, 0
	c.wait(20 * time.Second) // all are awake and started
	for c.stored.underWay(0) > 0 {
		c.wait(time.Second)
	}
	c.note("the last fault is over")
}

// settled reports whether one node owns the store, commits, and the others have all of it.
func (w *world) settled() (owner *life, at wal.Point, why string) {
	if owner = w.owner(); owner == nil {
		return nil, at, "nobody owns the store"
	}
	owner.mu.Lock()
	at = owner.db.Point()
	owner.mu.Unlock()
	for _, l := range w.all() {
		l.mu.Lock()
		r := l.replica
		l.mu.Unlock()
		if l != owner && (r == nil || r.Point() != at) {
			return owner, at, l.node + " does not have all transactions"
		}
	}
	return owner, at, ""
}

// check compares the stores with what was answered.
func (c *chaos) check() {
	commits := func() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.answers) }
	before := commits()
	var owner *life
	var at wal.Point
	why := "nothing is answered"
	for until := time.Now().Add(simHeals); ; {
		if c.wait(500 * time.Millisecond); time.Now().After(until) {
			c.fail("not within %s: %s", simHeals, why)
			return
		}
		if commits() == before || c.owner() == nil {
			continue
		}
		c.quiet.Store(true)
		c.wait(3 * time.Second)
		if owner, at, why = c.settled(); why == "" {
			break
		}
		c.quiet.Store(false)
	}
	_, want, err := owner.db.Hash(context.Background())
	if err != nil {
		c.fail("%v", err)
	}
	for _, l := range c.all() {
		if l == owner {
			continue
		}
		if point, sum, err := l.replica.Hash(context.Background()); err != nil || point != at || sum != want {
			c.fail("%s has other rows than %s: at %+v and %+v, %v", l.node, owner.node, point, at, err)
		}
	}
	view, err := owner.db.View()
	if err != nil {
		c.fail("%v", err)
		return
	}
	defer view.Close()
	c.has(view)
	if runs := c.stored.ownerships(); c.plan.calm && len(runs) > 1 {
		c.fail("nothing happened to the owner, and the owners were %s", runs)
	}
	c.wait(0)
}

// has checks that all rows are there that were answered.
func (c *chaos) has(view *store.View) {
	for _, id := range c.answers {
		if n, whole, err := view.HistorySize(key(id)); n != 1 || !whole || err != nil {
			c.fail("row %s was answered and is there %d times: %v", id, n, err)
		}
	}
}

// departs has the owner leave for good while the log cannot take its hand-over. Another node must go on.
func (c *chaos) departs() {
	left := c.owner()
	c.note("%s leaves for good, and the log has no leader", left.node)
	c.stored.elect(6 * time.Second)
	for _, l := range c.all() {
		l.mu.Lock()
		l.deaf = time.Now().Add(departsWithin) // the leader of the table says it
		l.mu.Unlock()
	}
	left.stop()
	for until := time.Now().Add(departsWithin); ; c.wait(200 * time.Millisecond) {
		if o := c.owner(); o != nil && o != left {
			return
		}
		if time.Now().After(until) {
			c.fail("nobody owns the store %s after its owner has left", departsWithin)
			return
		}
	}
}

// loses has a power cut take the end of the log while a copy is behind. Some nodes are killed with it, and start again. From
// then on nothing may be committed, and the copy with the most must have all that was.
func (c *chaos) loses() {
	owner, behind := c.owner(), c.life("a")
	if owner == behind {
		behind = c.life("b")
	}
	c.kill(behind)
	c.quiet.Store(false)
	c.wait(c.d.between(time.Second, 5*time.Second))
	c.quiet.Store(true)
	c.wait(3 * time.Second) // the others have all of it, and say so
	c.cut.Store(true)
	for _, l := range c.all() {
		if l != behind && c.d.percent(60) {
			c.kill(l)
		}
		if l.isDead() {
			c.again[l.node], c.wipes[l.node] = time.Now().Add(c.d.between(time.Millisecond, 2*time.Second)), false
		}
	}
	kept := c.stored.loses(1 + c.d.n(20))
	c.note("the log has lost its end, and has %d messages", kept)
	answered := len(c.answers)
	c.quiet.Store(false)
	c.wait(40 * time.Second)
	for _, l := range c.all() {
		l.stop()
	}
	c.wait(20 * time.Second)
	most, best := uint64(0), ""
	for _, l := range c.all() {
		<-l.ended
		r, err := store.OpenReplica(l.dir, store.Options{})
		if err != nil {
			c.fail("the copy of %s: %v", l.node, err)
			return
		}
		if r.LSN() > most {
			most, best = r.LSN(), l.dir
		}
		_ = r.Close()
	}
	if len(c.answers) != answered {
		c.fail("%d rows were answered after the log had lost its end", len(c.answers)-answered)
	}
	db, err := store.Open(best, store.Options{})
	if err != nil {
		c.fail("the copy with the most: %v", err)
		return
	}
	defer db.Close()
	view, err := db.View()
	if err != nil {
		c.fail("the copy with the most: %v", err)
		return
	}
	defer view.Close()
	c.has(view)
}

// simulate runs a cluster with the faults of a seed.
func simulate(t *testing.T, seed uint64, dir string, traced bool) (w *world) {
	synctest.Test(t, func(t *testing.T) {
		w = &world{t: t, seed: seed, dir: dir, began: time.Now(), table: newSimTable(), dying: make(chan *life), lives: map[string]*life{}, traced: traced}
		w.plan = drawPlan(rand.New(rand.NewPCG(seed, 0)))
		w.stored = newStored(w)
		w.note("%+v", w.plan)
		c := &chaos{world: w, d: w.dice("chaos"), again: map[string]time.Time{}, wipes: map[string]bool{}}
		w.start("a", false)
		c.wait(5 * time.Second)
		w.start("b", true)
		w.start("c", true)
		c.wait(c.d.between(0, 8*time.Second))
		for until := time.Now().Add(simFaults); time.Now().Before(until); {
			c.wait(c.d.between(0, 2*w.plan.every))
			c.fault()
		}
		c.heal()
		c.check()
		if dice := c.d.n(4); !w.failed && dice == 1 {
			c.loses()
		} else if !w.failed && dice == 0 {
			c.departs()
		}
		for _, l := range w.all() {
			if l.stop(); w.failed { // whatever it waits for
				select {
				case <-l.ended:
				case <-l.dead:
				case <-time.After(30 * time.Second):
					close(l.dead)
				}
			}
			<-l.ended
		}
	})
	return w
}

// seeds returns the seeds that EDDA_SIM_SEEDS names, as 20 for the first twenty, or as 17-17 for one.
func seeds(t *testing.T, n uint64) (from, to uint64) {
	text := os.Getenv("EDDA_SIM_SEEDS")
	if text == "" {
		return 1, n
	}
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		first, last = "1", text
	}
	var err error
	if from, err = strconv.ParseUint(first, 10, 64); err == nil {
		to, err = strconv.ParseUint(last, 10, 64)
	}
	testkit.Must(t, err)
	return from, to
}

// TestAClusterUnderFaults simulates clusters. Each seed is one cluster with its faults.
func TestAClusterUnderFaults(t *testing.T) {
	from, to := seeds(t, 1000)
	was := debug.SetGCPercent(400) // a fifth less time: each cluster makes much garbage and keeps little
	t.Cleanup(func() { debug.SetGCPercent(was) })
	base := ""
	if _, err := os.Stat("/dev/shm"); err == nil {
		base = "/dev/shm"
	}
	base, err := os.MkdirTemp(base, "edda-sim")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	next := atomic.Uint64{}
	next.Store(from)
	var rows, owners, delivered atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for worker := range 2 {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed <= to; seed = next.Add(1) - 1 {
					dir := filepath.Join(base, strconv.FormatUint(seed, 10))
					w := simulate(t, seed, dir, from == to)
					if w.failed || from == to && testing.Verbose() {
						t.Logf("EDDA_SIM_SEEDS=%d-%d:\n%s", seed, seed, strings.Join(w.trace, "\n"))
					}
					if w.failed {
						t.Errorf("seed %d fails", seed)
					}
					rows.Add(int64(len(w.answers)))
					owners.Add(int64(len(w.stored.owners)))
					delivered.Add(int64(w.took))
					_ = os.RemoveAll(dir)
				}
			})
		}
	})
	t.Logf("%d seeds: %d answered rows, %d ownerships, %d deliveries", to-from+1, rows.Load(), owners.Load(), delivered.Load())
}
