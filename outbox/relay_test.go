package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edda/internal/testkit"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"edda"
)

var facts = []edda.WorkKind{edda.WorkFact, edda.WorkEffect, edda.WorkRevoke}

func TestRelayDeliversInOrderAndRemoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		db.put(fact("a", "1"), fact("b", "1"), fact("c", "1"))
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		wantIDs(t, h, "a", "b", "c")
		db.put(fact("d", "1"))
		wantIDs(t, h, "a", "b", "c", "d")
		waitRemoved()
		if db.size() != 0 {
			t.Errorf("%d rows left", db.size())
		}
	})
}

func TestMarksAreCommittedWithRemovedRows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		marks := func() []edda.Mark {
			h.mu.Lock()
			defer h.mu.Unlock()
			return []edda.Mark{{Stream: "other", Seq: 7, ID: "x"}, {Stream: "S", Seq: 1, ID: h.got[len(h.got)-1].ID}}
		}
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}, Marks: marks})
		for _, step := range []struct{ id, want string }{{"a", "other x, S a"}, {"b", "S b"}, {"c", "S c"}} {
			if step.id == "c" { // a refused row is tried again
				db.breakWith(errDown)
			}
			db.put(fact(step.id, "1"))
			waitRemoved()
			db.breakWith(nil)
			time.Sleep(lookEvery)
			waitRemoved()
			var got []string
			for _, m := range db.marks {
				got = append(got, m.Stream+" "+m.ID)
			}
			if s := strings.Join(got, ", "); db.size() != 0 || s != step.want {
				t.Errorf("%d rows left, marks %s, want %s", db.size(), s, step.want)
			}
		}
	})
}

func TestRelayDeliversWaitingRowsInOneBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		for i, id := range names("w", 100) {
			db.put(fact(id, fmt.Sprint(i)))
		}
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		wantIDs(t, h, names("w", 100)...)
		if !slices.Equal(h.sizes, []int{100}) {
			t.Errorf("batches %v, want one of 100", h.sizes)
		}
		waitRemoved()
		if db.commits != 1 {
			t.Errorf("%d clean-up commits, want one", db.commits)
		}
	})
}

// TestRelayRemovesRowsInGroups: single rows do not cost a transaction each.
func TestRelayRemovesRowsInGroups(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const rows = 100
		db, h := newMemStore(), newFakeDestination(t)
		r := start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		for i := range rows {
			db.put(fact(fmt.Sprint(i), fmt.Sprint(i)))
			time.Sleep(time.Millisecond)
			if i == 0 {
				synctest.Wait()
				if db.size() != 1 {
					t.Errorf("%d rows left of one that was just accepted", db.size())
				}
			}
		}
		waitRemoved()
		most := 1 + rows*int(time.Millisecond)/int(removeWithin)
		if db.size() != 0 || db.commits > most {
			t.Errorf("%d rows left after %d clean-up commits, want none after at most %d", db.size(), db.commits, most)
		}
		db.put(fact("last", "a"))
		synctest.Wait()
		began := time.Now()
		if err := r.Flush(t.Context()); err != nil || db.size() != 0 || time.Since(began) > removeWithin {
			t.Errorf("Flush: %v, %d rows left after %s", err, db.size(), time.Since(began))
		}
	})
}

func TestRelayBacksOffAfterAFailedRemoval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		start(t, db, Options{Routes: []Route{h.route("nats", append(facts, edda.WorkResult)...)}})
		db.put(work("g", edda.WorkResult, "g"))
		synctest.Wait()
		db.breakWith(errBroken)
		time.Sleep(10 * time.Second)
		tries := db.cleaned()
		db.breakWith(nil)
		time.Sleep(2 * lookEvery)
		if db.size() != 0 || tries > 15 {
			t.Errorf("after a failure: %d rows, %d commits", db.size(), tries)
		}
	})
}

