package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda"
	"edda/saga"
	"edda/store"
)

// drawn draws an evaluated event with up to three transitions.
func drawn(t *rapid.T, stream string, seq uint64) *item {
	ev := edda.Event{ID: fmt.Sprintf("%s%d", stream, seq), Stream: stream, Seq: seq, Time: time.Unix(int64(seq), 0)}
	it := &item{event: ev}
	for i := range rapid.IntRange(0, 3).Draw(t, "targets") {
		k := edda.Key{Correlation: fmt.Sprint(i)}
		size := rapid.IntRange(0, store.MaxChange/2).Draw(t, "size")
		in := &edda.Instance{Key: k, State: []byte(`"` + strings.Repeat("x", size/2) + `"`)}
		it.targets = append(it.targets, saga.Target{Key: k})
		it.results = append(it.results, []edda.Transition{{Key: k, Event: ev, Fate: edda.FateHandled, Instance: in}})
	}
	return it
}

func TestChangeSetsKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := map[string]uint64{}
		var items []*item
		for range rapid.IntRange(1, 30).Draw(t, "items") {
			stream := rapid.SampledFrom([]string{"A", "B"}).Draw(t, "stream")
			seqs[stream]++
			items = append(items, drawn(t, stream, seqs[stream]))
		}
		sets := cut(items, map[string]time.Time{}, 7)
		reached, next := map[string]uint64{}, 0
		for i, s := range sets {
			if s.n != uint64(8+i) || s.last != (i == len(sets)-1) {
				t.Fatalf("set %d is numbered %d, last %v", i, s.n, s.last)
			}
			if n := s.change.Size(); n > store.MaxChange && len(s.items()) > 1 {
				t.Fatalf("a set of %d items and %d bytes", len(s.items()), n)
			}
			var want []edda.Transition
			for _, it := range s.items() {
				if it != items[next] {
					t.Fatalf("item %d is out of order", next)
				}
				next++
				reached[it.event.Stream] = it.event.Seq
				for _, ts := range it.results {
					want = append(want, ts...)
				}
			}
			if len(want) != len(s.changed()) {
				t.Fatalf("an event is split: %d transitions of %d", len(s.changed()), len(want))
			}
			for _, c := range s.change.Checkpoints {
				if c.Seq != reached[c.Stream] {
					t.Fatalf("checkpoint %d of %s, applied %d", c.Seq, c.Stream, reached[c.Stream])
				}
			}
		}
		if next != len(items) {
			t.Fatalf("%d items of %d", next, len(items))
		}
	})
}

// TestDueInputsKeepTheOrderWithinAKey: the second row of a key fired nothing. Its transition must
// not overtake a later one of the first row.
func TestDueInputsKeepTheOrderWithinAKey(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	fired := func(k string, s int64) edda.Transition {
		return edda.Transition{Key: key(k), Event: edda.Event{ID: fmt.Sprint(s), Time: at(s)}, Fate: edda.FateHandled}
	}
	rows := func(k string, s int64, ts ...edda.Transition) *item {
		it := newRow(store.Due{Time: at(s), Key: key(k)}, nil)
		it.results = [][]edda.Transition{ts}
		return it
	}
	sets := cut([]*item{
		rows("k", 1, fired("k", 1), fired("k", 5)),
		rows("k", 2, edda.Transition{Key: key("k"), Disarm: []time.Time{at(2)}}),
		rows("other", 3, fired("other", 3)),
	}, nil, 0)
	var got []string
	for _, t := range sets[0].changed() {
		got = append(got, t.Key.Correlation+t.Event.ID)
	}
	if want := "k1 other3 k5 k"; joined(got) != want {
		t.Errorf("got %v, want %v", joined(got), want)
	}
}

func TestPositionsHaveTheCreationTimeOfTheStream(t *testing.T) {
	created := time.Unix(100, 0)
	ev := edda.Event{Stream: "A", Seq: 4, Time: time.Unix(200, 0)}
	sets := cut([]*item{{event: ev}}, map[string]time.Time{"A": created}, 0)
	want := edda.Checkpoint{Stream: "A", Seq: 4, Time: ev.Time, Created: created}
	if got := sets[0].change.Checkpoints; len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
