package replay

import (
	"testing"
	"time"

	"edda"
)

// Waking may panic, as it did when history was made; that row is in history by
// itself.
func TestAPanicWhileWakingFiresNothing(t *testing.T) {
	cell := edda.Cell{Key: edda.Key{Saga: "order", Correlation: "O1"}}
	next, trs := decider{nil}.Wake(cell, time.Time{}, time.Now())
	if same, err := Same(next, cell); !same || err != nil || len(trs) != 0 {
		t.Errorf("%+v, %v, %v", next, trs, err)
	}
}
