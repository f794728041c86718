package replay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/internal/jsonvalue"
)

// busy gives the order saga a varied history: starts, restarts, early and poison events, results,
// timers that fire, are missed and are skipped, operators' commands.
func busy(w *world, keys, rounds int) {
	rnd := rand.New(rand.NewPCG(7, uint64(w.n))) // another history in each call
	pick := func() string { return fmt.Sprintf("O%d", rnd.IntN(keys)) }
	for range rounds {
		w.later(time.Duration(rnd.IntN(200)) * time.Minute)
		for range keys {
			switch n := rnd.IntN(20); {
			case n < 6:
				w.log.publish(w.event("Placed", pick(), map[string]any{"total": rnd.IntN(100)}))
			case n < 10:
				w.log.publish(w.event("Noted", pick(), map[string]any{"by": rnd.IntN(9)}))
			case n < 11:
				w.log.publish(w.event("Noted", pick(), map[string]any{"by": nil})) // poison
			case n < 12:
				w.log.publish(w.event("Closed", pick(), nil))
			case n < 13:
				w.log.publish(w.event("Dropped", pick(), nil))
			case n < 14:
				w.log.publish(w.event("Paid", pick(), nil))
			case n < 15:
				w.log.publish(w.event("Seen", pick(), nil))
			default:
				verbs := []string{edda.VerbCancel, edda.VerbTerminate, edda.VerbRetry, edda.VerbSkip, edda.VerbResolve, edda.VerbRedrive, edda.VerbDrop, edda.VerbDrop}
				w.log.publish(w.verb(verbs[rnd.IntN(len(verbs))], pick(), []string{"thank", "charge.undo"}[rnd.IntN(2)]))
			}
		}
		w.settle()
		for _, row := range w.outbox() {
			if rnd.IntN(3) == 0 && row.Work.Kind == edda.WorkEffect {
				w.log.publish(w.result(row.Work, []edda.Outcome{edda.Succeeded, edda.Succeeded, edda.Failed, edda.TimedOut}[rnd.IntN(4)]))
			}
		}
		w.settle()
		w.fire()
	}
}

func TestReplayGivesTheSameBytesAndSendsNothing(t *testing.T) {
	w := newWorld(t, orderSaga, watchSaga)
	busy(w, 40, 40)
	state, out := w.state(), len(w.outbox())
	r := w.replay(Request{By: "ann", Reason: "to be sure"})
	s := r.Progress
	if s.Changed != 0 || s.Exchanged != 0 || s.NewWork != 0 || s.GoneWork != 0 || s.Sent != 0 || len(s.Differences) != 0 || s.Unbuilt != 0 {
		t.Errorf("%+v", s)
	}
	if s.Same < 35 || s.KeysDone != s.KeysTotal || s.EventsDone != s.EventsTotal || s.EventsTotal < 1000 {
		t.Errorf("%+v", s)
	}
	w.sameState(state)
	if now := len(w.outbox()); now != out {
		t.Errorf("the outbox had %d rows, and has %d", out, now)
	}
	audits, err := w.db.Audits(1)
	if err != nil || len(audits) != 1 || audits[0].Verb != edda.VerbReplay || audits[0].By != "ann" || audits[0].Reason != "to be sure" || audits[0].Detail == "" {
		t.Errorf("audits: %+v, %v", audits, err)
	}
	w.check()
}

// fixed is the order saga with the mistake in Noted corrected.
func fixed() string {
	text := strings.Replace(orderSaga, "version: 1", "version: 2", 1)
	return strings.Replace(text, "event.by * 2", "event.by", 1)
}

