package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/engine"
	"edda/saga"
	"edda/store"
)

// tally counts what it takes; Gap may be missing, New has versions, Skip is given up.
const tally = `saga: tally
version: 1
key: event.k
state: {n: 0, log: ""}
events: {New: {upcast: {1: {set: {amount: 1}}}}}
on:
  Begin: {start: true}
  Add: {park: 5m, set: {n: "=state.n + event.amount", log: "=state.log + event.id"}}
  New: {set: {n: "=state.n + event.amount"}}
  Skip: {on_poison: skip, set: {n: "=state.n + event.amount", log: "=state.log + event.id"}}
  signal.more: {set: {n: "=state.n + 1"}}
`

func key(correlation string) edda.Key {
	return edda.Key{Tenant: tenant, Saga: "tally", Correlation: correlation}
}

// letters are the dead letters of a key, of all where it is empty.
func (w *world) letters(correlation string) (out []edda.DeadLetter) {
	w.t.Helper()
	all, err := w.running.db.DeadLetters("", 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range all {
		if correlation == "" || d.Key.Correlation == correlation {
			out = append(out, d)
		}
	}
	return out
}

// letter is the only one of a key.
func (w *world) letter(correlation string) edda.DeadLetter {
	w.t.Helper()
	all := w.letters(correlation)
	if len(all) != 1 {
		w.t.Fatalf("%d dead letters of %q: %+v", len(all), correlation, all)
	}
	return all[0]
}

// on sends a verb about a dead letter, as the API does.
func (w *world) on(d edda.DeadLetter, verb, id string, data json.RawMessage) engine.EventResult {
	w.t.Helper()
	payload, err := json.Marshal(edda.Redrive{DeadLetter: d.ID, Data: data})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.act(edda.Event{Kind: edda.KindOperator, Type: verb, ID: id, Key: d.Key, Payload: payload, By: "ann", Why: "a test"})
}

// reload swaps the sagas, as a reload does: what ran before is kept for those that began with it.
func (w *world) reload(text string) {
	w.t.Helper()
	before := w.sagas
	w.sagas = nil
	w.compile("reloaded.yaml", []byte(text))
	set, err := saga.NewSet(w.sagas...)
	if err == nil {
		set, err = set.Keep(before...)
	}
	if err == nil {
		err = w.running.engine.Swap(context.Background(), set)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.running.scheduler.Swap(set)
}

func (w *world) add(k, id, more string) {
	w.t.Helper()
	w.send(id, "Add", k, fmt.Sprintf(`{"k":%q,"id":%q%s}`, k, id, more))
}

func (w *world) tallied(k, n, log string) {
	w.t.Helper()
	in := w.instance("tally", k)
	if in == nil {
		w.t.Fatalf("no instance %s; %s", k, w.story())
	}
	if got := field(in.State, "n"); got != n || field(in.State, "log") != log {
		w.t.Errorf("%s has %s, want %s and %q; %s", k, in.State, n, log, w.story())
	}
}

func (w *world) queues() store.Queues { return w.running.db.Queues() }

func TestParkedEventsExpireIntoDeadLettersAndAreRedrivenWhenTheirInstanceLives(t *testing.T) {
	inBubble(t, []string{tally}, func(w *world) {
		begin := time.Now()
		w.add("A", "a1", `,"amount":1`)
		w.pass(begin.Add(100 * time.Millisecond))
		w.add("A", "a2", `,"amount":10`)
		w.until("both are parked", func() bool { return w.queues().Parked == 2 })
		w.pass(begin.Add(5*time.Minute - time.Second))
		if n := len(w.letters("")); n != 0 {
			t.Fatalf("%d dead a second before their time", n)
		}
		w.pass(begin.Add(5*time.Minute + time.Second))
		all := w.letters("A")
		if len(all) != 2 || all[0].Reason != edda.DeadUnmatched || all[0].Event.ID != "a1" || all[1].Event.ID != "a2" {
			t.Fatalf("dead: %+v", all)
		}
		if q := w.queues(); q.Parked != 0 || q.Dead[edda.DeadUnmatched] != 2 {
			t.Errorf("counts %+v", q)
		}
		// Without an instance it is parked again, with its whole time to wait.
		o := w.on(all[0], edda.VerbRedrive, "r1", nil)
		if len(o.Released) != 1 || o.Released[0].Fate != edda.FateParked {
			t.Errorf("redrive without an instance: %+v", o)
		}
		if d := w.letter("A"); d.ID != all[1].ID {
			t.Errorf("left %+v", d)
		}
		w.send("b", "Begin", "A", `{"k":"A"}`)
		w.until("it runs", func() bool { return w.status("tally", "A") == edda.StatusRunning })
		w.tallied("A", "1", "a1")
		o = w.on(all[1], edda.VerbRedrive, "r2", nil)
		if len(o.Released) != 1 || o.Released[0].Fate != edda.FateHandled || o.Released[0].Event != "a2" {
			t.Errorf("redrive: %+v", o)
		}
		w.tallied("A", "11", "a1a2")
		// The same message from its producer is known.
		w.add("A", "a2", `,"amount":10`)
		w.until("the same again", func() bool { return len(w.fates("a2")) == 4 })
		same(t, "fates", w.fates("a2"), edda.FateParked, edda.FateDead, edda.FateHandled, edda.FateDuplicate)
		if q := w.queues(); len(q.Dead) != 0 || q.Parked != 0 {
			t.Errorf("counts %+v", q)
		}
	})
}

func TestADeadLetterThatTheProducerSentAgainIsNotAppliedTwice(t *testing.T) {
	inBubble(t, []string{tally}, func(w *world) {
		w.add("A", "a1", `,"amount":1`)
		w.pass(time.Now().Add(6 * time.Minute))
		d := w.letter("A")
		w.add("A", "a1", `,"amount":1`) // parked anew
		w.until("it is parked", func() bool { return w.queues().Parked == 1 })
		if o := w.on(d, edda.VerbRedrive, "r1", nil); o.Released[0].Fate != edda.FateDuplicate {
			t.Errorf("redrive beside the parked one: %+v", o)
		}
		w.send("b", "Begin", "A", `{"k":"A"}`)
		w.until("it runs", func() bool { return w.status("tally", "A") == edda.StatusRunning })
		w.tallied("A", "1", "a1")
		if n := len(w.letters("")); n != 0 {
			t.Errorf("%d letters are left", n)
		}
		// Sent again and applied, while its dead letter still lay there.
		w.add("B", "b1", `,"amount":1`)
		w.pass(time.Now().Add(6 * time.Minute))
		d = w.letter("B")
		w.send("bb", "Begin", "B", `{"k":"B"}`)
		w.add("B", "b1", `,"amount":1`)
		w.until("it is applied", func() bool {
			return w.status("tally", "B") != "" && field(w.instance("tally", "B").State, "log") == "b1"
		})
		if o := w.on(d, edda.VerbRedrive, "r2", nil); o.Released[0].Fate != edda.FateDuplicate {
			t.Errorf("redrive after the applied one: %+v", o)
		}
		w.tallied("B", "1", "b1")
	})
}

func TestAStartThatDiedTwiceIsAppliedOnceWhenBothAreRedriven(t *testing.T) {
	inBubble(t, []string{strings.Replace(tally, "Begin: {start: true}", `Begin: {start: true, on_poison: skip, set: {n: "=event.amount + 0", log: =event.id}}`, 1)}, func(w *world) {
		w.send("b", "Begin", "A", `{"k":"A","id":"b"}`)
		w.until("it died", func() bool { return len(w.letters("A")) == 1 })
		w.pass(time.Now().Add(time.Minute))
		w.send("b", "Begin", "A", `{"k":"A","id":"b"}`)
		w.until("it died again", func() bool { return len(w.letters("A")) == 2 })
		for i, d := range w.letters("A") {
			want := []edda.Fate{edda.FateHandled, edda.FateDuplicate}[i]
			if o := w.on(d, edda.VerbRedrive, fmt.Sprint("r", i), json.RawMessage(`{"k":"A","id":"b","amount":3}`)); len(o.Released) != 1 || o.Released[0].Fate != want {
				t.Errorf("redrive %d: %+v, want the event %s", i, o, want)
			}
		}
		w.tallied("A", "3", "b")
	})
}

// TestTwoRedrivesAtOnceApplyOnce also where the instance remembers the event as
// one that it gave up, which is no hindrance to a redrive.
func TestTwoRedrivesAtOnceApplyOnce(t *testing.T) {
	inBubble(t, []string{tally}, func(w *world) {
		w.send("b", "Begin", "A", `{"k":"A"}`)
		w.send("s1", "Skip", "A", `{"k":"A","id":"s1","amount":null}`)
		w.until("it died", func() bool { return len(w.letters("A")) == 1 })
		d := w.letter("A")
		if w.instance("tally", "A").Held != "" {
			t.Error("on_poison: skip held the key")
		}
		payload := fmt.Sprintf(`{"dead_letter":%q,"data":{"k":"A","id":"s1","amount":5},"event":{"kind":"event","id":"forged","type":"Add","payload":{"amount":99}}}`, d.ID)
		for i := range 3 { // the stream takes them as three, one after the other in one batch
			w.publish("tenant.acme.workflow.tally.A", fmt.Sprintf(`{"signal_id":%q,"kind":"operator","name":"redrive","payload":%s,"metadata":{"by":"ann","why":"n%d"}}`, "same", payload, i))
		}
		w.until("all came", func() bool { return len(w.fates("same")) == 3 })
		same(t, "the verbs", w.fates("same"), edda.FateHandled, edda.FateDuplicate, edda.FateDuplicate)
		w.tallied("A", "5", "s1")
		// Under another id there is no such letter any more.
		if o := w.on(d, edda.VerbRedrive, "other", nil); o.Fate != edda.FateLate || len(o.Outputs) != 1 || !strings.Contains(o.Outputs[0].Reason, "is gone") {
			t.Errorf("once more: %+v", o)
		}
		// Nor does one that brings an event of its own, or names the letter of another key.
		w.publish("tenant.acme.workflow.tally.A", fmt.Sprintf(`{"signal_id":"forged","kind":"operator","name":"redrive","payload":%s}`, payload))
		w.until("the forged one came", func() bool { return len(w.fates("forged")) == 1 })
		w.send("b2", "Begin", "B", `{"k":"B"}`)
		w.send("s2", "Skip", "A", `{"k":"A","id":"s2","amount":null}`)
		w.until("another died", func() bool { return len(w.letters("A")) == 1 })
		strange := w.letter("A")
		strange.Key = key("B")
		if o := w.on(strange, edda.VerbRedrive, "strange", json.RawMessage(`{"k":"B","id":"s2","amount":5}`)); o.Fate != edda.FateLate || len(w.letters("A")) != 1 {
			t.Errorf("the letter of another key: %+v", o)
		}
		w.tallied("A", "5", "s1")
		w.tallied("B", "0", "")
		audits, _, err := w.running.db.AuditsOf(store.AuditQuery{Tenant: tenant, Limit: 10})
		if err != nil || len(audits) != 6 || audits[5].Verb != edda.VerbRedrive || audits[5].By != "ann" || audits[5].Reason != "n0" || !strings.Contains(audits[5].Detail, d.ID) {
			t.Errorf("audit %+v, %v", audits, err)
		}
	})
}

func TestRedriveAfterANewVersionGoesOnWithItInOrder(t *testing.T) {
	inBubble(t, []string{tally}, func(w *world) {
		w.send("b", "Begin", "A", `{"k":"A"}`)
		w.add("A", "a1", `,"amount":1`)
		w.add("A", "a2", ``)
		w.add("A", "a3", `,"amount":100`)
		w.add("A", "a4", ``)
		w.until("they are held", func() bool { return w.queues().Held == 3 })
		d := w.letter("A")
		o := w.on(d, edda.VerbRedrive, "r1", nil)
		if o.Released[0].Fate != edda.FateDead || w.letter("A").Event.Redrives != 1 {
			t.Errorf("before it is mended: %+v", o)
		}
		if q := w.queues(); q.Held != 3 || q.HeldKeys != 1 || q.Dead[edda.DeadPoison] != 1 {
			t.Errorf("counts %+v", q)
		}
		w.reload(strings.Replace(strings.Replace(tally, "version: 1", "version: 2", 1), "state.n + event.amount", "state.n + (event.amount ?? 7)", 1))
		o = w.on(d, edda.VerbRedrive, "r2", nil)
		if len(o.Released) != 3 || o.Released[2].Fate != edda.FateHandled {
			t.Errorf("redrive: %+v", o)
		}
		w.tallied("A", "115", "a1a2a3a4")
		if in := w.instance("tally", "A"); in.Version != 2 || in.Held != "" {
			t.Errorf("version %d, held %q", in.Version, in.Held)
		}
		w.add("A", "a5", ``)
		w.until("it goes on", func() bool { return len(w.fates("a5")) == 1 })
		w.tallied("A", "122", "a1a2a3a4a5")
		if q := w.queues(); q.Held+q.HeldKeys+len(q.Dead) != 0 {
			t.Errorf("counts %+v", q)
		}
	})
}

func TestAVersionThatDoesNotFitTheInstanceLeavesItWhereItIs(t *testing.T) {
	inBubble(t, []string{tally}, func(w *world) {
		w.send("b", "Begin", "A", `{"k":"A"}`)
		w.add("A", "a2", ``)
		w.until("it is held", func() bool { return w.queues().Held == 1 })
		// The mended version finds its instances by another key.
		w.reload(strings.NewReplacer("version: 1", "version: 2", "key: event.k", "key: event.k ?? event.id", "state.n + event.amount", "state.n + (event.amount ?? 7)").Replace(tally))
		if o := w.on(w.letter("A"), edda.VerbRedrive, "r1", nil); o.Released[0].Fate != edda.FateDead {
			t.Errorf("redrive: %+v", o)
		}
		if in := w.instance("tally", "A"); in.Version != 1 || in.Held == "" {
			t.Errorf("version %d, held %q", in.Version, in.Held)
		}
	})
}

func TestDeadLettersOfEachKindAreRedriven(t *testing.T) {
	inBubble(t, []string{tally}, func(w *world) {
		// A signal for nobody, and an event that is newer than the manifest knows.
		signal := edda.Event{Kind: edda.KindSignal, ID: "s1", Type: "more", Key: key("A")}
		w.act(signal)
		none := w.letter("A")
		w.pass(time.Now().Add(time.Second))
		w.send("b", "Begin", "A", `{"k":"A"}`)
		w.publish("tenant.acme.aggregate.Order.A", `{"event_id":"n1","event_type":"New","version":9,"payload":{"k":"A","amount":20}}`)
		w.until("it is too new", func() bool { return len(w.letters("A")) == 2 })
		newer := w.letters("A")[1]
		if none.Reason != edda.DeadNoInstance || newer.Reason != edda.DeadVersion {
			t.Fatalf("dead: %+v %+v", none, newer)
		}
		w.on(none, edda.VerbRedrive, "r1", nil)
		w.tallied("A", "1", "")
		if o := w.on(newer, edda.VerbRedrive, "r2", nil); o.Released[0].Fate != edda.FateDead || w.letter("A").Event.Redrives != 1 {
			t.Errorf("redrive of what is newer still: %+v", o)
		}
		w.reload(strings.NewReplacer("version: 1", "version: 2", "{1: {set: {amount: 1}}}", "{8: {set: {amount: =event.amount}}}").Replace(tally))
		if o := w.on(newer, edda.VerbRedrive, "r3", nil); o.Released[0].Fate != edda.FateHandled {
			t.Errorf("redrive of what is known now: %+v", o)
		}
		w.tallied("A", "21", "")
		// An event without a key finds one with other data, in its own saga.
		w.send("k1", "Add", "B", `{"id":"k1","amount":300}`)
		w.until("it has no key", func() bool { return len(w.letters("")) == 1 })
		d := w.letter("")
		if o := w.on(d, edda.VerbRedrive, "r4", nil); o.Fate != edda.FateDead || w.letter("").ID != d.ID {
			t.Errorf("redrive of what has no key still: %+v", o)
		}
		if o := w.on(d, edda.VerbRedrive, "r5", json.RawMessage(`{"k":"A","id":"k1","amount":300}`)); len(o.Released) != 1 || o.Released[0].Fate != edda.FateHandled {
			t.Errorf("redrive with a key: %+v", o)
		}
		w.tallied("A", "321", "k1")
		if n := len(w.letters("")); n != 0 {
			t.Errorf("left %+v", w.letters(""))
		}
	})
}

func TestAMessageThatCouldNotBeReadIsSentAgain(t *testing.T) {
	inBubble(t, []string{tally}, func(w *world) {
		w.send("b", "Begin", "A", `{"k":"A"}`)
		w.publish("tenant.acme.aggregate.Order.A", `{"event_id":"x1","event_type":"Add","payload":{"k":"A",`)
		w.until("it died", func() bool { return len(w.letters("")) == 1 })
		d := w.letters("")[0]
		if d.Reason != edda.DeadUndecodable || d.Subject != "tenant.acme.aggregate.Order.A" {
			t.Fatalf("dead: %+v", d)
		}
		body := json.RawMessage(`{"event_id":"x1","event_type":"Add","payload":{"k":"A","id":"x1","amount":4}}`)
		for i := range 2 { // the same id is stored once
			sent, err := w.running.publisher.Resend(context.Background(), d, body, "again-1")
			if err != nil || sent.Duplicate != (i == 1) || sent.Subject != d.Subject {
				t.Fatalf("%+v %v", sent, err)
			}
		}
		w.until("it is applied", func() bool { return len(w.fates("x1")) == 1 })
		w.tallied("A", "4", "x1")
		// Without another body it is what it was, read from the stream.
		if _, err := w.running.publisher.Resend(context.Background(), d, nil, "again-2"); err != nil {
			t.Fatal(err)
		}
		w.until("it died again", func() bool { return len(w.letters("")) == 2 })
		d.Event.Seq = 99 // gone
		if _, err := w.running.publisher.Resend(context.Background(), d, nil, "again-3"); err == nil || !strings.Contains(err.Error(), "--data") {
			t.Errorf("%v", err)
		}
	})
}

// TestNothingIsLost sends events that are good, bad and early, and lets operators
// redrive, drop and edit what comes to hand: in the end every event is applied,
// parked, held or dead, or was dropped by somebody, exactly one of these.
func TestNothingIsLost(t *testing.T) {
	// Virtual time costs too: an idle system polls every second. It passes dozens of times here.
	brief := strings.Replace(tally, "park: 5m", "park: 50s", 1)
	if brief == tally {
		t.Fatal("no event of the saga is parked for five minutes")
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, []string{brief}, func(w *world) { newLedger(w, seed).play(120) })
		})
	}
}

