package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"edda/internal/backoff"
	"edda/internal/harness"
)

// orderBytes is the size of an order's payload.
const orderBytes = 305

// order is the payload of one, of orderBytes bytes for an id of up to 40.
func order(id string, decline bool) []byte {
	head := fmt.Sprintf(`{"order_id":%q,"customer":"c-1042","items":[{"sku":"A-1","quantity":2,"price":1250},{"sku":"B-7","quantity":1,"price":499}],"amount":2999,"currency":"EUR","decline":%t,"address":"`, id, decline)
	const tail = `"}`
	return []byte(head + strings.Repeat("x", max(orderBytes-len(head)-len(tail), 0)) + tail)
}

// orderRun is the server, the effect server and a client, for W1 or W2.
type orderRun struct {
	*run
	harness.Stops
	name    string
	decline bool
	effects *effectServer
	server  *server
	client  *harness.Client
	sent    int // orders so far
}

// called are the effects of one order.
func (b *orderRun) called() []string {
	if b.decline {
		return []string{"reserve", "charge", "release"}
	}
	return []string{"reserve", "charge", "ship"}
}

func (b *orderRun) statuses() []string {
	if b.decline {
		return []string{"undone", "failed"}
	}
	return []string{"done"}
}

// open starts everything. Stop ends it, also where open fails.
func (b *orderRun) open() error {
	dir, err := b.folder(b.name)
	if err != nil {
		return err
	}
	if b.effects, err = b.startEffects(); err != nil {
		return err
	}
	b.Add(b.effects.Stop)
	if b.server, err = b.startServer(dir, "order.yaml", "EFFECTS", b.effects.url); err != nil {
		return err
	}
	b.Add(b.server.Stop)
	if b.client, err = harness.Connect(b.server.NATS); err != nil {
		return err
	}
	b.Add(b.client.Close)
	return nil
}

// orders is W1.
func (r *run) orders() (err error) {
	b := &orderRun{run: r, name: "W1"}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.open(); err != nil {
		return err
	}
	if err := b.warm(); err != nil {
		return err
	}
	if r.best, err = b.search(); err != nil {
		return err
	}
	full, err := b.closed("full load", r.Instances, r.best)
	if err != nil {
		return err
	}
	alone, err := b.closed("one at a time", r.Alone, 1)
	if err != nil {
		return err
	}
	if _, err := b.half(full.Rate / 2); err != nil {
		return err
	}
	return b.floors(full, alone)
}

// declined is W2.
func (r *run) declined() (err error) {
	b := &orderRun{run: r, name: "W2", decline: true}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.open(); err != nil {
		return err
	}
	if err := b.warm(); err != nil {
		return err
	}
	if r.best == 0 {
		if r.best, err = b.search(); err != nil {
			return err
		}
	}
	full, err := b.closed("full load", r.Instances, r.best)
	if err != nil {
		return err
	}
	return b.floors(full, nil)
}

// warm sends the first orders, which are slower than all others.
func (b *orderRun) warm() error {
	_, err := b.phase("warm", b.Probe/2, b.Concurrency[0], 0)
	return err
}

// search finds the concurrency to load it with.
func (b *orderRun) search() (int, error) {
	var rates []float64
	for _, c := range b.Concurrency {
		res, err := b.phase(fmt.Sprintf("probe%d", c), max(b.Probe, 2*c), c, 0)
		if err != nil {
			return 0, err
		}
		b.say("    %d at once: %.0f/s", c, res.Rate)
		rates = append(rates, res.Rate)
	}
	return b.Concurrency[enough(rates)], nil
}

// nearly is how much of the highest rate is as good: what runs more at once for
// less than the rest of it only makes each wait longer.
const nearly = 0.97

// enough is the first of the rates that is nearly the highest.
func enough(rates []float64) int {
	return slices.IndexFunc(rates, func(r float64) bool { return r >= nearly*slices.Max(rates) })
}

