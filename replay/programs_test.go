package replay

import (
	"testing"
	"time"

	"edda"
)

// A wake may panic, as it did in history; the row of that wake is in history by itself.
func TestAPanicWhileWakingFiresNothing(t *testing.T) {
	cell := edda.Cell{Key: edda.Key{Saga: "order", Correlation: "O1"}}
	next, trs := decider{nil}.Wake(cell, time.Time{}, time.Now())
	if same, err := Same(next, cell); !same || err != nil || len(trs) != 0 {
		t.Errorf("%+v, %v, %v", next, trs, err)
	}
}