// ledger is what became of events, as the test counts it.
type ledger struct {
	*world
	r       *rand.Rand
	sent    map[string]string // event id → key
	dropped map[string]bool
	acts    int
}

func newLedger(w *world, seed uint64) *ledger {
	return &ledger{world: w, r: rand.New(rand.NewPCG(seed, 7)), sent: map[string]string{}, dropped: map[string]bool{}}
}

func (l *ledger) play(n int) {
	for i := range n {
		k, id := string(rune('A'+l.r.IntN(4))), fmt.Sprintf("<%d>", i)
		switch l.r.IntN(9) {
		case 0:
			l.world.send("b"+k, "Begin", k, `{"k":"`+k+`"}`)
		case 1, 2, 3:
			l.add(k, id, `,"amount":1`)
			l.sent[id] = k
		case 4:
			l.add(k, id, ``)
			l.sent[id] = k
		case 5:
			l.world.send(id, "Skip", k, `{"k":"`+k+`","id":"`+id+`","amount":null}`)
			l.sent[id] = k
		case 6:
			l.pass(time.Now().Add(30 * time.Second)) // of the 50 for which an early event is parked
		default:
			l.operate()
		}
	}
	l.pass(time.Now().Add(time.Second))
	l.books()
}

// operate does something with one of the dead letters.
func (l *ledger) operate() {
	all := l.letters("")
	if len(all) == 0 {
		return
	}
	d := all[l.r.IntN(len(all))]
	l.acts++
	id := fmt.Sprintf("act-%d", l.acts)
	mended := json.RawMessage(fmt.Sprintf(`{"k":%q,"id":%q,"amount":1}`, d.Key.Correlation, d.Event.ID))
	switch l.r.IntN(4) {
	case 0:
		if o := l.on(d, edda.VerbDrop, id, nil); o.Fate == edda.FateHandled {
			l.dropped[d.Event.ID] = true
		}
	case 1:
		l.on(d, edda.VerbRedrive, id, nil)
	default:
		l.on(d, edda.VerbRedrive, id, mended)
	}
}

