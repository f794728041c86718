package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/stream/kv"
	"edda/stream/wire"
)

// toldWithin is when a process must report an outage.
const toldWithin = 10 * time.Second

// silence drops what a server sends while it is on. A connection that was silenced breaks
// afterwards.
type silence struct {
	world *world
	on    atomic.Bool
}

func (s *silence) InProcessConn() (net.Conn, error) {
	if s.on.Load() {
		return nil, errors.New("no answer")
	}
	c, err := s.world.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &silenced{Conn: c, by: s}, nil
}

type silenced struct {
	net.Conn
	by  *silence
	met bool // one goroutine reads
}

func (c *silenced) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.met = c.met || c.by.on.Load()
		switch {
		case !c.met || err != nil:
			return n, err
		case !c.by.on.Load():
			return 0, io.EOF
		}
	}
}

// TestAnOutageIsReportedWithinTenSeconds: a missing stream, or a frozen server, at different times
// between two checks.
func TestAnOutageIsReportedWithinTenSeconds(t *testing.T) {
	for _, phase := range []time.Duration{0, time.Millisecond, watchEvery / 2, watchEvery - time.Millisecond} {
		t.Run(phase.String(), func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) { checkReports(ctx, w, phase) })
		})
	}
}

func checkReports(ctx context.Context, w *world, phase time.Duration) {
	t := w.T
	quiet := &silence{world: w}
	nc, js, err := kv.Connect(kv.Connection{Server: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	watch := NewWatch(js, nil, nil, nil, nil)
	defer testkit.Run(t, watch.Run)()
	began := time.Now()
	// health is the health of the process.
	health := func() error {
		if nc.Status() != nats.CONNECTED {
			return errors.New("not connected")
		}
		return watch.Problem()
	}
	// soon makes a change at the given phase between two checks, and waits for the wanted health.
	soon := func(what string, well bool, change func()) {
		t.Helper()
		time.Sleep(watchEvery - time.Since(began)%watchEvery + phase)
		if (health() == nil) == well {
			t.Fatalf("%s: it says %v before", what, health())
		}
		change()
		from := time.Now()
		for (health() == nil) != well {
			time.Sleep(10 * time.Millisecond)
			if time.Since(from) > toldWithin {
				t.Fatalf("%s: after %v it says %v", what, time.Since(from), health())
			}
		}
		t.Logf("%s: told after %v", what, time.Since(from))
	}
	remake := func() {
		if _, err := EnsureStreams(ctx, w.JS, StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(watchEvery)
	for _, p := range plans() {
		soon(p.name+" is deleted", false, func() {
			if err := w.JS.DeleteStream(ctx, p.name); err != nil {
				t.Fatal(err)
			}
		})
		soon(p.name+" is there again", true, remake)
	}
	var frozen time.Time
	soon("the server is frozen", false, func() { frozen = time.Now(); quiet.on.Store(true) })
	time.Sleep(toldWithin - time.Since(frozen))
	if nc.Status() == nats.CONNECTED {
		t.Error("the connection to a frozen server is kept")
	}
	soon("the server goes on", true, func() { quiet.on.Store(false) })
}

// TestASilentJetStreamIsReportedWithinTenSeconds: the server answers, its streams do not.
func TestASilentJetStreamIsReportedWithinTenSeconds(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		const prefix = "MUTE"
		var mute atomic.Bool
		relay, err := w.NC.Subscribe(prefix+".>", func(m *nats.Msg) {
			if !mute.Load() {
				if err := w.NC.PublishRequest("$JS.API"+m.Subject[len(prefix):], m.Reply, m.Data); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = relay.Unsubscribe() }()
		js, err := jetstream.NewWithAPIPrefix(w.NC, prefix)
		if err != nil {
			t.Fatal(err)
		}
		watch := NewWatch(js, nil, nil, nil, nil)
		watch.Follow(NewTail(js, w.codec, []edda.Mark{{Stream: wire.AggregateEvents, Seq: w.send("acme", "O1", 1), ID: "acme-O1-1"}}))
		stop := testkit.Run(t, watch.Run)
		time.Sleep(watchEvery + time.Millisecond)
		if err := watch.Problem(); err != nil {
			t.Fatalf("all is well, and it says %v", err)
		}
		mute.Store(true)
		time.Sleep(toldWithin)
		testkit.WantError(t, watch.Problem(), nil, "AGGREGATE_EVENTS does not answer", "WORKFLOW_COMMANDS does not answer", "WORKFLOW_EVENTS does not answer")
		mute.Store(false)
		time.Sleep(toldWithin)
		if err := watch.Problem(); err != nil {
			t.Errorf("all answer again, and it says %v", err)
		}
		stop()
	})
}