func TestReplayAppliesAFixedManifest(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Noted", "O1", map[string]any{"by": 3}), w.event("Placed", "O2", map[string]any{"total": 7}))
	w.swap(fixed())
	state, out := w.state(), len(w.outbox())

	r := w.replay(Request{Newest: true, DryRun: true})
	var paths []string
	for _, d := range r.Progress.Differences {
		paths = append(paths, fmt.Sprintf("%s %s %s %s", d.Key, d.Path, d.Was, d.Is))
	}
	if !slices.Contains(paths, "O1 state.n 6 3") || !slices.Contains(paths, "O2 version 1 2") || slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, "O2 state") }) {
		t.Errorf("differences: %q", paths)
	}
	w.sameState(state)

	r = w.replay(Request{Newest: true})
	if r.Progress.Exchanged != 2 || !strings.Contains(w.stateOf("O1"), `"n":3`) || len(w.outbox()) != out {
		t.Errorf("%+v, %s, outbox %d then %d", r.Progress, w.stateOf("O1"), out, len(w.outbox()))
	}
	// A key built with another version comes out the same again, with later events.
	w.give(w.event("Noted", "O1", map[string]any{"by": 4}))
	state = w.state()
	if r = w.replay(Request{}); r.Progress.Changed != 0 || r.Progress.Same != 2 || !strings.Contains(w.stateOf("O1"), `"n":7`) {
		t.Errorf("%+v, %s", r.Progress, w.stateOf("O1"))
	}
	w.sameState(state)
	if _, err := w.replayer.Begin(t.Context(), Request{Tenant: tenant, Saga: "order", Version: 1}); !errors.Is(err, edda.Permanent) {
		t.Errorf("instances would be left on a version that does not run: %v", err)
	}
	w.swap(orderSaga, fixed())
	if r = w.replay(Request{Version: 1}); r.Progress.Exchanged != 2 || !strings.Contains(w.stateOf("O1"), `"n":14`) {
		t.Errorf("%+v, %s", r.Progress, w.stateOf("O1"))
	}
	w.check()
}

// Without an error, a mistyped stream would look as if there were nothing to do.
func TestReplayRefusesAnUnknownStream(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 1}))
	for _, q := range []Request{{Stream: "AGREGATE_EVENTS", FromSeq: 1}, {Stream: aggregateEvents}} {
		q.Tenant, q.Saga, q.DryRun = tenant, "order", true
		if _, err := w.replayer.Begin(t.Context(), q); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), q.Stream) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if r := w.replay(Request{Stream: aggregateEvents, FromSeq: 1, DryRun: true}); r.Progress.Same != 1 {
		t.Errorf("%+v", r.Progress)
	}
}

// A replay under another version gives a state that a second replay does not change, and the store
// stays consistent.
func TestReplayUnderAnotherVersionIsIdempotent(t *testing.T) {
	w := newWorld(t, orderSaga, watchSaga)
	busy(w, 25, 25)
	w.swap(fixed(), watchSaga)
	out := len(w.outbox())
	r := w.replay(Request{Newest: true})
	if r.Progress.Exchanged < 20 || len(w.outbox()) != out {
		t.Errorf("%+v; outbox %d then %d", r.Progress, out, len(w.outbox()))
	}
	w.check()
	busy(w, 25, 10)
	state := w.state()
	if r = w.replay(Request{}); r.Progress.Changed != 0 {
		t.Errorf("%+v", r.Progress)
	}
	w.sameState(state)
	w.check()
}

// greets emits a command that version 1 did not.
func greets() string {
	return strings.Replace(fixed(), "      - {timer: close", "      - {effect: greet, due: 1h}\n      - {timer: close", 1)
}

// ids counts the work in the outbox by its id.
func (w *world) ids() map[string]int {
	out := map[string]int{}
	for _, r := range w.outbox() {
		out[r.Work.Name+" of "+r.Work.From.Correlation+" "+r.Work.ID]++
	}
	return out
}

