package stream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/wire"
)

// onePlace is a server with all tenants in one account, and the permissions that SECURITY.md
// recommends for that.
const onePlace = `
accounts: {
  E: { jetstream: enabled, users: [
    {user: edda, password: edda},
    {user: bob, password: bob, permissions: {publish: ["tenant.bob.aggregate.>"], subscribe: ["_INBOX_bob.>"]}},
  ]}
}
`

// accounts is a server with an account for each tenant, as SECURITY.md recommends for tenants that
// do not trust each other.
const accounts = `
accounts: {
  E: {
    jetstream: enabled
    users: [{user: edda, password: edda}]
    exports: [{service: "tenant.bob.aggregate.>", accounts: [B]}]
  }
  B: {
    users: [{user: bob, password: bob}]
    imports: [{service: {account: E, subject: "tenant.bob.aggregate.>"}}]
  }
}
`

// permitted starts a server with the configuration, and creates the streams.
func permitted(t *testing.T, config string) (edda, bob *nats.Conn) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("listen: 127.0.0.1:-1\njetstream: {store_dir: %q}\n%s", t.TempDir(), config)), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.NoLog, o.NoSigs = true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	connect := func(user string) *nats.Conn {
		c, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, user), nats.CustomInboxPrefix("_INBOX_"+user))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	edda, bob = connect("edda"), connect("bob")
	js, err := jetstream.New(edda)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureStreams(t.Context(), js, StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	return edda, bob
}

// replies are bob's reply subjects: subjects of acme, of every kind.
var replies = []string{orders, "tenant.acme.workflow.order.O1", "tenant.acme.effect_result.charge.c", "tenant.acme.workflow_event.order.O1", "tenant.acme.effect.charge.c"}

// publishAsBob publishes events with each of these reply subjects, and one that the stream refuses,
// so that an ack is an error.
func publishAsBob(t *testing.T, bob *nats.Conn) {
	t.Helper()
	for _, reply := range replies {
		for _, header := range []nats.Header{nil, {jetstream.MsgIDHeader: {reply}}, {jetstream.MsgIDHeader: {reply}}, {"Nats-Expected-Stream": {"NONE"}}} {
			m := &nats.Msg{Subject: "tenant.bob.aggregate.Order.O1", Reply: reply, Header: header, Data: []byte(`{"event_type":"X"}`)}
			if err := bob.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := bob.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// TestAcksOnAnotherTenantsSubjectsAreIgnored: bob, with exactly the permissions that SECURITY.md
// recommends, names acme's subjects as reply subjects. That creates no dead letter for acme, and
// answers no command.
func TestAcksOnAnotherTenantsSubjectsAreIgnored(t *testing.T) {
	nc, bob := permitted(t, onePlace)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	strays := &Strays{}
	src, err := OpenSource(ctx, js, nil, SourceOptions{From: FromAll, Strays: strays})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- src.Run(running) }()
	defer func() {
		stop()
		<-ended
	}()
	publishAsBob(t, bob)
	commands := NewCommands(js, CommandsOptions{Strays: strays})
	for want := uint64(4 * len(replies)); strays.Count() < want; {
		got, err := src.Fetch(ctx, 100, 10*time.Millisecond)
		if err != nil {
			t.Fatalf("%d of %d: %v", strays.Count(), want, err)
		}
		for _, ev := range got.Events {
			if ev.Tenant != "bob" || ev.Malformed != "" {
				t.Fatalf("an event of %s came: %s", ev.Tenant, ev.Error)
			}
		}
		deliveries, err := commands.Fetch(ctx, "charge", 10, 10*time.Millisecond)
		if len(deliveries) > 0 || err != nil {
			t.Fatalf("%d commands, %v", len(deliveries), err)
		}
	}
}

// TestAcksStayInTheTenantsAccount: with an account of his own, bob's reply subjects stay in it, and
// he gets his acks.
func TestAcksStayInTheTenantsAccount(t *testing.T) {
	nc, bob := permitted(t, accounts)
	publishAsBob(t, bob)
	js, err := jetstream.New(bob)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "tenant.bob.aggregate.Order.O1", Data: []byte(`{"event_type":"X"}`)})
	if err != nil || ack.Stream != wire.AggregateEvents {
		t.Fatalf("bob hears %+v, %v", ack, err)
	}
	if _, err := bob.Request("tenant.acme.aggregate.Order.O1", []byte(`{"event_type":"X"}`), time.Second); err == nil {
		t.Error("bob may publish for acme")
	}
	own, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans() {
		s, err := own.Stream(t.Context(), p.name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("tenant.acme.>"))
		if err != nil || len(info.State.Subjects) > 0 {
			t.Errorf("%s has %v, %v", p.name, info.State.Subjects, err)
		}
	}
}

func TestIsStrayAck(t *testing.T) {
	for body, want := range map[string]bool{
		`{"stream":"AGGREGATE_EVENTS", "seq":2}`:                                                                      true,
		`{"stream":"A", "domain":"hub", "seq":2,"duplicate": true}`:                                                   true,
		`{"stream":"A","seq":9,"batch":"b","count":3}`:                                                                true,
		`{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"stream":"A","seq":0}`: true,
		`{"stream":"A"}`: false,
		`{"stream":"A","seq":2,"event_type":"X"}`:                    false,
		`{"error":"it broke","event_type":"Broken"}`:                 false,
		`{"stream":"A","seq":2} {}`:                                  false,
		`{"event_type":"X","payload":{"stream":"A","seq":2}}`:        false,
		`{"stream":"` + strings.Repeat("A", maxStray) + `","seq":2}`: false,
		``: false,
	} {
		if got := isStrayAck(wire.Message{Data: []byte(body)}); got != want {
			t.Errorf("%.80s: %v", body, got)
		}
	}
	if isStrayAck(wire.Message{Data: []byte(`{"stream":"A","seq":2}`), Header: nats.Header{"x": {"y"}}}) {
		t.Error("one with a header is taken for an ack")
	}
}
