package shop

import (
	"testing"
	"time"
)

func TestOutageBeginsAfterSoManyCallsAndEndsByItself(t *testing.T) {
	o := &outage{Outage: Outage{Endpoint: "ship", After: 2, For: time.Second}}
	now := time.Now()
	for i, want := range []struct {
		endpoint string
		after    time.Duration
		down     bool
	}{{"ship", 0, false}, {"refund", 0, false}, {"ship", 0, false}, {"ship", time.Minute, true}, {"refund", time.Minute, false},
		{"ship", time.Minute + 999*time.Millisecond, true}, {"ship", time.Minute + time.Second, false}} {
		if got := o.refuses(want.endpoint, now.Add(want.after)); got != want.down {
			t.Errorf("call %d: down %v", i, got)
		}
	}
	if o.refused != 2 {
		t.Errorf("%d calls were refused", o.refused)
	}
	if (&outage{}).refuses("ship", now) {
		t.Error("a shop without an outage is down")
	}
}