func TestRelayFailingRowBlocksOnlyItsInstance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		h.refuse = func(w edda.Work) error {
			if w.ID == "a1" {
				return errDown
			}
			return nil
		}
		db.put(fact("a1", "a"), fact("a2", "a"), fact("b1", "b"), fact("b2", "b"))
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		wantIDs(t, h, "b1", "b2")
		h.refusing(yes)
		time.Sleep(time.Second)
		wantIDs(t, h, "b1", "b2", "a1", "a2")
	})
}

func TestRelayDeadDestinationDoesNotStopTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
		gateway.refuse = alwaysNo
		for i := range 3 * maxHeld {
			db.put(command(fmt.Sprintf("c%d", i), fmt.Sprintf("i%d", i)))
		}
		db.put(fact("last", "other"))
		r := start(t, db, Options{Routes: []Route{nats.route("nats", facts...), gateway.route("gateway", edda.WorkCommand)}})
		wantIDs(t, nats, "last")
		if held := r.routes[1].held; held > maxHeld {
			t.Errorf("%d rows held, want at most %d", held, maxHeld)
		}
		gateway.refusing(yes)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := gateway.ids(); len(got) != 3*maxHeld || db.size() != 0 {
			t.Errorf("%d commands accepted of %d, %d rows left", len(got), 3*maxHeld, db.size())
		}
	})
}

// TestTakeSaysNothingAboutTheDestination: effects that Take accepts inside the process do not make
// a destination count as up while the server is away.
func TestTakeSaysNothingAboutTheDestination(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		h.refuse = func(edda.Work) error { return errDown }
		l := h.route("nats", facts...)
		l.Destination = &fakeTaker{fakeDestination: h, asked: map[string]int{}}
		core, logs := observer.New(zap.InfoLevel)
		start(t, db, Options{Routes: []Route{l}, Log: zap.New(core)})
		for i := range 300 {
			db.put(fact(fmt.Sprint("f", i), fmt.Sprint("f", i)), effect(fmt.Sprint("e", i), fmt.Sprint("e", i)))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		down, up := logs.FilterMessageSnippet("is down").Len(), logs.FilterMessageSnippet("up again").Len()
		if down != 1 || up != 0 || logs.Len() > 20 {
			t.Errorf("said to be down %d times, up again %d times, in %d lines", down, up, logs.Len())
		}
	})
}

func TestRelayProbesADownDestination(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		h.refuse = alwaysNo
		for i, id := range names("w", 1000) {
			db.put(fact(id, fmt.Sprint(i)))
		}
		core, logs := observer.New(zap.WarnLevel)
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}, Log: zap.New(core)})
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := h.tries(); n > 1000+2*60*2 {
			t.Errorf("offered %d times in an hour", n)
		}
		if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
			t.Errorf("%d alerts, want one", n)
		}
		h.refusing(yes)
		time.Sleep(lastBackoff)
		synctest.Wait()
		time.Sleep(lastBackoff)
		synctest.Wait()
		if n := len(h.ids()); n != 1000 {
			t.Errorf("%d accepted after it came back, want 1000", n)
		}
	})
}

func TestRelayOrderAcrossDestinations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
		gateway.delay = time.Second
		db.put(command("first", "a"), fact("second", "a"))
		start(t, db, Options{Routes: []Route{nats.route("nats", facts...), gateway.route("gateway", edda.WorkCommand)}})
		wantIDs(t, nats) // the command is in flight
		time.Sleep(time.Second)
		wantIDs(t, nats, "second")
		gateway.refusing(alwaysNo)
		db.put(command("third", "a"), fact("fourth", "a"))
		time.Sleep(1500 * time.Millisecond)
		wantIDs(t, nats, "second", "fourth") // later rows overtake those of a failing destination
		wantIDs(t, gateway, "first")
	})
}

