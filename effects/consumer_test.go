package effects

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"edda"
	"edda/store"
)

// desk is the sagas' side in memory: it takes results with their claims, writes
// these, and settles their commands.
type desk struct {
	db     claims
	mu     sync.Mutex // guards what follows
	taken  []Result
	refuse error
}

func (d *desk) Apply(ctx context.Context, r Result, c edda.Claim) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return d.refuse
	}
	d.taken = append(d.taken, r)
	c.Taken = time.Now().UTC()
	return d.db.Commit(ctx, store.Change{Claims: []edda.Claim{c}})
}

func (d *desk) refusing(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = err
}

func (d *desk) results() []Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.taken)
}

// gift is an offered command that remembers what became of it.
type gift struct {
	cmd   Command
	mu    sync.Mutex
	acks  int
	backs []time.Duration
}

func given(id string) *gift {
	c := cmd(id)
	c.Offered, c.Sent = true, time.Now()
	return &gift{cmd: c}
}

func (g *gift) Command() *Command                { return &g.cmd }
func (g *gift) InProgress(context.Context) error { return nil }
func (g *gift) Ack(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.acks++
	return nil
}

func (g *gift) Nak(_ context.Context, d time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backs = append(g.backs, d)
	return nil
}

func (g *gift) settled() (acks int, backs []time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.acks, slices.Clone(g.backs)
}

// combined is a worker that takes offers, with its desk.
func combined(t *testing.T, manifests ...string) (*house, *desk) {
	t.Helper()
	d := &desk{}
	h := &house{wire: newWire(), bank: newBank(), dir: t.TempDir(), tune: func(o *Options) { o.Applier = d }}
	h.db = openStore(t, h.dir)
	d.db = h.db
	h.restart(t, nil, manifests...)
	synctest.Wait()
	return h, d
}

func (h *house) claimed(t *testing.T, id string) (edda.Claim, bool) {
	t.Helper()
	c, found, err := h.db.Claim("acme", id)
	if err != nil {
		t.Fatal(err)
	}
	return c, found
}

func (h *house) unclaimed(t *testing.T) []string {
	t.Helper()
	names, err := h.db.Unclaimed()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAnOfferedCommandIsCalledAndItsResultApplied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		g := given("c1")
		if !h.w.Offer(g) {
			t.Fatal("not taken")
		}
		synctest.Wait()
		got := d.results()
		if len(got) != 1 || got[0].Outcome != edda.Succeeded || got[0].CommandID != "c1" || string(got[0].Metadata) != string(g.cmd.Metadata) {
			t.Errorf("results %+v", got)
		}
		if acks, backs := g.settled(); acks != 1 || len(backs) != 0 || h.bank.count() != 1 || len(h.got()) != 0 {
			t.Errorf("%d acks, %v back, %d calls, %v published", acks, backs, h.bank.count(), h.got())
		}
		if c, found := h.claimed(t, "c1"); !found || !c.Done || c.Attempts != 1 {
			t.Errorf("claim %+v", c)
		}
		h.stop()
		if names := h.unclaimed(t); len(names) != 0 {
			t.Errorf("after the stop %v are in doubt", names)
		}
	})
}

// TestAResultThatWasTakenSaysWhenWheneverItIsPublished: who finds it in the stream, and
// not its copy, makes the same of it.
func TestAResultThatWasTakenSaysWhenWheneverItIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		h.w.Offer(given("c1"))
		synctest.Wait()
		at := time.Now()
		time.Sleep(time.Hour)
		h.send(cmd("c1")) // it was in the stream as well
		d.refusing(errors.New("full"))
		h.w.Offer(given("c2"))
		synctest.Wait()
		got := h.got()
		if len(got) != 2 || h.bank.count() != 2 {
			t.Fatalf("%d published, %d calls", len(got), h.bank.count())
		}
		for _, r := range got {
			if r.CommandID == "c1" && !r.Taken.Equal(at) || r.CommandID == "c2" && !r.Taken.IsZero() {
				t.Errorf("the result of %s was taken at %v", r.CommandID, r.Taken)
			}
		}
	})
}

func TestAnOfferThatNobodyTakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := combined(t, plain)
		other := given("c1")
		other.cmd.Effect = "refund"
		if h.w.Offer(other) || h.w.Serves("refund") || !h.w.Serves("charge") {
			t.Error("a command of an effect that is not worked on here was taken")
		}
		h.bank.answers(hang)
		taken := 0
		for i := range 2 * maxHeld { // four of them are called
			if h.w.Offer(given(fmt.Sprint("c", i))) {
				taken++
			}
		}
		if taken != maxHeld {
			t.Errorf("%d were taken", taken)
		}
		h.stop()
		if h.w.Offer(given("late")) {
			t.Error("a worker that has stopped took one")
		}
	})
}

