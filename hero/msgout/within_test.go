package msgout

import (
	"math"
	"testing"
	"time"

	"edda/hero/flow"
)

// The flow gives a job its timeout to be begun, and again to run, each with a
// grace: a router that gave up sooner would fail a job that only lay in a queue.
func TestTheRouterWaitsLongerThanTheFlow(t *testing.T) {
	for _, timeout := range []uint32{1, 60, 3600, math.MaxUint32 / 2} {
		patience := 2 * (time.Duration(timeout)*time.Second + flow.AnswerGrace)
		if got := time.Duration(resultWithin(timeout)) * time.Second; got <= patience && resultWithin(timeout) != math.MaxUint32 {
			t.Errorf("a timeout of %d s is waited for %v, the flow waits %v", timeout, got, patience)
		}
	}
	if resultWithin(math.MaxUint32) != math.MaxUint32 {
		t.Error("the longest timeout wraps around")
	}
}
