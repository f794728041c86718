//go:build !race

package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/saga"
	"edda/server"
	"edda/store"
	"edda/store/wal"
	"edda/stream/kv"
	"edda/stream/wire"
)

// The sizes of the torture: a short round for every run of the tests, a long one
// where EDDA_CRASH_KILLS says so (make crash).
const (
	shortKills    = 60
	ordersPerKill = 20 // one of each lot
	// tortureLife bounds a life whose failpoint is not reached: it is then killed
	// where it happens to be.
	tortureLife = 4 * time.Second
	// tortureWithin is for everything to end once the last was sent.
	tortureWithin = 90 * time.Second
	// randomEvery is how often a kill is at no named point.
	randomEvery = 4
	// natsEvery is how often NATS dies with it: one of the kills at random.
	natsEvery = 3 * randomEvery
)

// points are where the torture kills: between every two steps of the straight
// line, and inside the transaction.
var points = []string{
	"engineFetched", "engineEvaluated", "engineSubmitted",
	"storeFilled", "logFolded", "logSettled", "logMade", "logBegun", "logWritten", "logSynced", "logTurned",
	"foldChunked", "foldKept", "foldDropping", "foldCommitted", "foldFinished", "beforeBucketPut", "beforeSyncDataPages", "beforeWriteMetaError", "beforeSyncMetaPage", "storeCommitted",
	"engineCommitted",
	"outboxRead", "outboxPublished", "outboxBeforeMark", "outboxMarked",
	"schedulerDue", "schedulerFired",
	"effectBeforeClaim", "effectClaimed", "effectCalled", "effectRecorded", "effectPublished", "effectAcked",
	"effectHanded", "effectAnswered", "engineHanded", "copyRead",
	// What operators do meanwhile; see acts.
	"compactCopied", "compactCaughtUp", "compactSynced", "compactRenamed", "compactTaken",
	"retentionClocked", "retentionFound", "retentionRemoved",
	"replayBegun", "replayRound", "replayBuilt", "engineExchanged", "replayExchanged", "replayDone", "replayRecorded",
	"letterActed", "letterTaken", "letterResent", "letterBeforeMark", "letterMarked",
	"backupAudited",
}

// pointsOfAStart are passed with the first commit of a life, and hardly again.
var pointsOfAStart = []string{"logFolded", "logSettled", "logMade", "logBegun"}

// kill is one entry of the plan: at a point, when it was passed so often; or, at
// no point, after a time, and perhaps together with NATS.
type kill struct {
	point  string
	after  int // passes before
	wait   time.Duration
	nats   bool
	act    *act // that goes on meanwhile; nil where none has to
	apart  bool // effect commands and results go through their streams
	narrow bool
}

// terms are the failpoints of its life, besides the point.
func (k kill) terms() []string {
	if k.narrow {
		return slices.Concat(narrow, k.act.env(k.point))
	}
	return k.act.env(k.point)
}

// killPlan is the same for the same seed.
func killPlan(seed uint64, n int) []kill {
	rnd := rand.New(rand.NewPCG(seed, 1))
	plan := make([]kill, n)
	var left []string
	for i := range plan {
		if i%randomEvery == randomEvery-1 {
			plan[i] = kill{wait: time.Duration(rnd.IntN(1500)) * time.Millisecond, nats: i%natsEvery == natsEvery-1, act: anyAct(rnd), apart: wayOf(rnd, ""), narrow: rnd.IntN(2) == 0}
			continue
		}
		if len(left) == 0 {
			left = slices.Clone(points)
			rnd.Shuffle(len(left), func(a, b int) { left[a], left[b] = left[b], left[a] })
		}
		plan[i] = kill{point: left[0], after: passes(rnd, left[0]), act: actAt(left[0]), apart: wayOf(rnd, left[0]), narrow: rnd.IntN(2) == 0}
		left = left[1:]
	}
	return plan
}

// passes is how often a point is passed before it kills.
func passes(rnd *rand.Rand, point string) int {
	switch {
	case point == "beforeBucketPut": // a commit has many
		return rnd.IntN(300)
	case slices.Contains(pointsOfAStart, point):
		return 0
	case strings.HasPrefix(point, "fold"), point == "logTurned": // some few in a life
		return rnd.IntN(2)
	case actAt(point) == nil:
		return rnd.IntN(12)
	case slices.Contains(passedOften, point):
		return rnd.IntN(4)
	}
	return 0
}

