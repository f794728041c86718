package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"edda/internal/backoff"
	"edda/internal/harness"
)

const (
	// leadLeast is how far ahead of the first event an instant lies.
	leadLeast = 2 * time.Second
	// leadSpare is how many times longer than it should take arming may take.
	leadSpare = 2
)

// timerRun is the server and a client, for W3.
type timerRun struct {
	*run
	server *server
	client *harness.Client
	armed  int // instances so far
}

// timers is W3.
func (r *run) timers() (err error) {
	dir, err := r.folder("W3")
	if err != nil {
		return err
	}
	w := &timerRun{run: r}
	if w.server, err = r.startServer(dir, "timer.yaml", "AFTER", r.After.String()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.server.Stop()) }()
	if w.client, err = harness.Connect(w.server.NATS); err != nil {
		return err
	}
	defer w.client.Close()
	rate, err := w.burst()
	if err != nil {
		return err
	}
	if err := w.steady(); err != nil {
		return err
	}
	return w.together(rate)
}

// burst arms timers as fast as it goes, and waits for all of them: they are due
// as fast as they were armed. It tells how many were armed in a second.
func (w *timerRun) burst() (rate float64, err error) {
	m, err := w.measure(w.server, nil, "W3 arming")
	if err != nil {
		return 0, err
	}
	before := streams(w.ctx, w.client.JS)
	l := w.listen(w.After)
	began := time.Now()
	if err := w.arm(l, "W3burst", "Armed", w.Timers, 0, onlyKey); err != nil {
		return 0, m.drop(err)
	}
	took := time.Since(began)
	costs, err := m.end(w.Timers)
	if err != nil {
		return 0, err
	}
	arming := &Result{Workload: "W3", Phase: "arming", Unit: "timers", Count: w.Timers, Rate: perSecond(w.Timers, took), Costs: costs, traffic: streams(w.ctx, w.client.JS).since(before)}
	w.add(arming)
	if err := w.rung(l, w.Timers, fmt.Sprintf("due as fast as armed, after %v", w.After), began.Add(w.After)); err != nil {
		return 0, err
	}
	return arming.Rate, w.writing(arming)
}

// steady arms the timers over as long as they are set to, so that nearly all are
// armed when the first is due.
func (w *timerRun) steady() error {
	l := w.listen(w.After)
	began, rate := time.Now(), perSecond(w.Timers, w.After)
	if err := w.arm(l, "W3steady", "Armed", w.Timers, rate, onlyKey); err != nil {
		return errors.Join(err, tail(w.server))
	}
	return w.rung(l, w.Timers, fmt.Sprintf("%.0f due each second, after %v", rate, w.After), began.Add(w.After))
}

// listen hears how late timers ring that are set to a time.
func (w *timerRun) listen(after time.Duration) *harness.Ends {
	l := w.client.Listen(0)
	l.From, l.Idle = due, l.Idle+after
	return l
}

func onlyKey(key string) []byte { return fmt.Appendf(nil, `{"order_id":%q}`, key) }

// arm sends the events, at a rate unless that is 0, and returns when all of them
// are applied.
func (w *timerRun) arm(l *harness.Ends, prefix, event string, n int, rate float64, payload func(key string) []byte) error {
	began := time.Now()
	for i := range n {
		if rate > 0 {
			if err := backoff.Wait(w.ctx, time.Until(began.Add(time.Duration(float64(i)/rate*float64(time.Second))))); err != nil {
				return err
			}
		}
		key := fmt.Sprintf("%s-%07d", prefix, i)
		if err := l.Begin(w.ctx, key, time.Time{}); err != nil {
			return err
		}
		if err := w.client.Publish("Order", key, event, payload(key)); err != nil {
			return err
		}
	}
	w.armed += n
	if err := w.client.Stored(w.ctx); err != nil {
		return err
	}
	return harness.Poll(w.ctx, fmt.Sprintf("%d timers to be armed", n), func() error {
		c, err := w.server.Counters(w.ctx)
		if got := c.Sum("edda_instances", `saga="wake"`); err == nil && got < w.armed {
			return fmt.Errorf("%d instances", got)
		}
		return err
	})
}

// rung waits until all have rung, and adds how late they were. The first of them
// was due at the earliest at a time.
func (w *timerRun) rung(l *harness.Ends, n int, phase string, first time.Time) error {
	if err := backoff.Wait(w.ctx, time.Until(first.Add(-time.Second))); err != nil {
		return err
	}
	m, err := w.measure(w.server, nil, "W3 "+phase)
	if err != nil {
		return err
	}
	if err := l.Await(w.ctx, n, nil); err != nil {
		return m.drop(err)
	}
	if err := w.server.settled(w.ctx, w.armed, "wake", "done"); err != nil {
		return m.drop(err)
	}
	costs, err := m.end(n)
	if err != nil {
		return err
	}
	took, firstRung, last := l.Took()
	w.add(&Result{Workload: "W3", Phase: phase, Unit: "timers", Count: n, Rate: perSecond(n, last.Sub(firstRung)), Latency: summarize(slices.Collect(maps.Values(took))), Costs: costs})
	return nil
}

// together sets timers to one instant, so far ahead that all are armed by then.
func (w *timerRun) together(rate float64) error {
	lead := leadLeast + time.Duration(leadSpare*float64(w.Together)/max(rate, 1)*float64(time.Second))
	at := time.Now().Add(lead).UTC().Truncate(time.Millisecond)
	l := w.listen(lead)
	payload := func(key string) []byte {
		return fmt.Appendf(nil, `{"order_id":%q,"at":%q}`, key, at.Format(time.RFC3339Nano))
	}
	if err := w.arm(l, "W3together", "Set", w.Together, 0, payload); err != nil {
		return errors.Join(err, tail(w.server))
	}
	if late := time.Since(at); late > 0 {
		return fmt.Errorf("the last timer was armed %v after it was due: the machine is too slow for %d at once", late, w.Together)
	}
	return w.rung(l, w.Together, fmt.Sprintf("%d due at once", w.Together), at)
}

// due reads when a timer was due from the fact that it rang.
func due(data []byte) (time.Time, error) {
	var fact struct {
		Payload struct {
			Due time.Time `json:"due"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(data, &fact); err != nil {
		return time.Time{}, err
	}
	if fact.Payload.Due.IsZero() {
		return time.Time{}, errors.New("it does not say when the timer was due")
	}
	return fact.Payload.Due, nil
}