func TestEmitNewSendsNewWorkOnce(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Placed", "O2", map[string]any{"total": 7}))
	w.swap(greets())
	before := w.ids()
	r := w.replay(Request{Newest: true})
	if r.Progress.NewWork != 2 || r.Progress.Sent != 0 || len(r.Progress.Work) != 2 || r.Progress.Work[0].Name != "greet" || r.Progress.Work[0].Sent {
		t.Errorf("%+v", r.Progress)
	}
	if now := w.ids(); len(now) != len(before) {
		t.Errorf("outbox was %v and is %v", before, now)
	}
	for i, sent := range []int{2, 0} {
		if r = w.replay(Request{Emit: EmitNew}); r.Progress.Sent != sent {
			t.Errorf("replay %d: %+v", i, r.Progress)
		}
	}
	now := w.ids()
	if len(now) != len(before)+2 {
		t.Errorf("outbox was %v and is %v", before, now)
	}
	for id, n := range now {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	w.check()
}

func TestEmitAllSendsWorkUnderItsOldIDs(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	charge := w.outbox()[0].Work
	answer := w.result(charge, edda.Succeeded)
	w.give(answer) // then the saga emits ship
	before := w.ids()
	r := w.replay(Request{Emit: EmitAll})
	if r.Progress.AllWork != 2 || r.Progress.Sent != 2 || r.Progress.NewWork != 0 {
		t.Errorf("%+v", r.Progress)
	}
	now := w.ids()
	if len(before) != 1 || len(now) != 2 || now["charge of O1 "+charge.ID] != 1 {
		t.Errorf("outbox was %v and is %v", before, now)
	}
	w.give(answer) // the ledger gives the same answer
	if now := w.ids(); len(now) != 1 || now["charge of O1 "+charge.ID] != 0 {
		t.Errorf("outbox is %v", now)
	}
	w.check()
}

func TestReplayContinuesAfterAKill(t *testing.T) {
	w := newWorld(t, orderSaga)
	for i := range 20 {
		id := fmt.Sprintf("O%02d", i)
		w.give(w.event("Placed", id, map[string]any{"total": i}), w.event("Noted", id, map[string]any{"by": 3}))
	}
	w.swap(greets())
	out := len(w.outbox())
	began := make(chan string, 1)
	dead := make(chan struct{})
	w.reached = func(point string) {
		if point == "exchange of O11" {
			w.until("those before it are exchanged", func() bool { return w.report(w.newest()).Progress.Exchanged == 11 })
			close(dead)
			<-w.killed // the goroutines of the killed process have ended
		}
	}
	report, err := w.replayer.Begin(t.Context(), Request{Tenant: tenant, Saga: "order", Newest: true, Emit: EmitNew, By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	began <- report.ID
	<-dead
	w.kill()
	if !strings.Contains(w.beforeKill("O10"), `"n":3`) || !strings.Contains(w.beforeKill("O11"), `"n":6`) {
		t.Fatal("the kill was not in the middle")
	}
	w.reached = func(string) {}
	w.start()
	r := w.ended(<-began)
	if r.Progress.Same != 11 || r.Progress.Before != 11 || r.Progress.Exchanged != 9 || r.By != "ann" || r.Emit != EmitNew {
		t.Errorf("%+v", r)
	}
	for i := range 20 {
		if s := w.stateOf(fmt.Sprintf("O%02d", i)); !strings.Contains(s, `"n":3`) {
			t.Errorf("O%02d: %s", i, s)
		}
	}
	if now := len(w.outbox()); now != out+20 {
		t.Errorf("the outbox had %d rows, and has %d", out, now)
	}
	w.check()
}

func TestLiveProcessingContinuesDuringAReplay(t *testing.T) {
	w := newWorld(t, orderSaga, watchSaga)
	for i := range 10 {
		w.give(w.event("Placed", fmt.Sprintf("O%d", i), map[string]any{"total": i}), w.event("Seen", fmt.Sprintf("O%d", i), nil))
	}
	w.swap(fixed(), watchSaga)
	n := 0
	const most = 30
	w.reached = func(point string) { // at any point, also between building and exchanging
		if n == most {
			return
		}
		for i := range 10 {
			w.log.publish(w.event("Noted", fmt.Sprintf("O%d", i), map[string]any{"by": 1}))
			w.log.publish(w.event("More", fmt.Sprintf("O%d", i), nil))
		}
		n++
		w.settle()
	}
	r := w.replay(Request{Newest: true})
	w.settle()
	if r.Progress.Exchanged != 10 || n != most {
		t.Errorf("%d, %+v", n, r.Progress)
	}
	state := w.state()
	for i := range 10 {
		k := edda.Key{Tenant: tenant, Saga: "watch", Correlation: fmt.Sprintf("O%d", i)}
		if got := w.stateOf(fmt.Sprintf("O%d", i)); !strings.Contains(got, fmt.Sprintf(`"n":%d`, n)) || !strings.Contains(state[k.String()], fmt.Sprintf(`"seen":%d`, n+1)) {
			t.Errorf("O%d: %s, %s", i, got, state[k.String()])
		}
	}
	w.reached = func(string) {}
	if r = w.replay(Request{}); r.Progress.Changed != 0 {
		t.Errorf("%+v", r.Progress)
	}
	w.sameState(state)
}

func TestReplayFromASequenceOrATime(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Placed", "O2", map[string]any{"total": 5}))
	w.later(time.Hour)
	w.give(w.event("Noted", "O2", map[string]any{"by": 1}))
	w.swap(fixed())
	for name, q := range map[string]Request{
		"sequence": {FromSeq: 3}, "time": {FromTime: w.now}, "key": {Key: "O2"},
	} {
		q.Newest, q.DryRun = true, true
		if p := w.replay(q).Progress; p.Changed != 1 || p.Same != 0 || p.Differences[0].Key != "O2" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p := w.replay(Request{FromSeq: 4, Newest: true, DryRun: true}).Progress; p.Changed != 0 {
		t.Errorf("%+v", p)
	}
}

// Events that came before the saga was loaded are in the streams and in no history.
func TestEventsWithoutHistoryAreApplied(t *testing.T) {
	w := newWorld(t, watchSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Noted", "O1", map[string]any{"by": 2}), w.event("Dropped", "O2", nil),
		w.verb(edda.VerbCancel, "O9", "")) // refused when it came
	w.swap(orderSaga, watchSaga)
	w.give(w.event("Placed", "O3", map[string]any{"total": 5}), w.event("Dropped", "O4", nil))
	w.give(w.event("Placed", "O4", map[string]any{"total": 5})) // a dropped event stays dropped
	r := w.replay(Request{})
	if p := r.Progress; p.Changed != 1 || p.Same != 3 || p.NewWork != 1 || p.Sent != 0 || p.Extra != 3 {
		t.Errorf("%+v", p)
	}
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":4`) {
		t.Error(s)
	}
	state := w.state()
	if p := w.replay(Request{}).Progress; p.Changed != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
	if p := w.replay(Request{Emit: EmitNew}).Progress; p.Sent != 1 {
		t.Errorf("%+v", p)
	}
	w.check()
}

// TestAReplayLeavesTheKeysOfOtherShards: their events are in the streams, too, and begin no instance here.
func TestAReplayLeavesTheKeysOfOtherShards(t *testing.T) {
	w := newWorld(t, watchSaga)
	const of = 2
	want := 0
	for i := range 10 {
		w.give(w.event("Placed", fmt.Sprint("O", i), map[string]any{"total": 5}))
		if k := w.key(fmt.Sprint("O", i)); (edda.Shard{Index: 0, Of: of}).Has(k) {
			want++
		}
	}
	w.swap(orderSaga, watchSaga)
	w.stop()
	w.shard = edda.Shard{Index: 0, Of: of}
	w.start()
	r := w.replay(Request{})
	if p := r.Progress; want == 0 || want == 10 || p.Extra != want || p.Changed != want {
		t.Errorf("%d of 10 keys are in the shard: %+v", want, p)
	}
}

func TestReplayReleasesAKeyWhosePoisonIsFixed(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Noted", "O1", map[string]any{"by": nil}), w.event("Noted", "O1", map[string]any{"by": 1}))
	if dead, _ := w.db.DeadLetters("", 10); len(dead) != 1 {
		t.Fatalf("%v", dead)
	}
	w.swap(orderSaga, strings.Replace(fixed(), "state.n + event.by", "state.n + (event.by ?? 10)", 1))
	if p := w.replay(Request{Newest: true}).Progress; p.Exchanged != 1 {
		t.Errorf("%+v", p)
	}
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":11`) {
		t.Error(s)
	}
	if dead, _ := w.db.DeadLetters("", 10); len(dead) != 0 {
		t.Errorf("%v", dead)
	}
	w.check()
	// Back to version 1: the poison event holds the key again, with its dead letter.
	if p := w.replay(Request{Version: 1}).Progress; p.Exchanged != 1 {
		t.Errorf("%+v", p)
	}
	if dead, _ := w.db.DeadLetters("", 10); len(dead) != 1 {
		t.Errorf("%v", dead)
	}
	w.give(w.verb(edda.VerbDrop, "O1", ""))
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":2`) {
		t.Error(s)
	}
	w.check()
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	w := newWorld(t, orderSaga)
	for name, q := range map[string]Request{
		"no saga": {Tenant: tenant}, "unknown saga": {Saga: "other"}, "emit": {Saga: "order", Emit: "some"},
		"two beginnings": {Saga: "order", FromSeq: 1, FromTime: w.now}, "two versions": {Saga: "order", Version: 1, Newest: true}, "no such version": {Saga: "order", Version: 9},
		"id": {Saga: "order", ID: "r1"},
	} {
		if _, err := w.replayer.Begin(t.Context(), q); !errors.Is(err, edda.Permanent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// With expired history a replay builds from what the streams still hold, and says so. A key that
// they cannot give stays as it is.
func TestExpiredHistoryIsBuiltFromTheStreams(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Placed", "O2", map[string]any{"total": 6}), w.event("Noted", "O2", map[string]any{"by": 3}))
	state, out := w.state(), len(w.outbox())
	w.forgetHistory()
	r := w.replay(Request{Emit: EmitNew})
	if p := r.Progress; p.Expired != 2 || p.Same != 2 || p.Sent != 0 || !strings.Contains(strings.Join(p.Notes, " "), "from the streams alone") {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
	w.log.begins[testStream] = 2
	r = w.replay(Request{})
	if p := r.Progress; p.Unbuilt != 2 || p.Exchanged != 0 || !strings.Contains(strings.Join(p.Notes, " "), "begins at sequence 2") {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
	if now := len(w.outbox()); now != out {
		t.Errorf("the outbox had %d rows, and has %d", out, now)
	}
}

// A version that is not stored any more affects its key only, not the replay.
func TestAKeyWithAMissingVersionIsNotChanged(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Closed", "O1", nil))
	w.swap(fixed())
	w.give(w.event("Placed", "O2", map[string]any{"total": 5}))
	w.unkept = 1
	state := w.state()
	r := w.replay(Request{})
	if p := r.Progress; p.Unbuilt != 1 || p.Same != 1 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "O1 stays as it is") {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}

func TestTooManyReplaysAreRefused(t *testing.T) {
	w := newWorld(t, orderSaga)
	hold := make(chan struct{})
	w.reached = func(string) { <-hold }
	var last string
	for range maxWaiting + 1 {
		r, err := w.replayer.Begin(t.Context(), Request{Tenant: tenant, Saga: "order"})
		if err != nil {
			t.Fatal(err)
		}
		last = r.ID
	}
	if _, err := w.replayer.Begin(t.Context(), Request{Tenant: tenant, Saga: "order"}); !errors.Is(err, edda.Temporary) {
		t.Errorf("%v", err)
	}
	close(hold)
	w.ended(last)
}

func TestOldReplaysAreDropped(t *testing.T) {
	w := newWorld(t, orderSaga)
	for range maxKept + 5 {
		w.replay(Request{})
	}
	rows, err := w.db.Replays()
	if err != nil || len(rows) != maxKept {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if all, err := w.replayer.Reports(); err != nil || len(all) != maxKept || all[0].ID < all[1].ID {
		t.Errorf("%d reports, %v", len(all), err)
	}
}

// A dry run is not recorded: after a restart only its audit row exists.
func TestADryRunStoresOnlyItsAudit(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	w.replay(Request{DryRun: true, By: "ann"})
	if rows, err := w.db.Replays(); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
	if audits, err := w.db.Audits(1); err != nil || len(audits) != 1 || !strings.Contains(audits[0].Detail, "dry run") {
		t.Errorf("%v, %v", audits, err)
	}
}

// A start that was poison is applied again by a later version. The replay must let the earlier
// version decide about it first.
func TestAStartThatWasPoisonIsReplayed(t *testing.T) {
	w := newWorld(t, strings.Replace(orderSaga, "total: =event.total", `total: "=event.total + 0"`, 1))
	w.give(w.event("Placed", "O1", map[string]any{"total": nil}), w.event("Noted", "O1", map[string]any{"by": 2}))
	w.give(w.event("Placed", "O2", map[string]any{"total": nil}), w.event("Placed", "O2", map[string]any{"total": 2}))
	w.swap(strings.Replace(orderSaga, "version: 1", "version: 2", 1))
	w.give(w.verb(edda.VerbRedrive, "O1", ""), w.verb(edda.VerbDrop, "O2", ""))
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":4`) {
		t.Fatal(s)
	}
	state := w.state()
	if p := w.replay(Request{}).Progress; p.Same != 2 || p.Changed != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}

// A redrive counts as handled also where the event becomes a dead letter again. What it released
// tells which version decided, and the replay uses that one.
func TestAFailedRedriveFailsInAReplay(t *testing.T) {
	first := strings.Replace(orderSaga, "total: =event.total", `total: "=event.total + 0"`, 1)
	for name, redrive := range map[string]func(*world, string) edda.Event{
		"of the key": func(w *world, id string) edda.Event { return w.verb(edda.VerbRedrive, id, "") },
		"of the dead letter": func(w *world, id string) edda.Event {
			letters, err := w.db.DeadLetters("", 10)
			i := slices.IndexFunc(letters, func(l edda.DeadLetter) bool { return l.Key == w.key(id) })
			if err != nil || i < 0 {
				w.t.Fatalf("%s has no dead letter: %v", id, err)
			}
			ev := w.verb(edda.VerbRedrive, id, "")
			if ev.Payload, err = jsonvalue.Encode(edda.Redrive{DeadLetter: letters[i].ID}); err != nil {
				w.t.Fatal(err)
			}
			return ev
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, first)
			for _, id := range []string{"O1", "O2"} {
				w.give(w.event("Placed", id, map[string]any{"total": nil}))
			}
			w.give(w.event("Noted", "O1", map[string]any{"by": 2}))
			for _, id := range []string{"O1", "O2", "O1"} {
				w.give(redrive(w, id)) // the manifest is not corrected yet
			}
			w.swap(strings.Replace(orderSaga, "version: 1", "version: 2", 1))
			w.give(redrive(w, "O1"), redrive(w, "O2"))
			if s := w.stateOf("O1"); !strings.Contains(s, `"n":4`) {
				t.Fatal(s)
			}
			state := w.state()
			if p := w.replay(Request{Emit: EmitNew}).Progress; p.Same != 2 || p.Changed != 0 || p.NewWork != 0 || p.Sent != 0 {
				t.Errorf("%+v", p)
			}
			w.sameState(state)
		})
	}
}

// A parked event expires when the version that parked it said.
func TestAParkedEventKeepsItsExpiry(t *testing.T) {
	text := strings.Replace(orderSaga, "  Noted: {set", "  Noted: {park: 3h, set", 1)
	w := newWorld(t, text)
	w.give(w.event("Noted", "O1", map[string]any{"by": 2}), w.event("Noted", "O2", map[string]any{"by": 2}))
	w.swap(strings.NewReplacer("version: 1", "version: 2", "park: 3h", "park: 5h").Replace(text))
	state := w.state()
	if p := w.replay(Request{}).Progress; p.Same != 2 || p.Changed != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
	if p := w.replay(Request{Newest: true}).Progress; p.Exchanged != 2 {
		t.Errorf("%+v", p)
	}
	w.check()
	w.later(4 * time.Hour)
	w.fire()
	w.give(w.event("Placed", "O1", map[string]any{"total": 1}))
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":4`) {
		t.Error(s)
	}
	if dead, _ := w.db.DeadLetters("", 10); len(dead) != 0 {
		t.Errorf("%v", dead)
	}
	w.later(2 * time.Hour)
	w.fire()
	if dead, _ := w.db.DeadLetters("", 10); len(dead) != 1 || dead[0].Key != w.key("O2") || dead[0].Reason != edda.DeadUnmatched {
		t.Errorf("%v", dead)
	}
}

// A stop in the middle does not end a replay: the remaining keys are exchanged after the next
// start.
func TestReplayContinuesAfterAStop(t *testing.T) {
	w := newWorld(t, orderSaga)
	for i := range 5 {
		id := fmt.Sprintf("O%d", i)
		w.give(w.event("Placed", id, map[string]any{"total": i}), w.event("Noted", id, map[string]any{"by": 3}))
	}
	w.swap(fixed())
	drained := make(chan error, 1)
	w.reached = func(point string) {
		if point == "exchange of O2" {
			w.until("those before it are exchanged", func() bool { return w.report(w.newest()).Progress.Exchanged == 2 })
			drained <- w.engine.Drain(t.Context())
		}
	}
	began, err := w.replayer.Begin(t.Context(), Request{Tenant: tenant, Saga: "order", Newest: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.reached = func(string) {}
	w.start()
	if p := w.ended(began.ID).Progress; p.Same != 2 || p.Exchanged != 3 {
		t.Errorf("%+v", p)
	}
}

func TestEachGenerationHasItsOwnVersion(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Noted", "O1", map[string]any{"by": 3}), w.event("Closed", "O1", nil))
	w.swap(orderSaga, fixed())
	w.give(w.event("Noted", "O1", map[string]any{"by": 3}), w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Noted", "O1", map[string]any{"by": 3}))
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":3`) {
		t.Fatal(s)
	}
	state := w.state()
	if p := w.replay(Request{}).Progress; p.Same != 1 || p.Changed != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}

func TestReplayNeverRemovesAnInstance(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	state := w.state()
	w.swap(orderSaga, strings.Replace(fixed(), "  Placed:", "  Opened:", 1)) // no recorded event starts an instance
	if p := w.replay(Request{Newest: true}).Progress; p.Unbuilt != 1 || p.Exchanged != 0 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "would not begin") {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}

func TestEventsOfTwoStreamsAreAppliedInStoreOrder(t *testing.T) {
	w := newWorld(t, watchSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	w.later(time.Minute)
	closed := w.event("Closed", "O1", nil)
	closed.Stream = otherStream
	w.give(closed)
	w.later(time.Minute)
	w.give(w.event("Noted", "O1", map[string]any{"by": 2}))
	w.swap(orderSaga, watchSaga)
	w.replay(Request{})
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":0`) {
		t.Errorf("what was closed took something in: %s", s)
	}
	w.check()
}

func TestParkedEventsAreAppliedByAReplayThatStartsTheInstance(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Noted", "O1", map[string]any{"by": 2}))
	w.swap(orderSaga, strings.Replace(fixed(), "  Noted: {set", "  Noted: {start: true, set", 1))
	if p := w.replay(Request{Newest: true}).Progress; p.Exchanged != 1 {
		t.Errorf("%+v", p)
	}
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":2`) {
		t.Error(s)
	}
	w.check()
}

// An event that the old version did not take and the new one does is applied after history.
// TestABatchIsReplayedByMember: history has one, and the streams alone have another one of the same message.
func TestABatchIsReplayedByMember(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.giveBatch(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Gifted", "O1", nil), w.event("Noted", "O1", map[string]any{"by": 2}),
		w.event("Noted", "O1", map[string]any{"by": 3}))
	state := w.state()
	if p := w.replay(Request{}).Progress; p.Changed != 0 || p.Same != 1 || p.Extra != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
	w.swap(orderSaga, strings.Replace(fixed(), "  Noted:", "  Gifted: {set: {n: \"=state.n + 1000\"}}\n  Noted:", 1))
	if p := w.replay(Request{Newest: true}).Progress; p.Extra != 1 || p.Exchanged != 1 {
		t.Errorf("%+v", p)
	}
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":1005`) {
		t.Error(s)
	}
	w.check()
}

func TestANewVersionGetsEventsThatTheOldOneIgnored(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Gifted", "O1", nil), w.event("Noted", "O1", map[string]any{"by": 2}))
	w.swap(orderSaga, strings.Replace(fixed(), "  Noted:", "  Gifted: {set: {n: \"=state.n + 1000\"}}\n  Noted:", 1))
	if p := w.replay(Request{Newest: true}).Progress; p.Extra != 1 || p.Exchanged != 1 {
		t.Errorf("%+v", p)
	}
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":1002`) {
		t.Error(s)
	}
	state := w.state()
	for _, q := range []Request{{}, {Newest: true}} {
		if p := w.replay(q).Progress; p.Changed != 0 || p.Extra != 0 {
			t.Errorf("%+v: %+v", q, p)
		}
	}
	w.sameState(state)
}

// An event that a command releases may start a generation on a newer version than the command's.
func TestAReleasedStartKeepsItsVersion(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}), w.event("Noted", "O1", map[string]any{"by": nil}), w.event("Placed", "O1", map[string]any{"total": 6}), w.event("Noted", "O1", map[string]any{"by": 3}))
	w.swap(orderSaga, fixed())
	w.give(w.verb(edda.VerbTerminate, "O1", ""))
	if s := w.stateOf("O1"); !strings.Contains(s, `"n":3`) {
		t.Fatal(s)
	}
	state := w.state()
	if p := w.replay(Request{}).Progress; p.Same != 1 || p.Changed != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}

// Versions change in the middle of history; each row keeps its own version.
func TestReplayOverThreeVersionsGivesTheSameBytes(t *testing.T) {
	w := newWorld(t, orderSaga, watchSaga)
	third := strings.Replace(greets(), "version: 2", "version: 3", 1)
	busy(w, 40, 15)
	w.swap(orderSaga, fixed(), watchSaga)
	busy(w, 40, 15)
	w.swap(orderSaga, fixed(), third, watchSaga)
	busy(w, 40, 15)
	state, out := w.state(), len(w.outbox())
	p := w.replay(Request{}).Progress
	if p.Changed != 0 || p.Same < 35 || p.NewWork != 0 || p.GoneWork != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
	if now := len(w.outbox()); now != out {
		t.Errorf("the outbox had %d rows, and has %d", out, now)
	}
}