// books looks where each event is.
func (l *ledger) books() {
	l.t.Helper()
	where := map[string][]string{}
	for _, k := range []string{"A", "B", "C", "D"} {
		v, err := l.running.db.View()
		if err != nil {
			l.t.Fatal(err)
		}
		cell, err := v.Cell(key(k))
		v.Close()
		if err != nil {
			l.t.Fatal(err)
		}
		for _, e := range cell.Parked {
			where[e.Event.ID] = append(where[e.Event.ID], "parked")
		}
		for i, e := range cell.Held {
			if i > 0 { // the first is the dead one
				where[e.Event.ID] = append(where[e.Event.ID], "held")
			}
		}
		if cell.Instance != nil {
			log := field(cell.Instance.State, "log")
			for id := range l.sent {
				for range strings.Count(log, id) {
					where[id] = append(where[id], "applied")
				}
			}
		}
	}
	for _, d := range l.letters("") {
		where[d.Event.ID] = append(where[d.Event.ID], "dead")
	}
	for id := range l.dropped {
		where[id] = append(where[id], "dropped")
	}
	for id, k := range l.sent {
		if len(where[id]) != 1 {
			l.t.Errorf("event %s of %s is %v", id, k, where[id])
		}
	}
	if found := l.running.db.Check(context.Background()); len(found) > 0 {
		l.t.Errorf("the store contradicts itself: %v", found)
	}
	if l.t.Failed() {
		l.t.Log(l.story())
	}
}