// TestWorkOfAResultWaitsForItsEcho: also if it goes to another destination and the echo's is down,
// because a restored store knows the result only by its echo.
func TestWorkOfAResultWaitsForItsEcho(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
		nats.refusing(alwaysNo)
		for i := range 2 * downAfter {
			db.put(fact(fmt.Sprint("f", i), fmt.Sprint("other", i)))
		}
		start(t, db, Options{Routes: []Route{nats.route("nats", append(facts, edda.WorkResult)...), gateway.route("gateway", edda.WorkCommand)}})
		db.put(work("copy", edda.WorkResult, "a"), command("follows", "a"), fact("before", "b"), command("passes", "b"))
		time.Sleep(time.Minute)
		wantIDs(t, gateway, "passes")
		nats.refusing(yes)
		time.Sleep(time.Minute)
		wantIDs(t, gateway, "passes", "follows")
	})
}

// TestWorkDoesNotOvertakeAnEchoThatDidNotFit: the echo's route was full and left the echo in the
// store, where no row waited for it.
func TestWorkDoesNotOvertakeAnEchoThatDidNotFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
		nats.refusing(alwaysNo)
		for i := range maxHeld {
			db.put(fact(fmt.Sprint("f", i), fmt.Sprint("other", i)))
		}
		start(t, db, Options{Routes: []Route{nats.route("nats", append(facts, edda.WorkResult)...), gateway.route("gateway", edda.WorkCommand)}})
		db.put(fact("fits not", "b"), command("passes", "b"), work("copy", edda.WorkResult, "a"), command("follows", "a"))
		time.Sleep(time.Minute)
		db.put(command("later", "a"))
		time.Sleep(time.Minute)
		wantIDs(t, gateway, "passes")
		before := db.looked()
		time.Sleep(time.Minute)
		if n := db.looked() - before; n > 120 {
			t.Errorf("%d reads in a minute in which nothing can be taken", n)
		}
		nats.refusing(yes)
		time.Sleep(5 * time.Minute)
		wantIDs(t, gateway, "passes", "follows", "later")
		if db.size() != 0 {
			t.Errorf("%d rows are left", db.size())
		}
	})
}

func TestRelayHighBeforeNormalWithoutStarving(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		for i := range 20 {
			db.put(fact(fmt.Sprintf("n%d", i), fmt.Sprintf("n%d", i)))
		}
		for i := range 20 {
			w := fact(fmt.Sprintf("h%d", i), fmt.Sprintf("h%d", i))
			w.High = true
			db.put(w)
		}
		l := h.route("nats", facts...)
		l.Batch = 1
		start(t, db, Options{Routes: []Route{l}})
		synctest.Wait()
		got := strings.Join(h.ids()[:10], " ")
		if want := "h0 h1 h2 h3 n0 h4 h5 h6 h7 n1"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

func TestRelayEffectStaysUntilItsResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		db.put(effect("e", "a"), fact("f", "a"))
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		wantIDs(t, h, "e", "f")
		time.Sleep(30 * time.Second)
		wantIDs(t, h, "e", "f")
		if db.size() != 1 {
			t.Fatalf("%d rows left, want the effect's", db.size())
		}
		time.Sleep(time.Minute) // one sweep between one minute and two
		wantIDs(t, h, "e", "f", "e")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := len(h.ids()); n < 20 || n > 40 {
			t.Errorf("published %d times in a day, want once an hour after the first", n)
		}
	})
}

func TestRelayRepublishesAfterReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		db.put(effect("e", "a"), effect("g", "b"))
		r := start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		wantIDs(t, h, "e", "g")
		r.Republish()
		wantIDs(t, h, "e", "g", "e", "g")
		h.refusing(alwaysNo)
		db.put(fact("f", "a"))
		time.Sleep(time.Hour)
		h.refusing(yes)
		before := len(h.ids())
		r.Republish() // also retries the failed rows
		synctest.Wait()
		if got := h.ids()[before:]; !slices.Contains(got, "f") {
			t.Errorf("accepted %v after reconnect, want f among them", got)
		}
	})
}

func TestRelayRepublishesMoreThanItHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		for i := range 2*maxHeld + 7 {
			db.put(effect(fmt.Sprintf("e%d", i), fmt.Sprint(i)))
		}
		r := start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		synctest.Wait()
		h.mu.Lock()
		h.delay = time.Second
		h.mu.Unlock()
		for i := range 100 {
			db.put(fact(fmt.Sprintf("f%d", i), fmt.Sprintf("f%d", i)))
		}
		synctest.Wait()
		r.Republish()
		synctest.Wait()
		held := r.routes[0].held
		h.refusing(yes) // also orders the read above before the relay continues
		if held > maxHeld || held < maxHeld/2 {
			t.Errorf("%d rows held, want at most %d", held, maxHeld)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		times := map[string]int{}
		for _, id := range h.ids() {
			times[id]++
		}
		for id, n := range times {
			if n != 2 && id[0] == 'e' {
				t.Fatalf("%s published %d times, want twice", id, n)
			}
		}
	})
}

func TestRelayDeliversAnEffectBeforeItsRevoke(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		h.refuse = alwaysNo
		revoke := work("r", edda.WorkRevoke, "a")
		revoke.CommandID = "e"
		db.put(effect("e", "a"))
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		time.Sleep(time.Minute)
		db.put(revoke)
		time.Sleep(time.Minute)
		h.refusing(yes)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := h.ids(); len(got) < 2 || got[0] != "e" || got[1] != "r" {
			t.Errorf("accepted %v, want the effect, then its revoke", got)
		}
	})
}

func TestRelayRetryAfterPausesTheDestination(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		busy := &edda.Classified{Class: edda.Temporary, Err: errDown, After: time.Minute}
		h.refuse = func(edda.Work) error { return busy }
		l := h.route("gateway", edda.WorkFact)
		l.Batch = 1
		db.put(fact("a", "a"), fact("b", "b"))
		start(t, db, Options{Routes: []Route{l}})
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		if n := h.tries(); n != 1 {
			t.Errorf("offered %d times before the minute was over", n)
		}
		h.refusing(yes)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(h.ids()); n != 2 {
			t.Errorf("%d accepted after the minute, want 2", n)
		}
	})
}

func TestRelayRejection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h, j := newMemStore(), newFakeDestination(t), &fakeRejecter{broken: errDown}
		h.refuse = func(w edda.Work) error {
			if w.ID == "ok" {
				return nil
			}
			return fmt.Errorf("post: %w", &Rejection{Code: "no_stock", Message: "none left", Status: 422})
		}
		db.put(command("no", "a"), command("ok", "a"), fact("too big", "b"))
		start(t, db, Options{Routes: []Route{h.route("all", edda.WorkCommand, edda.WorkFact)}, Rejecter: j})
		wantIDs(t, h) // telling the saga failed: the row is not delivered
		j.mu.Lock()
		j.broken = nil
		j.mu.Unlock()
		time.Sleep(time.Second)
		wantIDs(t, h, "ok")
		if got := j.rejected["no"]; got.Code != "no_stock" || len(j.rejected) != 1 {
			t.Errorf("rejected %v", j.rejected)
		}
		if db.size() != 0 || len(db.dead) != 1 || db.dead[0].Reason != edda.DeadRejected {
			t.Errorf("%d rows left, dead letters %v, want the fact's", db.size(), db.dead)
		}
	})
}

// TestRejectedStartsAndEndsAreReported: a parent waited for ever for a child whose message was too
// large.
func TestRejectedStartsAndEndsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h, j := newMemStore(), newFakeDestination(t), &fakeRejecter{}
		h.refuse = func(edda.Work) error { return &Rejection{Code: "too-large", Message: "too large"} }
		begin, end := fact("begin", "a"), fact("end", "b")
		begin.Kind, end.Kind = edda.WorkStart, edda.WorkEnd
		db.put(begin, end)
		start(t, db, Options{Routes: []Route{h.route("all", edda.WorkStart, edda.WorkEnd)}, Rejecter: j})
		waitRemoved()
		if len(j.rejected) != 2 || db.size() != 0 || len(db.dead) != 0 {
			t.Errorf("told %v, %d rows left, dead letters %v", j.rejected, db.size(), db.dead)
		}
	})
}

func TestARejectionWithoutAReceiverIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h, j := newMemStore(), newFakeDestination(t), &fakeRejecter{broken: edda.Classify(edda.Permanent, "no subject")}
		h.refuse = func(edda.Work) error { return &Rejection{Code: "subject", Message: "too long"} }
		db.put(command("no", "a"))
		start(t, db, Options{Routes: []Route{h.route("all", edda.WorkCommand)}, Rejecter: j})
		waitRemoved()
		if db.size() != 0 || len(db.dead) != 1 {
			t.Errorf("%d rows left, dead letters %v", db.size(), db.dead)
		}
	})
}

func TestRelayStopRemovesAcceptedRows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		h.delay = time.Second
		r, err := newRelay(db, Options{Routes: []Route{h.route("nats", facts...)}, Jitter: half})
		if err != nil {
			t.Fatal(err)
		}
		db.put(fact("a", "a"))
		stop := testkit.Run(t, r.Run)
		synctest.Wait()
		stop()
		if db.size() != 0 {
			t.Errorf("%d rows left of what was accepted while stopping", db.size())
		}
	})
}

func TestRelayPausesWhileTheStoreIsUnwritable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		db.broken = errBroken
		for i := range 2 * maxHeld {
			db.put(fact(fmt.Sprintf("w%d", i), fmt.Sprintf("i%d", i)))
		}
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(h.ids()); n != maxHeld {
			t.Errorf("%d delivered that nobody can remove, want %d", n, maxHeld)
		}
		if db.commits > 70 {
			t.Errorf("%d clean-up commits in a minute of a full disk", db.commits)
		}
		db.breakWith(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if db.size() != 0 || len(h.ids()) != 2*maxHeld {
			t.Errorf("%d rows left, %d delivered", db.size(), len(h.ids()))
		}
	})
}

func TestFlush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
		nats.delay = time.Second
		r := start(t, db, Options{Routes: []Route{nats.route("nats", facts...), gateway.route("gateway", edda.WorkCommand)}})
		db.put(fact("a", "a"), fact("b", "a"), effect("e", "a"), command("c", "b"))
		if err := r.Flush(t.Context()); err != nil {
			t.Fatalf("Flush: %v", err)
		}
		wantIDs(t, nats, "a", "b", "e")
		if db.size() != 1 {
			t.Errorf("%d rows left, want the effect's", db.size())
		}
		gateway.refusing(alwaysNo)
		db.put(command("d", "b"), fact("f", "c"))
		began := time.Now()
		if err := r.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "gateway") {
			t.Errorf("Flush with a dead gateway: %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a dead destination kept Flush for %s", took)
		}
		wantIDs(t, nats, "a", "b", "e", "f")
	})
}

func TestRelayWorkWithoutDestinationStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		core, logs := observer.New(zap.ErrorLevel)
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}, Log: zap.New(core)})
		db.put(work("m", edda.WorkMessage, "a"), work("m2", edda.WorkMessage, "a"), fact("f", "a"))
		wantIDs(t, h, "f")
		waitRemoved()
		if db.size() != 2 || logs.Len() != 1 {
			t.Errorf("%d rows left, %d complaints", db.size(), logs.Len())
		}
	})
}

func TestRelayMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h, reg := newMemStore(), newFakeDestination(t), prometheus.NewRegistry()
		h.refuse = alwaysNo
		db.put(effect("e", "a"))
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}, Metrics: reg})
		time.Sleep(90 * time.Millisecond)
		synctest.Wait()
		want := `
# HELP edda_outbox_delivered_total Rows of the outbox that their destination accepted.
# TYPE edda_outbox_delivered_total counter
edda_outbox_delivered_total{destination="nats"} 1
# HELP edda_outbox_failures_total Times that a destination did not accept a row.
# TYPE edda_outbox_failures_total counter
edda_outbox_failures_total{destination="nats"} 2
# HELP edda_outbox_items Rows in the outbox, with the effects that wait for their result.
# TYPE edda_outbox_items gauge
edda_outbox_items 1
# HELP edda_outbox_oldest_seconds Age of the oldest row in the outbox.
# TYPE edda_outbox_oldest_seconds gauge
edda_outbox_oldest_seconds 0.34
`
		h.refusing(yes)
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edda_outbox_delivered_total",
			"edda_outbox_failures_total", "edda_outbox_items", "edda_outbox_oldest_seconds"); err != nil {
			t.Error(err)
		}
		if lint, err := testutil.GatherAndLint(reg); err != nil || len(lint) > 0 {
			t.Errorf("lint %v %v", lint, err)
		}
	})
}

// plan is one random run.
type plan struct {
	fails                     []int
	delay                     time.Duration
	batch, parallel, gateways int
	rows                      []edda.Work
	pauses                    []time.Duration
	reconnect                 int
}

func drawPlan(rt *rapid.T) plan {
	p := plan{
		fails:     rapid.SliceOfN(rapid.IntRange(0, 9), 50, 50).Draw(rt, "failures"),
		delay:     millis(rt, 50, "delay"),
		batch:     rapid.IntRange(1, 8).Draw(rt, "batch"),
		parallel:  rapid.IntRange(1, 3).Draw(rt, "parallel"),
		gateways:  rapid.IntRange(1, 4).Draw(rt, "gateways"),
		reconnect: rapid.IntRange(0, 100).Draw(rt, "reconnect"),
	}
	kinds := []edda.WorkKind{edda.WorkFact, edda.WorkEffect, edda.WorkCommand, edda.WorkRevoke}
	for i := range rapid.IntRange(1, 100).Draw(rt, "rows") {
		w := work(fmt.Sprintf("%04d", i), rapid.SampledFrom(kinds).Draw(rt, "kind"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "instance"))
		w.High = rapid.Bool().Draw(rt, "high")
		p.rows, p.pauses = append(p.rows, w), append(p.pauses, millis(rt, 20, "pause"))
	}
	return p
}

func millis(rt *rapid.T, most int, label string) time.Duration {
	return time.Duration(rapid.IntRange(0, most).Draw(rt, label)) * time.Millisecond
}