func (b *orderRun) closed(phase string, n, concurrency int) (*Result, error) {
	res, err := b.phase(phase, n, concurrency, 0)
	if err == nil {
		b.add(res)
	}
	return res, err
}

// half sends orders at a rate, whether or not those before have ended, and times
// each from when it was due.
func (b *orderRun) half(rate float64) (*Result, error) {
	res, err := b.phase("half load", max(int(rate*b.Open.Seconds()), 1), 0, rate)
	if err == nil {
		b.add(res)
	}
	return res, err
}

// phase sends n orders, in a closed loop or at a rate, and holds the effect
// server's book and the instances against what was sent.
func (b *orderRun) phase(phase string, n, concurrency int, rate float64) (*Result, error) {
	m, err := b.measure(b.server, b.effects, b.name+" "+phase)
	if err != nil {
		return nil, err
	}
	before := b.messages()
	prefix := b.name + strings.ReplaceAll(phase, " ", "")
	l := b.client.Listen(concurrency)
	began := time.Now()
	late, err := b.send(l, prefix, n, rate, began)
	if err != nil {
		return nil, m.drop(err)
	}
	b.sent += n
	if err := l.Await(b.ctx, n, nil); err != nil {
		return nil, m.drop(errors.Join(err, b.check(prefix, n)))
	}
	if err := errors.Join(b.client.Stored(b.ctx), b.server.settled(b.ctx, b.sent, "order", b.statuses()...), b.check(prefix, n)); err != nil {
		return nil, m.drop(err)
	}
	costs, err := m.end(n)
	if err != nil {
		return nil, err
	}
	took, _, last := l.Took()
	return &Result{Workload: b.name, Phase: phase, Unit: "instances", Count: n, Concurrency: concurrency, Offered: rate,
		Rate: perSecond(n, last.Sub(began)), Latency: summarize(slices.Collect(maps.Values(took))), SentLate: summarize(late), Costs: costs, traffic: b.messages().since(before)}, nil
}

// send tells, of orders at a rate, how late each was sent.
func (b *orderRun) send(l *harness.Ends, prefix string, n int, rate float64, began time.Time) (late []time.Duration, err error) {
	for i := range n {
		due := began
		if rate > 0 {
			due = began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if err := backoff.Wait(b.ctx, time.Until(due)); err != nil {
				return nil, err
			}
		}
		key := fmt.Sprintf("%s-%07d", prefix, i)
		if err := l.Begin(b.ctx, key, due); err != nil {
			return nil, err
		}
		if err := b.client.Publish("Order", key, "OrderPlaced", order(key, b.decline)); err != nil {
			return nil, err
		}
		if rate > 0 {
			late = append(late, time.Since(due))
		}
	}
	return late, nil
}

// check holds the effect server's book against the orders.
func (b *orderRun) check(prefix string, n int) error {
	book, err := b.effects.book(b.ctx, prefix)
	if err != nil {
		return err
	}
	return book.agrees(n, b.called()...)
}

// messages are what lies in the streams.
func (b *orderRun) messages() traffic { return streams(b.ctx, b.client.JS) }

// floors does the same calls, bytes and messages without an engine.
func (b *orderRun) floors(full, alone *Result) error {
	calls, err := b.calls("FloorA"+b.name, max(b.Instances/2, 1), min(full.Concurrency, maxCalls))
	if err == nil {
		full.floor(bareCalls, calls.Rate, calls.Costs)
	} else if err := b.without(full, bareCalls, err); err != nil {
		return err
	}
	if alone != nil {
		one, err := b.calls("FloorB"+b.name, b.Alone, 1)
		if err == nil {
			alone.floorLatency(bareCalls, one.Latency)
		} else if err := b.without(alone, bareCalls, err); err != nil {
			return err
		}
		if err := errors.Join(b.storing(alone), b.syncing(alone)); err != nil {
			return err
		}
	}
	return b.writing(full)
}