// TestTortured kills the process at named points and at random moments while
// orders of every lot flow, and holds the books against an undisturbed run.
func TestTortured(t *testing.T) {
	kills := envInt(t, "EDDA_CRASH_KILLS", shortKills)
	beside(t)
	w := newTorture(t, crashSeed(t), &tortured, tortureManifest)
	w.operated, w.copied = true, true
	w.start()
	load := produce(t, w.nats.url(), rand.New(rand.NewPCG(w.seed, 2)), 4*time.Millisecond)
	w.child.kill()
	begin := time.Now()
	for i, k := range killPlan(w.seed, kills) {
		load.released <- ordersPerKill
		w.dieAt(k)
		if i%20 == 19 {
			t.Logf("%d kills in %v", i+1, time.Since(begin).Round(time.Second))
		}
	}
	w.acted(load)
	load.finish()
	w.settleAndJudge(load)
	w.report(kills, begin)
	for _, p := range points {
		if kills >= 2*len(points) && w.killed[p] == 0 && !unreached(p) {
			t.Errorf("the point %s was never reached: the torture tests less than it says", p)
		}
	}
}

// longRound tells whether this is make crash.
func longRound() bool { return os.Getenv("EDDA_CRASH_KILLS") != "" }

// beside runs the test beside others of its kind: in a short round most of the
// time is spent waiting.
func beside(t *testing.T) {
	if !longRound() {
		t.Parallel()
	}
}

func envInt(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// torture is one run: a NATS server and the product as processes, and the shop.
type torture struct {
	t            testing.TB
	seed         uint64
	build        *crashBuild
	dir          string
	data, config string
	of           int // the shards of a cluster, if it has several
	manifest     string
	addr, points string // of the product's API, and of its failpoints
	natsURL      string // as the product reaches it
	streams      string // the same, as the test reaches it
	nats         *natsServer
	mall         *mall
	shop         *tortureShop
	child        *child
	killed       map[string]int
	within       int                   // kills between two members of a batch
	completed    map[string]edda.Claim // as the killed left them
	env          []string
	ledger       *books
	operators    *operators
	operated     bool          // while events flow: what has outlived its retention goes
	life         time.Duration // of a process whose point is not reached, where that is more than tortureLife
	copied       bool          // at the end, into a backup and back
	relived      bool          // its store is put back to what it was
}

// newTorture prepares a run. Its data are kept when it fails.
func newTorture(t testing.TB, seed uint64, build *crashBuild, manifest func(url string) string) *torture {
	t.Helper()
	w := prepareTorture(t, seed, build, manifest)
	w.nats = startNATS(t, freeAddr(t), filepath.Join(w.dir, "nats"))
	w.natsURL, w.streams = w.nats.url(), w.nats.url()
	if _, err := w.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: shopStream, Subjects: shopSubjects}); err != nil {
		t.Fatal(err)
	}
	return w
}

// prepareTorture prepares all but NATS.
func prepareTorture(t testing.TB, seed uint64, build *crashBuild, manifest func(url string) string) *torture {
	t.Helper()
	dir, err := os.MkdirTemp("", "edda-torture")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the data are kept in %s", dir)
			return
		}
		_ = os.RemoveAll(dir) // it is the system's folder for such things
	})
	build.get(t)
	w := &torture{t: t, seed: seed, build: build, dir: dir, data: filepath.Join(dir, "data"), addr: freeAddr(t), points: freeAddr(t),
		mall: &mall{}, shop: newTortureShop(seed), killed: map[string]int{}, completed: map[string]edda.Claim{}}
	w.operators = newOperators(w.addr)
	w.mall.open(w.shop)
	site := httptest.NewServer(w.mall)
	t.Cleanup(site.Close)
	w.manifest = write(t, dir, "shop.yaml", manifest(site.URL))
	w.config = write(t, dir, "edda.yaml", "effects: {allow: [127.0.0.1], ack_wait: 1s}\nlog: {level: warn}\n"+shopSource)
	return w
}

// launch starts the product and does not wait for it.
func (w *torture) launch(env ...string) {
	w.t.Helper()
	env = append(append(env, "GOFAIL_HTTP="+w.points), w.env...)
	w.child = launchOf(w.t, w.build.get(w.t), env, "run", "--config", w.config, "--role", "combined", "--nats-url", w.natsURL,
		"--addr", w.addr, "--data", w.data, w.manifest)
	w.child.addr, w.child.nats, w.child.tenant = w.addr, w.streams, "default"
}

