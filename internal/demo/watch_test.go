package demo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestWatchSeesEveryState that lasts longer than it looks away.
func TestWatchSeesEveryState(t *testing.T) {
	var state atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "other 1\nedda_effect_breaker_state{breaker=\"carrier\"} %d\n", state.Load())
	}))
	defer s.Close()
	w := &watch{url: s.URL, since: time.Now()}
	for _, now := range []int32{0, 2, 1, 2, 1, 0} {
		state.Store(now)
		for range 2 {
			w.note(w.look(t.Context()))
		}
	}
	var seen []string
	for _, c := range w.changes {
		seen = append(seen, c.state)
	}
	if !slices.Equal(seen, []string{"closed", "open", "half-open", "open", "half-open", "closed"}) {
		t.Errorf("seen %v", seen)
	}
	if _, found := w.when("open", time.Hour); found {
		t.Error("it was open in an hour")
	}
}

func TestABreakerThatOpensAgainLaterHasClosed(t *testing.T) {
	seen := func(states ...string) *watch {
		w := &watch{}
		for i, s := range states {
			w.changes = append(w.changes, change{state: s, at: time.Duration(i+1) * time.Second})
		}
		return w
	}
	if opened, closed, ok := seen("closed", "open", "half-open", "closed", "open").outage(); !ok || opened != 2*time.Second || closed != 4*time.Second {
		t.Errorf("opened %s, closed %s, %v", opened, closed, ok)
	}
	for _, states := range [][]string{{"closed"}, {"closed", "open"}, {"closed", "open", "half-open", "open"}, nil} {
		if _, _, ok := seen(states...).outage(); ok {
			t.Errorf("%v is no outage that is over", states)
		}
	}
}
