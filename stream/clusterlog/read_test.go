package clusterlog

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestASlowLogIsAskedLess: a silence of the usual length is none, and a busy log is asked at once.
func TestASlowLogIsAskedLess(t *testing.T) {
	for _, test := range []struct{ every, want time.Duration }{
		{time.Millisecond, quietLeast}, {50 * time.Millisecond, 100 * time.Millisecond}, {time.Hour, quietMost},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := pace{last: time.Now()}
			for range 100 {
				time.Sleep(test.every)
				p.came()
			}
			if got := p.patience(); got < test.want*9/10 || got > test.want {
				t.Errorf("every %s: it waits %s, want %s", test.every, got, test.want)
			}
		})
	}
}
