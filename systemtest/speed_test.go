//go:build !race

package systemtest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"edda"
	"edda/internal/lifecycle"
)

// idleBound is the promise: from the event to the command of one idle order.
const idleBound = 10 * time.Millisecond

// Orders are timed one at a time. What else runs on the machine, and the race
// detector, make any of them slow but none fast: so there are at least
// idleOrders, and more, up to mostOrders, until keptOrders have kept the bound.
const (
	idleOrders = 20
	keptOrders = 5
	mostOrders = 300
)

// promised fails the test unless the bound is kept; one times one order.
func promised(t *testing.T, what string, one func(i int) time.Duration) {
	t.Helper()
	var took []time.Duration
	kept := 0
	for i := 0; i < idleOrders || i < mostOrders && kept < keptOrders; i++ {
		took = append(took, one(i))
		if took[i] <= idleBound {
			kept++
		}
	}
	slices.Sort(took)
	n := len(took)
	t.Logf("%s: median %v, p90 %v, fastest %v of %d", what, took[n/2], took[n*9/10], took[0], n)
	if kept < keptOrders {
		t.Errorf("%s: %d of %d took under %v, the fastest %v", what, kept, n, idleBound, took[0])
	}
}

func TestOneIdleOrderTakesUnderTenMillisecondsToItsCommand(t *testing.T) {
	w := newWorld(t, t.TempDir(), embedded(t, "02-order.yaml", "effects.yaml")...)
	arrived := make(chan time.Time, 1)
	w.gateway.told = func(string) {
		select {
		case arrived <- time.Now():
		default: // only the first of an order is waited for
		}
	}
	w.startNATS()
	w.start()
	defer w.close()
	wait := func(begin time.Time) time.Duration {
		select {
		case at := <-arrived:
			return at.Sub(begin)
		case <-time.After(soon):
			t.Fatalf("nothing came; %s", w.story())
			return 0
		}
	}
	promised(t, "event to command at the gateway", func(i int) time.Duration {
		id := fmt.Sprintf("O%d", i)
		begin := time.Now()
		w.send("e"+id, "OrderPlaced", id, order(id))
		took := wait(begin)
		w.send("p"+id, "PaymentReceived", id, payment(id))
		until(t, id+" is done", func() bool { return w.status("order", id) == edda.StatusDone && w.outbox() == 0 })
		for len(arrived) > 0 { // the order's last command
			<-arrived
		}
		return took
	})
}

// oneCommand is the kind of saga that the promised rate is for: every event
// changes the state and sends one command.
const oneCommand = `saga: one
version: 1
key: event.order_id
from: all
state: {n: 0}
on:
  OrderPlaced: {start: true, set: {n: "=state.n + 1", amount: =event.amount}, do: [{command: Payment.Request, to: =key, with: {amount: =event.amount, currency: =event.currency}}]}
`

// BenchmarkEngine is the path of the saga worker from a real stream over a real
// saga to the durable commit and the ack. Its commands stay in the outbox. Run
// it with -benchtime=100000x: the first events of a run are slower.
func BenchmarkEngine(b *testing.B) { benchmarkEngine(b, false) }

// BenchmarkEngineAndRelay also carries the commands to their stream.
func BenchmarkEngineAndRelay(b *testing.B) { benchmarkEngine(b, true) }

func benchmarkEngine(b *testing.B, relay bool) {
	w := newWorld(b, b.TempDir(), oneCommand)
	w.quiet, w.direct = true, true
	w.startNATS()
	defer w.stopNATS()
	fill(b, w.js, b.N)
	s := &system{registry: prometheus.NewRegistry()}
	var js jetstream.JetStream
	s.conn, js = w.connect()
	w.open(s, js)
	var handled atomic.Int64
	done := make(chan struct{})
	w.count = func(ts []edda.Transition) {
		if handled.Add(int64(len(ts))) == int64(b.N) {
			close(done)
		}
	}
	w.build(s, js)
	parts := slices.DeleteFunc(s.parts(), func(p lifecycle.Component) bool {
		return p.Name == "effects" || p.Name == "scheduler" || p.Name == "outbox" && !relay
	})
	group := lifecycle.New(lifecycle.Options{}, parts...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := cpuTime(b)
	b.ResetTimer()
	go func() { ended <- group.Run(ctx) }()
	select {
	case <-done:
	case err := <-ended:
		b.Fatal(err)
	}
	for relay {
		if n, _ := s.db.OutboxSize(); n == 0 {
			break
		}
		runtime.Gosched()
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/float64(b.N), "cpu-µs/event")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/event")
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// cpuTime is what the process has used so far: it tells on a busy machine too
// what an event costs.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fill stores n events of n orders, as fast as the server takes them.
func fill(b *testing.B, js jetstream.JetStream, n int) {
	b.Helper()
	for i := range n {
		id := fmt.Sprintf("order-%d", i)
		_, err := js.PublishAsync("tenant.acme.aggregate.Order."+id, fmt.Appendf(nil,
			`{"event_id":"018f2c6e-7b1a-7000-8000-%012d","tenant_id":"acme","aggregate_type":"Order","aggregate_id":%q,"event_type":"OrderPlaced","timestamp":"2026-01-01T00:00:00Z","payload":{"order_id":%q,"customer":"c-1042","items":[{"sku":"A-1","quantity":2,"price":1250}],"amount":2500,"currency":"EUR"}}`, i, id, id))
		if err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
}
