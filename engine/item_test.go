package engine

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// What an item had, the next one that takes its place has not.
func TestNothingIsLeftInAnItemThatIsOver(t *testing.T) {
	used := func(it *item) *item {
		it.targets, it.about = []saga.Target{{}}, &edda.Event{}
		it.results, it.one[0] = it.one[:1], []edda.Transition{{}}
		it.alone, it.spoiled = true, errors.New("spoilt")
		return it
	}
	now := time.Now()
	came := used(newArrival(edda.Event{ID: "e1", Stream: "S", Seq: 7, Time: now, Stored: now}, Fetched{Past: true, Lived: true}))
	if came.free(); !reflect.DeepEqual(*came, item{}) {
		t.Errorf("an arrival keeps %+v", *came)
	}
	h := used(newHanded(Handed{Event: edda.Event{ID: "r1"}, Claim: edda.Claim{Owner: "w"}, Echo: edda.Work{ID: "r1"}}, make(report, 1))).handed
	if h.item.free(); !reflect.DeepEqual(*h, handed{}) {
		t.Errorf("a result that was handed in keeps %+v", *h)
	}
	row := used(newRow(store.Due{Time: now, Key: edda.Key{Correlation: "k"}}, &handover{left: 1})).due.woken
	if row.item.free(); !reflect.DeepEqual(*row, woken{}) {
		t.Errorf("a due row keeps %+v", *row)
	}
	due := used(newStart(edda.Event{ID: "s1"}, edda.Schedule{}, nil))
	if due.free(); due.event.ID != "s1" || due.due == nil {
		t.Error("what is due was given back: it may have more to come")
	}
}
