package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"edda"
	"edda/saga"
)

// TestShardsShareTheKeys: each input has one fate, in one store. That holds for events with several keys, and for those
// without any.
func TestShardsShareTheKeys(t *testing.T) {
	const of, keys = 4, 40
	seen := map[string][]int{} // by key, dead letter, act and unheard type: the shards that have it
	ignored := 0.0
	for i := range of {
		inWorld(t, func(w *world) {
			w.start(Options{Shard: edda.Shard{Index: i, Of: of}})
			for k := range keys {
				w.streams.publish("A", event(fmt.Sprint("e", k), "add", fmt.Sprint(k)))
				w.streams.publish("A", event(fmt.Sprint("b", k), "both", fmt.Sprint(k)))
				w.streams.publish("A", event(fmt.Sprint("n", k), "nokey", fmt.Sprint(k)))
				dropped := event(fmt.Sprint("d", k), "drop", fmt.Sprint(k))
				dropped.AggregateType = fmt.Sprint("type", k)
				w.streams.publish("A", dropped)
				signal := edda.Event{Kind: edda.KindSignal, ID: fmt.Sprint("s", k), Tenant: "acme", Key: key(fmt.Sprint(k)), Type: "add", By: "ada"}
				w.streams.publish("A", signal)
			}
			settle()
			if got := w.position("A").Seq; got != 5*keys {
				t.Errorf("shard %d: the position is %d", i, got)
			}
			for k := range keys {
				other := key(fmt.Sprint(k))
				other.Saga = "other"
				if n := len(w.log(key(fmt.Sprint(k)))); n > 0 {
					seen["key "+fmt.Sprint(k)] = append(seen["key "+fmt.Sprint(k)], i)
					w.wantLog(key(fmt.Sprint(k)), fmt.Sprint("e", k), fmt.Sprint("b", k), fmt.Sprint("s", k))
				}
				if len(w.log(other)) > 0 {
					seen["other "+fmt.Sprint(k)] = append(seen["other "+fmt.Sprint(k)], i)
				}
			}
			letters, err := w.db.DeadLetters("", 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range letters {
				seen["letter "+d.Event.ID] = append(seen["letter "+d.Event.ID], i)
			}
			audits, err := w.db.Audits(1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range audits {
				seen["act on "+a.Key.Correlation] = append(seen["act on "+a.Key.Correlation], i)
			}
			for _, u := range w.engine.Unheard() {
				seen["unheard "+u.Type] = append(seen["unheard "+u.Type], i)
			}
			ignored += w.metric("edda_transitions_total", string(edda.FateIgnored), "")
		})
	}
	if want := 5 * keys; len(seen) != want {
		t.Errorf("%d things happened, want %d", len(seen), want)
	}
	used := map[int]bool{}
	for what, shards := range seen {
		if len(shards) != 1 {
			t.Errorf("%s: in the shards %v", what, shards)
		}
		used[shards[0]] = true
	}
	if len(used) != of || ignored != keys {
		t.Errorf("%d shards have something, and %v events were ignored", len(used), ignored)
	}
}

// TestARedriveStaysInItsShard: a dead letter whose event turns out to have a key of another shard stays, and says what
// to do.
func TestARedriveStaysInItsShard(t *testing.T) {
	shard := edda.Shard{Index: 0, Of: 2}
	for i := 0; ; i++ {
		if shard.Has(edda.Key{Tenant: "acme", Saga: fmt.Sprint("saga", i)}) && !shard.Has(edda.Key{Tenant: "acme", Saga: fmt.Sprint("saga", i), Correlation: "k"}) {
			redriveElsewhere(t, shard, edda.Key{Tenant: "acme", Saga: fmt.Sprint("saga", i)})
			return
		}
	}
}

// noSagas has none, as a set that knows no target of an act.
type noSagas struct{ *saga.Set }

// noLetters has no dead letter.
type noLetters struct{ records }

func (noLetters) DeadLetter(string) (edda.DeadLetter, bool, error) {
	return edda.DeadLetter{}, false, nil
}

// TestARedriveIsOfTheShardOfItsDeadLetter: a shard that has neither the letter nor its key has nothing to say of it.
func TestARedriveIsOfTheShardOfItsDeadLetter(t *testing.T) {
	k := edda.Key{Tenant: "acme", Saga: "order"}
	redrive, err := json.Marshal(edda.Redrive{DeadLetter: "D1"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 { // acts of other ids
		for i := range 4 {
			shard := edda.Shard{Index: i, Of: 4}
			b := &batch{db: noLetters{}, sagas: noSagas{&saga.Set{}}, shard: shard, room: map[string]bool{}} // the letter is gone
			it := &item{event: edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, ID: fmt.Sprint("r", n), Tenant: k.Tenant, Key: k, Payload: redrive, Time: time.Now()}}
			if b.route(it); it.elsewhere == shard.Has(k) {
				t.Errorf("act %s in shard %d: elsewhere %v", it.event.ID, i, it.elsewhere)
			}
		}
	}
}

// fadingLetters has a dead letter that can be read once.
type fadingLetters struct {
	fakeLetters
	read bool
}

func (l *fadingLetters) DeadLetter(id string) (edda.DeadLetter, bool, error) {
	if l.read {
		return edda.DeadLetter{}, false, errors.New("the disk fails")
	}
	l.read = true
	return l.fakeLetters.DeadLetter(id)
}

func redriveElsewhere(t *testing.T, shard edda.Shard, k edda.Key) {
	redrive, err := json.Marshal(edda.Redrive{DeadLetter: "D1"})
	if err != nil {
		t.Fatal(err)
	}
	letter := edda.DeadLetter{ID: "D1", Key: k, Reason: edda.DeadNoKey, Error: "no key", Event: edda.Event{ID: "e1"}}
	b := &batch{db: &fakeLetters{dead: letter}, sagas: counter{k.Saga}, shard: shard, room: map[string]bool{}}
	act := edda.Event{
		Kind: edda.KindOperator, Type: edda.VerbRedrive, ID: "r1", Tenant: k.Tenant, Key: k, Payload: redrive, AggregateID: "k", Time: time.Now(),
	}
	it := &item{event: act}
	b.route(it)
	if len(it.targets) != 1 || it.targets[0].Dead == nil || it.targets[0].Key != k || it.elsewhere {
		t.Fatalf("the targets are %+v, elsewhere %v", it.targets, it.elsewhere)
	}
	if d := it.targets[0].Dead; d.ID != "D1" || d.Error == letter.Error || d.Reason != edda.DeadNoKey {
		t.Errorf("the dead letter is %+v", d)
	}
	b.db = &fadingLetters{fakeLetters: fakeLetters{dead: letter}}
	it = &item{event: act}
	if b.route(it); len(it.targets) > 0 {
		t.Errorf("without the dead letter the event goes to a key of another shard: %+v", it.targets)
	}
}