// TestOffersComeBackWhenTheConsumerStops, begun or not.
func TestOffersComeBackWhenTheConsumerStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := combined(t, plain)
		h.bank.answers(hang)
		var all []*gift
		for i := range 20 {
			all = append(all, given(fmt.Sprint("c", i)))
			h.w.Offer(all[i])
		}
		synctest.Wait()
		if err := h.w.Replace(); err != nil { // its effect is gone
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for i, g := range all {
			if acks, backs := g.settled(); acks != 0 || len(backs) != 1 {
				t.Errorf("c%d: %d acks, back %v", i, acks, backs)
			}
		}
		if h.w.Serves("charge") || h.w.Offer(given("c1")) {
			t.Error("it still takes commands")
		}
	})
}

// TestOffersDoNotKeepTheStreamOut: as many offers as fit wait, and what the stream brings,
// a revoke among it, is fetched all the same.
func TestOffersDoNotKeepTheStreamOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		wait := make(chan struct{})
		h.bank.answers(holdUntil(wait))
		for i := range maxHeld {
			h.w.Offer(given(fmt.Sprint("c", i)))
		}
		time.Sleep(fetchWait + time.Second) // the next Fetch has seen the offers
		called := map[string]bool{}
		for _, c := range h.bank.all() {
			called[c.ID] = true
		}
		id := "c0"
		for i := 0; called[id]; i++ {
			id = fmt.Sprint("c", i)
		}
		h.send(revoke(id), cmd("fetched"))
		synctest.Wait()
		if got := d.results(); len(got) != 1 || got[0].CommandID != id || len(h.left()) != 0 {
			t.Errorf("%d results, %d left in the stream", len(got), len(h.left()))
		}
		close(wait)
		synctest.Wait()
		if got := len(d.results()) + len(h.got()); got != maxHeld+1 {
			t.Errorf("%d results, want %d", got, maxHeld+1)
		}
	})
}

// TestLargeOffersOfOneTenantHideNobody where they wait for its limit.
func TestLargeOffersOfOneTenantHideNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := buildHolding(t, 1<<20, 4, plain+"limit: {key: =tenant, rate: 1/m, burst: 1}\n")
		synctest.Wait()
		since := time.Now()
		offer := func(c Command) bool {
			c.Offered = true
			taken := h.w.Offer(&gift{cmd: c})
			synctest.Wait()
			return taken
		}
		refused := 0
		for _, c := range large("acme", 20, 100<<10) {
			if refused == 0 && !offer(c) {
				refused++
			}
		}
		if offer(tenants("globex", 1)[0]); refused == 0 || h.bank.starts(since, "globex") != "0.0" {
			t.Errorf("%d of acme's were refused, globex began at %q", refused, h.bank.starts(since, "globex"))
		}
	})
}

// TestAnOfferThatMeetsTheStopOfItsConsumer is refused: nobody waits for its goroutine.
func TestAnOfferThatMeetsTheStopOfItsConsumer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := combined(t, plain)
		c := h.w.consumers["charge"]
		h.stop()
		if c.accept(given("c1")) {
			t.Error("it was taken")
		}
	})
}

// TestAnEffectThatComesBackWaitsForItsOldConsumer, or Fetch would be called twice at once.
func TestAnEffectThatComesBackWaitsForItsOldConsumer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, plain)
		began := time.Now()
		h.bank.answers(hang)
		h.send(cmd("c1"))
		synctest.Wait()
		for _, set := range [][]*Effect{nil, {compile(t, plain)}} {
			if err := h.w.Replace(set...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		h.bank.answers(newBank().answer)
		h.send(cmd("c2"))
		time.Sleep(time.Second - 1)
		if n := h.bank.count(); n != 1 {
			t.Errorf("%d calls while the old consumer gives its call the grace", n)
		}
		time.Sleep(time.Minute)
		if n := h.bank.count(); n != 3 || h.bank.at[1].Sub(began) != time.Second {
			t.Errorf("%d calls, the second after %v", n, h.bank.at[1].Sub(began))
		}
	})
}

// TestACommandLeavesNothingBehind in memory once its messages are settled.
func TestACommandLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		kept := weak.Make(offered(t, h.w))
		synctest.Wait()
		if got := len(d.results()); got != 1 {
			t.Fatalf("%d results", got)
		}
		for range 3 { // what a pool has goes with the second
			runtime.GC()
		}
		if kept.Value() != nil {
			t.Error("the command is still there")
		}
	})
}

func offered(t *testing.T, w *Worker) *gift {
	g := given("c1")
	if !w.Offer(g) {
		t.Fatal("not taken")
	}
	return g
}

