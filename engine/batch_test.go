package engine

import (
	"runtime"
	"testing"
)

func TestLanesGrowWithInputs(t *testing.T) {
	most := runtime.GOMAXPROCS(0)
	for _, c := range []struct{ lanes, inputs, want int }{
		{0, 1, 1}, {0, 2*minLaneInputs - 1, 1}, {0, 2 * minLaneInputs, min(most, 2)}, {0, maxBatch, min(most, maxBatch/minLaneInputs)},
		{3, 1, 3},
	} {
		o := Options{Lanes: c.lanes}
		if got := o.lanesFor(c.inputs); got != c.want {
			t.Errorf("%d inputs with Options.Lanes %d: %d lanes, want %d", c.inputs, c.lanes, got, c.want)
		}
	}
}