// Under any failures, each destination accepts the rows of one instance in commit order and every
// row at least once. Only effects stay in the outbox.
func TestRelayKeepsOrderUnderRandomFailures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, problem := drawPlan(rt), ""
		bubble(t, func(t *testing.T) { problem = p.run(t) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// run executes the plan and returns what went wrong, or nothing.
func (p plan) run(t *testing.T) string {
	db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
	var n atomic.Int32
	flaky := func(edda.Work) error {
		if i := int(n.Add(1)); i < 60 && p.fails[i%len(p.fails)] < 4 {
			return errDown
		}
		return nil
	}
	nats.refuse, gateway.refuse, nats.delay = flaky, flaky, p.delay
	a, b := nats.route("nats", facts...), gateway.route("gateway", edda.WorkCommand)
	a.Batch, a.Parallel, b.Batch, b.Parallel = p.batch, p.parallel, 1, p.gateways
	r := start(t, db, Options{Routes: []Route{a, b}})
	effects := 0
	for i, w := range p.rows {
		if w.Kind == edda.WorkEffect {
			effects++
		}
		db.put(w)
		time.Sleep(p.pauses[i])
		if i == p.reconnect {
			r.Republish()
		}
	}
	time.Sleep(45 * time.Minute) // 60 failures, at most half a minute apart
	synctest.Wait()
	if db.size() != effects {
		return fmt.Sprintf("%d rows left, want the %d effects", db.size(), effects)
	}
	return disorder(nats) + disorder(gateway)
}

// disorder describes the first row that was accepted out of order, by first acceptances.
func disorder(h *fakeDestination) string {
	seen, last := map[string]bool{}, map[edda.Key]string{}
	for _, w := range h.got {
		if seen[w.ID] {
			continue
		}
		seen[w.ID] = true
		if w.ID < last[w.From] {
			return fmt.Sprintf("%s accepted after %s of the same instance", w.ID, last[w.From])
		}
		last[w.From] = w.ID
	}
	return ""
}

func TestNothingIsDeliveredBeforeAfterIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, may := newMemStore(), newFakeDestination(t), make(chan struct{})
		r := start(t, db, Options{Routes: []Route{nats.route("nats", facts...)}, After: may})
		db.put(fact("a", "a"))
		time.Sleep(time.Hour)
		wantIDs(t, nats)
		if err := r.Flush(t.Context()); !errors.Is(err, errNotStarted) {
			t.Errorf("Flush: %v", err)
		}
		close(may)
		if err := r.Flush(t.Context()); err != nil {
			t.Errorf("Flush: %v", err)
		}
		wantIDs(t, nats, "a")
	})
}

// fakeTaker is a destination that takes effects at once, unless it is busy.
type fakeTaker struct {
	*fakeDestination
	sync.Mutex // guards the fields below
	busy       bool
	took       []string
	kept       []*edda.Work // pointers to the same, as Take got them
	asked      map[string]int
}

func (p *fakeTaker) Take(w *edda.Work) bool {
	p.Lock()
	defer p.Unlock()
	p.asked[w.ID]++
	if w.Kind != edda.WorkEffect || p.busy {
		return false
	}
	p.took, p.kept = append(p.took, w.ID), append(p.kept, w)
	return true
}

// TestTakeDoesNotWaitForABatch: it works during a Deliver and while the destination is down, but
// not before an earlier row of the instance. Deliver gets what Take refuses.
func TestTakeDoesNotWaitForABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		p := &fakeTaker{fakeDestination: h, asked: map[string]int{}}
		h.delay = time.Second
		l := h.route("nats", append(facts, edda.WorkResult)...)
		l.Destination = p
		start(t, db, Options{Routes: []Route{l}})
		took := func(want ...string) {
			t.Helper()
			synctest.Wait()
			p.Lock()
			defer p.Unlock()
			if !slices.Equal(p.took, want) {
				t.Errorf("took %v, want %v", p.took, want)
			}
		}
		db.put(fact("f", "1"))
		took()
		db.put(effect("e1", "2"), work("copy", edda.WorkResult, "3"), effect("e3", "3"), effect("e4", "4"))
		took("e1", "e4") // while f is in flight
		time.Sleep(time.Second)
		took("e1", "e4")
		time.Sleep(time.Second)
		took("e1", "e4", "e3")
		busy := func(is bool) { p.Lock(); p.busy = is; p.Unlock() }
		busy(true)
		db.put(effect("e5", "5"))
		time.Sleep(2 * time.Second)
		wantIDs(t, h, "f", "copy", "e5")
		if p.asked["e5"] != 1 {
			t.Errorf("asked %d times for e5", p.asked["e5"])
		}
		busy(false)
		h.refusing(func(edda.Work) error { return errDown })
		for i := range downAfter + 2 {
			db.put(fact(fmt.Sprint("d", i), fmt.Sprint("d", i)))
		}
		time.Sleep(time.Minute)
		db.put(effect("e6", "6"))
		took("e1", "e4", "e3", "e6")
		for i, w := range p.kept {
			if w.ID != p.took[i] {
				t.Errorf("the work of %s has become %q", p.took[i], w.ID)
			}
		}
	})
}