// start waits until it works.
func (w *torture) start() {
	w.t.Helper()
	w.launch(way(false))
	w.ready()
}

func (w *torture) ready() {
	w.t.Helper()
	untilIn(w.t, 2*soon, "the process is ready", func() bool {
		if testkit.Closed(w.child.Ended()) {
			w.t.Fatalf("it ended: %s%s", w.child.out, w.child.err)
		}
		_, ok := ask("http://" + w.addr + "/ready")
		return ok
	})
}

// ask reads a page; false where there is none yet.
func ask(url string) (string, bool) {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err == nil && resp.StatusCode == http.StatusOK
}

// dieAt starts the process and kills it at a point, or where it happens to be.
func (w *torture) dieAt(k kill) {
	w.t.Helper()
	if k.point == "" {
		w.launch(append(failpointsOf(k.terms()...), way(k.apart))...)
		end := w.operators.during(k.act)
		w.await(k.wait, func() bool { return false })
		w.dieAnywhere(k.nats)
		end()
		w.noteBatch()
		return
	}
	terms := `sleep("1h")`
	if k.after > 0 {
		terms = fmt.Sprintf("%d*off->%s", k.after, terms)
	}
	w.launch(append(failpointsOf(append(k.terms(), k.point+"="+terms)...), way(k.apart))...)
	end := func() {}
	if k.act != nil {
		end = w.operators.during(k.act)
	}
	reached := w.await(max(w.life, tortureLife), func() bool {
		text, _ := ask("http://" + w.points + "/" + k.point + "/count")
		n, _ := strconv.Atoi(text) // it does not answer yet
		return n > k.after
	})
	w.child.kill()
	end()
	w.noteBatch()
	if !reached {
		w.killed["at random, "+k.point+" was not reached"]++
		return
	}
	w.killed[k.point]++
	if strings.HasPrefix(k.point, "effect") {
		w.noteClaims()
	}
}

// settings are failpoints that do not stop a process but say how it works: a table
// of the store is folded after so few bytes that every life passes the fold's points.
var settings = []string{"foldBound=return(131072)"}

// narrow settings put every event into a commit of its own, so that a life may end between
// two members of a batch.
var narrow = []string{"cutBound=return(1)", "groupBound=return(1)"}

// failpointsOf is the environment that sets failpoints.
func failpointsOf(terms ...string) []string {
	return []string{"GOFAIL_FAILPOINTS=" + strings.Join(slices.Concat(settings, terms), ";")}
}

