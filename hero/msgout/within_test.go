package msgout

import (
	"math"
	"testing"
	"time"

	"edda/hero/flow"
)

// A flow allows a job its queue timeout and then its timeout, each with a grace. A router that
// gave up sooner would fail a job that only waited in a queue.
func TestTheRouterWaitsLongerThanTheFlow(t *testing.T) {
	for _, timeout := range []uint32{1, 60, 3600, math.MaxUint32 / 4} {
		for _, queue := range []uint32{1, 3600, math.MaxUint32 / 4} {
			patience := time.Duration(timeout+queue)*time.Second + 2*flow.AnswerGrace
			a := flow.Act{Timeout: timeout, QueueTimeout: queue}
			if got := time.Duration(resultWithin(a)) * time.Second; got <= patience {
				t.Errorf("timeouts of %d and %d s are waited for %v, the flow waits %v", queue, timeout, got, patience)
			}
		}
	}
	if resultWithin(flow.Act{Timeout: math.MaxUint32, QueueTimeout: 1}) != math.MaxUint32 {
		t.Error("the longest timeout wraps around")
	}
}

// A job of five seconds is not given up because its supervisor restarts for ten.
func TestASupervisorIsLookedForLongerThanAShortJobMayRun(t *testing.T) {
	for _, tt := range []struct{ timeout, queue, want uint32 }{
		{5, 86400, 120}, {600, 86400, 600}, {600, 60, 60}, {5, 0, 120},
	} {
		if got := deliverWithin(flow.Act{Timeout: tt.timeout, QueueTimeout: tt.queue}); got != tt.want {
			t.Errorf("timeout %d, queue_timeout %d: offered for %d s, want %d", tt.timeout, tt.queue, got, tt.want)
		}
	}
}
