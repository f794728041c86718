package natseffect

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/effects"
	"edda/stream/kv"
)

// maxPayload is the bound of the tests' server: more than that of an answer.
const maxPayload = 4 << 20

// depot is a real NATS server, and the service at its subjects.
type depot struct {
	t    testing.TB
	url  string
	conn *nats.Conn // the service's
	js   jetstream.JetStream

	mu   sync.Mutex // guards below
	seen map[string]int
	last *nats.Msg
	// answer, if set, answers what the service gets.
	answer func(m *nats.Msg)
}

// openDepot starts the server and a service that answers every request below stock, except those to
// stock.hang.
func openDepot(t testing.TB) *depot {
	t.Helper()
	s, err := kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0", MaxPayload: maxPayload})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d := &depot{t: t, url: s.URL(), seen: map[string]int{}}
	d.conn, d.js = d.connect(kv.Connection{URL: s.URL()})
	d.subscribe("stock.>", "", d.handle)
	return d
}

func (d *depot) connect(c kv.Connection) (*nats.Conn, jetstream.JetStream) {
	d.t.Helper()
	conn, js, err := kv.Connect(c)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(conn.Close)
	return conn, js
}

// subscribe adds a service, as a member of a queue group if that is not empty.
func (d *depot) subscribe(subject, queue string, handle nats.MsgHandler) {
	d.t.Helper()
	if _, err := d.conn.QueueSubscribe(subject, queue, handle); err != nil {
		d.t.Fatal(err)
	}
	if err := d.conn.Flush(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *depot) handle(m *nats.Msg) {
	d.mu.Lock()
	d.seen[m.Header.Get("Idempotency-Key")]++
	d.last = m
	answer := d.answer
	d.mu.Unlock()
	switch {
	case m.Subject == "stock.hang":
	case answer != nil:
		answer(m)
	default:
		d.respond(m, `{"id":"R1"}`)
	}
}

func (d *depot) respond(m *nats.Msg, text string) {
	if err := m.Respond([]byte(text)); err != nil {
		d.t.Error(err)
	}
}

// answers sets what the service does from now on.
func (d *depot) answers(f func(m *nats.Msg)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = f
}

func (d *depot) count(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[key]
}

// latest returns the latest request of the service.
func (d *depot) latest() *nats.Msg {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// provider connects as the node does, to the server's URL or that of a network before it.
func provider(t testing.TB, url string) *Provider {
	t.Helper()
	p := New(Options{Connect: func() (*nats.Conn, jetstream.JetStream, error) {
		return kv.Connect(kv.Connection{URL: url, Unbuffered: true})
	}})
	t.Cleanup(p.Close)
	return p
}

func call(t testing.TB, p *Provider, key string, config map[string]any) (effects.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return p.Call(ctx, effects.Call{Effect: "reserve", ID: key, Key: key, Tenant: "acme", Config: config})
}

// unanswered makes a call that ends with its deadline at the latest. A call whose deadline was over before it was sent, because the
// machine was busy, is made again with twice the time.
func (d *depot) unanswered(p *Provider, within time.Duration, key string, config map[string]any) error {
	for ; ; within *= 2 {
		ctx, cancel := context.WithTimeout(d.t.Context(), within)
		_, err := p.Call(ctx, effects.Call{Key: key, Config: config})
		late := ctx.Err() != nil
		if cancel(); !late || !errors.Is(err, effects.ErrNotSent) || d.count(key) > 0 || within > patience {
			return err
		}
	}
}

// patience bounds waits that should end at once, or when the client's pings notice a dead connection.
const patience = 30 * time.Second

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
