package costbudget

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/effects/effecttest"
	"edda/effects/httpeffect"
	"edda/engine"
	"edda/handoff"
	"edda/internal/jsonvalue"
	"edda/outbox"
	"edda/stream"
	"edda/stream/wire"
)

// taker is a destination that takes everything.
type taker struct{}

func (taker) Deliver(context.Context, []edda.Work) []error { return nil }

// relay carries n commands of n orders out, in one batch so that commits can be
// counted, and removes their rows.
func relay(tb testing.TB, n int) (func(), *books) {
	db, b := opened(tb)
	for i, c := range changes(tb, 0, n/batch+1, batch) {
		c.Transitions = c.Transitions[:min(batch, n-i*batch)]
		for j := range c.Transitions {
			c.Transitions[j].Work[0].Kind = edda.WorkCommand // an effect's row stays
		}
		commit(tb, db, c)
	}
	lane := outbox.Route{Name: "all", Kinds: []edda.WorkKind{edda.WorkCommand}, Destination: taker{}, Batch: n, Parallel: 1}
	r, err := outbox.New(db, outbox.Options{Routes: []outbox.Route{lane}})
	if err != nil {
		tb.Fatal(err)
	}
	return func() {
		b.begin(tb)
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		err := r.Flush(ctx)
		cancel()
		if err := errors.Join(err, <-ended); err != nil {
			tb.Fatal(err)
		}
		b.end(tb)
		if left, _ := db.OutboxSize(); left > 0 {
			tb.Fatalf("%d rows were not delivered", left)
		}
	}, b
}

// desk hands commands to a worker one at a time; calls are answered at once.
type desk struct {
	in  chan effects.Command
	out chan effects.Result
}

func (d desk) Fetch(ctx context.Context, _ string, _ int, _ time.Duration) ([]effects.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c := <-d.in:
		return []effects.Delivery{&effecttest.FakeDelivery{C: c}}, nil
	}
}

func (d desk) PublishResult(_ context.Context, r effects.Result) error {
	d.out <- r
	return nil
}

func (desk) Call(context.Context, effects.Call) (effects.Response, error) {
	return effects.Response{Status: 200, Body: map[string]any{"id": "P1"}}, nil
}

// settle has n commands done by a worker over the store's ledger.
func settle(tb testing.TB, n int) (func(), *books) {
	db, b := opened(tb)
	d := desk{make(chan effects.Command), make(chan effects.Result)}
	o := effects.Options{Source: d, Publisher: d, Providers: map[string]effects.Provider{"http": d}, Owner: "a worker"}
	w, err := effects.New(db, o, effect(tb, "reserve"))
	if err != nil {
		tb.Fatal(err)
	}
	serve(tb, w.Run)
	do := func(c effects.Command) {
		d.in <- c
		if r := <-d.out; r.Outcome != edda.Succeeded {
			tb.Fatalf("%s: %s", r.Outcome, r.Payload)
		}
	}
	all := commands(tb, n+1)
	do(all[n])
	return func() {
		b.begin(tb)
		for _, c := range all[:n] {
			do(c)
		}
		b.end(tb)
	}, b
}

// serve runs something until the test ends.
func serve(tb testing.TB, run func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
}

// applier takes results as the engine does, and forgets them.
type applier chan edda.Outcome

func (a applier) Result(_ context.Context, r engine.Handed) error {
	a <- r.Event.Outcome
	return nil
}

// nowhere is a JetStream to which nothing is published.
type nowhere struct{ jetstream.JetStream }

func (nowhere) Conn() *nats.Conn { return nil }

// handOver has n commands done by a worker to which the outbox hands them within the
// process, one at a time.
func handOver(tb testing.TB, n int) (func(), *books) {
	db, b := opened(tb)
	d, results, caughtUp := desk{make(chan effects.Command), nil}, make(applier), make(chan struct{})
	close(caughtUp)
	h := handoff.New(wire.Codec{}, stream.NewPublisher(nowhere{}, wire.Codec{}), nil, nil)
	o := effects.Options{Source: d, Publisher: d, Providers: map[string]effects.Provider{"http": d}, Owner: "a worker", Applier: h}
	w, err := effects.New(db, o, effect(tb, "reserve"))
	if err != nil {
		tb.Fatal(err)
	}
	h.Connect(w, results, caughtUp)
	serve(tb, h.Run) // it offers again what comes before the worker's line has begun
	serve(tb, w.Run)
	all := make([]edda.Work, n+1)
	for i, c := range changes(tb, 0, n+1, 1) {
		all[i] = c.Transitions[0].Work[0]
		all[i].NotAfter = time.Time{} // it is of a time long ago
	}
	do := func(w edda.Work) {
		if !h.Take(&w) {
			tb.Fatal("it was not taken")
		}
		if got := <-results; got != edda.Succeeded {
			tb.Fatal(got)
		}
	}
	do(all[n])
	return func() {
		b.begin(tb)
		for _, w := range all[:n] {
			do(w)
		}
		b.end(tb)
	}, b
}

// commands are those of the first effect of n orders, as a worker reads them.
func commands(tb testing.TB, n int) (all []effects.Command) {
	tb.Helper()
	for _, c := range changes(tb, 0, n, 1) {
		m, err := (wire.Codec{}).Work(c.Transitions[0].Work[0])
		if err != nil {
			tb.Fatal(err)
		}
		c := (wire.Codec{}).Command(wire.Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: "WORKFLOW_COMMANDS", Seq: 9, Time: noon})
		if c.Malformed != "" {
			tb.Fatal(c.Malformed)
		}
		c.NotAfter = time.Time{} // it is of a time long ago
		all = append(all, c)
	}
	return all
}

// call makes n calls over one kept connection.
func call(tb testing.TB, n int) (func(), *books) {
	address := answering(tb) // before the provider, which closes its connections first
	guard, err := dial.New(dial.Options{AllowLoopback: true})
	if err != nil {
		tb.Fatal(err)
	}
	p := httpeffect.New(httpeffect.Options{Guard: guard})
	tb.Cleanup(p.Close)
	payload, err := jsonvalue.Decode(tell(tb, program(tb), orderID(0)).made[0].Work[0].Payload)
	if err != nil {
		tb.Fatal(err)
	}
	c := effects.Call{Effect: "reserve", ID: "c1", Key: "c1", Tenant: "acme", Config: map[string]any{
		"method": "POST", "url": "http://" + address + "/effects/reserve", "body": payload,
	}}
	return repeat(n, func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if r, err := p.Call(ctx, c); err != nil || r.Status != 200 {
			tb.Fatal(r, err)
		}
	})
}

// answering is the address of an HTTP server that says the same to everything. It
// allocates nothing for a request, so that only the caller's side is counted.
func answering(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
		}
	}()
	tb.Cleanup(func() { _ = l.Close(); <-ended })
	return l.Addr().String()
}

// answer serves one connection until the other side closes it.
func answer(conn net.Conn) {
	defer conn.Close()
	said := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 39\r\n\r\n{\"id\":\"0001\",\"status\":\"accepted\",\"n\":1}")
	in := bufio.NewReader(conn)
	for length := 0; ; {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		line = bytes.TrimSpace(line)
		if count, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(count))
		}
		if len(line) > 0 {
			continue
		}
		if _, err := in.Discard(length); err != nil {
			return
		}
		if _, err := conn.Write(said); err != nil {
			return
		}
		length = 0
	}
}
