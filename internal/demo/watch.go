package demo

import (
	"context"
	"fmt"
	"time"

	"edda/internal/harness"
	"edda/internal/shop"
)

// outage returns the outage of the carrier; none if there are too few orders to show one.
func (r *run) outage() shop.Outage {
	o := outage
	if r.Orders < 2*o.After {
		o.After = 0
	}
	return o
}

// watch follows the state of the carrier's breaker in the metrics, as an operator does.
type watch struct {
	url    string
	since  time.Time
	cancel context.CancelFunc
	ended  chan struct{} // closed at the end of the watch; changes may be read after it

	changes []change
}

// change is a state that the breaker came to.
type change struct {
	state string // closed, half-open, open
	at    time.Duration
}

func watchBreaker(ctx context.Context, api string, since time.Time) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{url: api + "/metrics", since: since, cancel: cancel, ended: make(chan struct{})}
	go func() { defer close(w.ended); w.run(ctx) }()
	return w
}

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.note(w.look(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// note records a changed state.
func (w *watch) note(state string) {
	if n := len(w.changes); state != "" && (n == 0 || w.changes[n-1].state != state) {
		w.changes = append(w.changes, change{state, time.Since(w.since)})
	}
}

// look reads the state. After an error the next tick reads it again.
func (w *watch) look(ctx context.Context) string {
	c, err := harness.Scrape(ctx, w.url)
	state, found := c[`edda_effect_breaker_state{breaker="`+breaker+`"}`]
	if err != nil || !found {
		return ""
	}
	return map[float64]string{0: "closed", 1: "half-open", 2: "open"}[state]
}

func (w *watch) end() {
	w.cancel()
	<-w.ended
}

// when is the first time the breaker came to a state after a time.
func (w *watch) when(state string, after time.Duration) (time.Duration, bool) {
	for _, c := range w.changes {
		if c.state == state && c.at > after {
			return c.at, true
		}
	}
	return 0, false
}

// outage is when the breaker first opened, and when it closed after that for the
// first time. It may open again later: the shop loses calls on purpose.
func (w *watch) outage() (opened, closed time.Duration, ok bool) {
	if opened, ok = w.when("open", 0); !ok {
		return 0, 0, false
	}
	closed, ok = w.when("closed", opened)
	return opened, closed, ok
}

// verify describes the outage. It fails if the breaker did not open and close.
func (w *watch) verify(r *run) error {
	refused, began := r.shop.Refused()
	if r.outage().After == 0 {
		return nil
	}
	opened, closed, ok := w.outage()
	if !ok {
		return fmt.Errorf("the carrier was down and its breaker is seen as %v: want it open, then closed", w.changes)
	}
	r.say("\nThe carrier was down from %.2f s to %.2f s. Its breaker opened at %.2f s, let single probes through,", began.Sub(w.since).Seconds(),
		(began.Sub(w.since) + r.outage().For).Seconds(), opened.Seconds())
	r.say("and closed at %.2f s; of all the shipments that were due, %d calls reached the carrier while it was down.", closed.Seconds(), refused)
	return nil
}