func TestAResultThatIsNotAppliedGoesThroughTheStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		d.refusing(errors.New("no room"))
		g := given("c1")
		h.w.Offer(g)
		wantResult(t, h.one(t), edda.Succeeded, "", 1)
		if c, found := h.claimed(t, "c1"); !found || !c.Done {
			t.Errorf("claim %+v", c)
		}
		if acks, _ := g.settled(); acks != 1 || len(d.results()) != 0 {
			t.Errorf("%d acks", acks)
		}
	})
}

// TestACommandThatComesBothWaysIsCalledOnce: from the stream an earlier run's copy.
func TestACommandThatComesBothWaysIsCalledOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		wait := make(chan struct{})
		h.bank.answers(holdUntil(wait))
		h.w.Offer(given("c1"))
		synctest.Wait()
		h.send(cmd("c1"))
		again := given("c1")
		h.w.Offer(again)
		synctest.Wait()
		close(wait)
		synctest.Wait()
		h.send(cmd("c1")) // and once more when all is over: its stored result is told
		synctest.Wait()
		if h.bank.count() != 1 || len(d.results()) != 1 || len(h.got()) != 1 || h.acks() != 2 {
			t.Errorf("%d calls, %d applied, %d published, %d acks", h.bank.count(), len(d.results()), len(h.got()), h.acks())
		}
		if acks, _ := again.settled(); acks != 1 {
			t.Errorf("the copy was acked %d times", acks)
		}
	})
}

func TestARevokeReachesAnOfferedCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		h.bank.answers(hang)
		for i := range 6 { // four are called
			h.w.Offer(given(fmt.Sprint("c", i)))
			synctest.Wait()
		}
		h.send(revoke("c5"), revoke("c0"))
		synctest.Wait()
		got := d.results()
		if len(got) != 1 || got[0].CommandID != "c5" || got[0].Outcome != edda.Failed || h.bank.count() != 4 {
			t.Errorf("%d calls, results %+v", h.bank.count(), got)
		}
	})
}

// TestAClaimIsSparedOnlyWhereItDecidesNothing looks into the ledger from a call.
func TestAClaimIsSparedOnlyWhereItDecidesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		manifest string
		offered  bool
		want     bool // the claim is there
	}{
		"called again anyway": {plain, true, false}, "through the stream": {plain, false, true},
		"at most once": {once, true, true}, "with a check": {checked, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, _ := combined(t, tt.manifest)
				var found bool
				h.bank.answers(func(context.Context, int, Call) (Response, error) {
					_, found = h.claimed(t, "c1")
					return ok200(), nil
				})
				if tt.offered {
					h.w.Offer(given("c1"))
				} else {
					h.send(cmd("c1"))
				}
				synctest.Wait()
				if c, done := h.claimed(t, "c1"); found != tt.want || !done || !c.Done {
					t.Errorf("a claim before the call: %v, want %v; after it %+v", found, tt.want, c)
				}
			})
		})
	}
}

// put commits an effect's command as a saga does.
func (h *house) put(t *testing.T, ids ...string) {
	t.Helper()
	k := edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}
	tr := edda.Transition{Key: k}
	for _, id := range ids {
		tr.Work = append(tr.Work, edda.Work{ID: id, Kind: edda.WorkEffect, From: k, Name: "charge", Time: time.Now()})
	}
	if err := h.db.Commit(t.Context(), store.Change{Transitions: []edda.Transition{tr}}); err != nil {
		t.Fatal(err)
	}
}

// dead is a store as a process leaves it that was killed while it called without
// claims.
func dead(t *testing.T, h *house, names ...string) {
	t.Helper()
	if err := h.db.Commit(t.Context(), store.Change{Unclaimed: &names}); err != nil {
		t.Fatal(err)
	}
}

// TestADeadRunsCommandsCountAsClaimed: nobody knows whether they were called.
func TestADeadRunsCommandsCountAsClaimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		h.stop()
		h.put(t, "c1", "c2", "c3")
		paused := edda.Claim{Tenant: "acme", CommandID: "c2", Effect: "charge", Claimed: time.Now(), Paused: true, Attempts: 3}
		if err := h.db.Commit(t.Context(), store.Change{Claims: []edda.Claim{paused}}); err != nil {
			t.Fatal(err)
		}
		dead(t, h, "charge")
		h.bank.answers(func(context.Context, int, Call) (Response, error) { return Response{}, ErrNotSent })
		h.restart(t, nil, plain)
		synctest.Wait()
		h.put(t, "fresh")
		if c, found := h.claimed(t, "c1"); !found || c.Paused || c.Done {
			t.Errorf("c1: %+v, %v", c, found)
		}
		if c, _ := h.claimed(t, "c2"); !c.Paused || c.Attempts != 3 {
			t.Errorf("c2: %+v", c)
		}
		h.send(revoke("c1")) // too late, for all we know
		synctest.Wait()
		for _, id := range []string{"c1", "c2", "fresh"} {
			h.w.Offer(given(id))
		}
		time.Sleep(time.Hour)
		want := map[string]edda.Outcome{"c1": edda.TimedOut, "c2": edda.Failed, "fresh": edda.Failed}
		for _, r := range d.results() {
			if r.Outcome != want[r.CommandID] {
				t.Errorf("%s: %s %s", r.CommandID, r.Outcome, r.Payload)
			}
			delete(want, r.CommandID)
		}
		if len(want) > 0 {
			t.Errorf("no results of %v", want)
		}
	})
}