// noteBatch counts the deaths at which a batch was handled in part.
func (w *torture) noteBatch() {
	w.t.Helper()
	err := viewed(filepath.Join(w.data, "store", store.FileName), func(tx *wal.Tx) error {
		return tx.Bucket([]byte("checkpoint")).ForEach(func(_, row []byte) error {
			var at edda.Checkpoint
			err := json.Unmarshal(row, &at)
			w.within += b2i(at.Partly != nil)
			return err
		})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// noteClaims remembers what is completed in the store of a dead process: that
// must not be done again.
func (w *torture) noteClaims() {
	w.t.Helper()
	err := viewed(filepath.Join(w.data, "store", store.FileName), func(tx *wal.Tx) error {
		return eachClaim(tx, func(c edda.Claim) {
			if _, known := w.completed[c.CommandID]; c.Done && !known {
				w.completed[c.CommandID] = c
			}
		})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// dieAnywhere kills the process where it happens to be, and NATS a moment before.
func (w *torture) dieAnywhere(nats bool) {
	w.t.Helper()
	if !nats {
		w.child.kill()
		w.killed["at random"]++
		return
	}
	w.nats.kill()
	w.child.kill()
	w.nats.start()
	w.killed["at random, with NATS"]++
}

// await looks until it holds, and tells whether it did in time. A process that
// ends by itself is a failure.
func (w *torture) await(within time.Duration, holds func() bool) bool {
	w.t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.After(within); ; {
		select {
		case <-look.C:
			if holds() {
				return true
			}
		case <-w.child.Ended():
			w.t.Fatalf("it ended by itself: %s%s", w.child.out, w.child.err)
		case <-deadline:
			return false
		}
	}
}

// settleAndJudge waits for the end of everything, stops the process, reads its
// books, runs the same input undisturbed, and compares.
func (w *torture) settleAndJudge(load *producer) {
	w.t.Helper()
	begin := time.Now()
	w.settle(load.sent)
	w.t.Logf("everything had ended %v after the last event was sent", time.Since(begin).Round(time.Millisecond))
	w.atRest()
	backup := &copier{torture: w}
	if w.copied {
		backup = w.backedUp()
	}
	if code := w.child.terminate(); code != 0 {
		w.t.Errorf("exit code %d: %s", code, w.child.err)
	}
	w.ledger = readBooks(w.t, filepath.Join(w.data, "store"), w.nats.url())
	backup.nothingLeft(filepath.Join(w.data, "store"))
	if w.copied {
		backup.restored()
		backup.sameBooks(w.ledger)
	}
	w.ledger.shop, w.ledger.completed, w.ledger.operated, w.ledger.relived = w.shop, w.completed, w.operated, w.relived
	w.ledger.judge(w.t, load.sent, w.build.clock)
	set := sagaSet(w.t, tortureSagas)
	w.ledger.model(w.t, func(edda.Key) *saga.Set { return set })
	w.ledger.same(w.t, w.undisturbed(load.sent), load.sent)
}

// settle waits until every order has ended and nothing is left to do. It drops
// what holds a key, as an operator would, and answers what a person is asked.
func (w *torture) settle(orders int) {
	w.t.Helper()
	js := w.js()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	deadline := time.Now().Add(tortureWithin)
	for round := 0; ; round++ {
		open, held, asked := w.open(orders)
		left := w.operators.ahead(w.t.Context(), w.operated)
		if len(open) == 0 && left == nil && w.caughtUp(js) && w.child.metric("edda_outbox_items") == 0 {
			return
		}
		for _, key := range held {
			w.act(js, edda.Event{Kind: edda.KindOperator, Type: edda.VerbDrop}, key, round)
		}
		for _, key := range asked {
			w.act(js, edda.Event{Kind: edda.KindAnswer, Type: "yes", Step: "boss"}, key, round)
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d orders have not ended or left no letter, %v outbox rows are left, %v: %s\n%s", len(open), w.child.metric("edda_outbox_items"), left, w.why(open), w.child.err)
		}
		<-look.C
	}
}

func (w *torture) js() jetstream.JetStream {
	w.t.Helper()
	_, js := client(w.t, w.streams)
	return js
}

// open lists the orders that have not ended, the keys that are held, and the orders that
// wait for the boss's answer.
func (w *torture) open(orders int) (open, held, asked []string) {
	ended := map[string]bool{}
	for _, saga := range []string{"order", "nudge", "beat", "approval", "basket", "packing", "gift", replayed} {
		for _, in := range w.child.instances(saga) {
			ended[in.Key] = in.Status.Finished()
		}
	}
	for i := range orders {
		id, l := tortureName(i), lotOf(i)
		if l.ends == "" || l.gone || ended[id] {
			continue
		}
		_, known := ended[id]
		open = append(open, id)
		switch {
		case known && l.name == "heavy" && w.child.describe("order", id).Instance.Held != "":
			held = append(held, id)
		case known && l.name == "asked" && len(w.child.describe("approval", id).Instance.Steps) == 2:
			asked = append(asked, id)
		}
	}
	var letters server.DeadLetterList
	w.child.get("/v1/deadletters?limit=1000", &letters)
	if n := wantLetters(orders); len(letters.DeadLetters) < min(n, 1000) {
		open = append(open, fmt.Sprintf("%d dead letters are missing", n-len(letters.DeadLetters)))
	}
	return open, held, asked
}

// wantLetters counts the orders that leave a dead letter: what held a key is
// dropped, and its letter with it.
func wantLetters(orders int) (n int) {
	for i := range orders {
		if lotOf(i).ends == "" {
			n++
		}
	}
	return n
}

// caughtUp tells whether every event and every result was taken.
func (w *torture) caughtUp(js jetstream.JetStream) bool {
	w.t.Helper()
	for shard := range w.of {
		asked := *w.child
		asked.shard = strconv.Itoa(shard)
		if !w.taken(js, &asked) {
			return false
		}
	}
	return w.of > 0 || w.taken(js, w.child)
}

// taken reports whether a process has taken all that the streams hold.
func (w *torture) taken(js jetstream.JetStream, c *child) bool {
	w.t.Helper()
	var info server.Info
	c.get("/info", &info)
	for _, name := range []string{wire.AggregateEvents, wire.WorkflowEvents, shopStream} {
		s, err := js.Stream(w.t.Context(), name)
		if err != nil {
			return false // the server is busy
		}
		taken := slices.ContainsFunc(info.Positions, func(p server.StreamPosition) bool {
			return p.Stream == name && p.Seq >= s.CachedInfo().State.LastSeq
		})
		if !taken {
			return false
		}
	}
	return true
}

// act is what an operator or a person sends for an order: each round under another id.
func (w *torture) act(js jetstream.JetStream, ev edda.Event, order string, round int) {
	w.t.Helper()
	verb := ev.Type
	if ev.Kind == edda.KindAnswer {
		verb = "answer"
	}
	ev.ID, ev.Tenant, ev.By = fmt.Sprintf("%s-%s-%d", verb, order, round), "default", "the torture"
	ev.Key = edda.Key{Tenant: ev.Tenant, Saga: lotNamed(order).saga, Correlation: order}
	m, err := wire.Codec{}.Input(ev)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := publishSurely(js, m); err != nil {
		w.t.Fatal(err)
	}
}

// why says what the first of them wait for.
func (w *torture) why(open []string) (out string) {
	for _, id := range open[:min(len(open), 5)] {
		name, _, _ := strings.Cut(id, "-")
		i := slices.IndexFunc(lots, func(l lot) bool { return l.name == name })
		if i < 0 { // it is no order
			out += "\n" + id
			continue
		}
		body, _ := w.child.fetch("/v1/instances/" + lots[i].saga + "/" + id)
		out += "\n" + id + ": " + string(body)
	}
	return out
}

// undisturbed runs the same events, as they lie in their stream, through a fresh
// store that nobody disturbs, and returns its books.
func (w *torture) undisturbed(orders int) *books {
	w.t.Helper()
	w.nats.stop()
	streams := filepath.Join(w.dir, "calm-nats")
	if err := os.CopyFS(streams, os.DirFS(w.nats.dir)); err != nil {
		w.t.Fatal(err)
	}
	return w.calm(orders, startNATS(w.t, freeAddr(w.t), streams).url())
}

// calm runs the events that lie in the streams of a NATS through a fresh store.
// It begins without what the tortured store has published there.
func (w *torture) calm(orders int, streams string) *books {
	w.t.Helper()
	calm := &torture{t: w.t, seed: w.seed, build: w.build, dir: w.dir, data: filepath.Join(w.dir, "calm"), config: w.config, manifest: w.manifest,
		addr: freeAddr(w.t), points: freeAddr(w.t), mall: w.mall, shop: newTortureShop(w.seed), operated: w.operated, relived: w.relived}
	if w.relived {
		calm.env = slices.Clone(w.env) // it goes the same way
	}
	calm.env = append(calm.env, "EDDA_ADOPT_EMPTY=true") // with the streams it has what the tortured store owns
	calm.operators = newOperators(calm.addr)
	calm.operators.calm = true
	w.mall.open(calm.shop)
	calm.natsURL, calm.streams = streams, streams
	js := calm.js()
	for _, name := range []string{wire.WorkflowCommands, wire.WorkflowEvents, "KV_" + kv.LeaseBucket, "KV_" + kv.LedgerBucket} {
		if err := js.DeleteStream(w.t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			w.t.Fatal(err)
		}
	}
	calm.start()
	calm.settle(orders)
	if code := calm.child.terminate(); code != 0 {
		w.t.Errorf("the undisturbed run: exit code %d: %s", code, calm.child.err)
	}
	b := readBooks(w.t, filepath.Join(calm.data, "store"), streams)
	b.shop, b.operated, b.relived = calm.shop, calm.operated, calm.relived
	return b
}

// report says what was done and found.
func (w *torture) report(kills int, begin time.Time) {
	b := w.ledger
	_, again := w.shop.callsOf()
	lines := []string{fmt.Sprintf("seed %d: %d kills, %d events, %d transitions, %d commands and facts, %d effects in %d calls (%d again after an answer), %d timers fired, %d store commits, %v",
		w.seed, kills, len(b.events), b.transitions(), b.works(), len(b.claims), len(w.shop.all()), again, b.fired(), b.commits(), time.Since(begin).Round(time.Second))}
	lines = append(lines, fmt.Sprintf("  killed %4d times between two members of a batch", w.within))
	for _, p := range slices.Sorted(maps.Keys(w.killed)) {
		lines = append(lines, fmt.Sprintf("  killed %4d times %s", w.killed[p], p))
	}
	fates, _ := json.Marshal(b.fates())
	w.t.Logf("%s\n  fates %s", strings.Join(lines, "\n"), fates)
}