// TestOnlyWhatWasSparedIsInDoubt: a command whose claim would have been written
// was not begun.
func TestOnlyWhatWasSparedIsInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := combined(t, once)
		h.stop()
		h.put(t, "c1")
		dead(t, h, "refund")
		h.restart(t, nil, once)
		synctest.Wait()
		if c, found := h.claimed(t, "c1"); found {
			t.Errorf("claim %+v", c)
		}
		if names := h.unclaimed(t); len(names) != 0 {
			t.Errorf("calls without claims of %v", names)
		}
	})
}

// TestAStopInOrderLeavesNoDoubt: the next run knows what was begun and what not.
func TestAStopInOrderLeavesNoDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := combined(t, plain)
		if names := h.unclaimed(t); !slices.Equal(names, []string{"charge"}) {
			t.Fatalf("while it runs %v are called without claims", names)
		}
		h.bank.answers(hang)
		for i := range 6 {
			id := fmt.Sprint("c", i)
			h.put(t, id)
			h.w.Offer(given(id))
			synctest.Wait()
		}
		h.stop()
		for i := range 6 {
			c, found := h.claimed(t, fmt.Sprint("c", i))
			if begun := i < 4; found != begun || c.Paused {
				t.Errorf("c%d: %+v, %v", i, c, found)
			}
		}
		if names := h.unclaimed(t); len(names) != 0 {
			t.Errorf("after the stop %v are in doubt", names)
		}
	})
}

// failing lets no change with a claim through.
type failing struct {
	claims
	mu  *sync.Mutex
	err *error
}

func (f failing) Commit(ctx context.Context, c store.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *f.err != nil && len(c.Claims) > 0 {
		return *f.err
	}
	return f.claims.Commit(ctx, c)
}

// TestACallOfWhichNothingCouldBeWrittenStaysInDoubt, in this run and for the next.
func TestACallOfWhichNothingCouldBeWrittenStaysInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t)
		var mu sync.Mutex
		var broken error
		h.restart(t, func(c claims) claims { return failing{c, &mu, &broken} }, plain)
		d.refusing(errors.New("no room"))
		synctest.Wait()
		h.bank.answers(hang)
		h.put(t, "c1")
		h.w.Offer(given("c1"))
		synctest.Wait()
		mu.Lock()
		broken = errors.New("disk full")
		mu.Unlock()
		e, err := h.w.find(t.Context(), new(cmd("c1")))
		if err != nil || !e.Found || e.Claim.Done || e.Claim.Paused {
			t.Errorf("while it is called: %+v %v", e, err)
		}
		h.stop()
		if names := h.unclaimed(t); !slices.Equal(names, []string{"charge"}) {
			t.Errorf("after the stop %v are in doubt", names)
		}
	})
}

// TestAReloadTellsTheStoreFirst which effects are called without claims.
func TestAReloadTellsTheStoreFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := combined(t, once)
		if names := h.unclaimed(t); len(names) != 0 {
			t.Fatalf("%v", names)
		}
		if err := h.w.Replace(compile(t, plain)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if names := h.unclaimed(t); !slices.Equal(names, []string{"charge"}) {
			t.Errorf("%v", names)
		}
		if err := h.w.Replace(compile(t, once)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if names := h.unclaimed(t); !slices.Equal(names, []string{"charge"}) {
			t.Errorf("%v: its calls may be under way", names)
		}
		found := false
		h.bank.answers(func(context.Context, int, Call) (Response, error) {
			_, found = h.claimed(t, "c1")
			return ok200(), nil
		})
		h.w.Offer(given("c1"))
		synctest.Wait()
		if !found {
			t.Error("what is at most once by now was called without its claim")
		}
		if err := h.w.Replace(compile(t, strings.Replace(plain, "charge", "refund", 1))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if names := h.unclaimed(t); !slices.Equal(names, []string{"charge", "refund"}) {
			t.Errorf("%v", names)
		}
	})
}
