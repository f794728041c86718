package mycelium

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda/hero/mycelium/standin"
	"edda/internal/testkit"
)

const topic = "supervisor.rpc"

// patience bounds the waits of a test.
const patience = 20 * time.Second

// world has three nodes and a way to reach them, for one suite over both protocols.
type world struct {
	t                 *testing.T
	bus               *standin.Bus
	near, far, thirds *standin.Node
	dial              func(n *standin.Node) API
	clock             atomic.Int64 // nanoseconds to add to the time
	fault             atomic.Value // func(standin.Envelope) standin.Fault
}

// inBoth runs the test over JSON-RPC and over REST.
func inBoth(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("jsonrpc", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, func(t *testing.T, n *standin.Node) API {
			h, err := n.RPC()
			testkit.Must(t, err)
			return NewRPC(serve(t, h))
		}))
	})
	t.Run("rest", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, func(t *testing.T, n *standin.Node) API { return NewREST(serve(t, n.REST())) }))
	})
}

func newWorld(t *testing.T, dial func(*testing.T, *standin.Node) API) *world {
	w := &world{t: t, dial: func(n *standin.Node) API { return dial(t, n) }}
	w.fault.Store(func(standin.Envelope) standin.Fault { return standin.Fault{} })
	w.bus = standin.New(standin.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(w.clock.Load())) },
		Fault: func(e standin.Envelope) standin.Fault {
			return w.fault.Load().(func(standin.Envelope) standin.Fault)(e)
		},
	})
	t.Cleanup(w.bus.Close)
	w.near, w.far, w.thirds = w.bus.Node("near"), w.bus.Node("far"), w.bus.Node("third")
	return w
}

func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = nil
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// counts collects the counters of a hub.
type counts struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[what]++
}

func (c *counts) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[what]
}

// caller is a hub at the near node.
func (w *world) caller(o Options) *Hub {
	if o.Look == 0 {
		o.Look = 20 * time.Millisecond
	}
	h := NewHub(w.dial(w.near), o)
	testkit.Run(w.t, h.Run)
	return h
}

// server is a hub at the far node that answers with handle.
func (w *world) server(o Options, handle Handler) *Hub {
	h := NewHub(w.dial(w.far), o)
	testkit.Must(w.t, h.Serve(topic, handle))
	testkit.Run(w.t, h.Run)
	return h
}

func (w *world) dst() Peer { return Peer{PK: w.far.Key()} }

func request(id string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"method":"job.run","params":[{}]}`, id)
}

func result(id string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"result":{"success":"done"}}`, id)
}

// answering replies to the id "1".
func answering(context.Context, Message) []byte { return result("1") }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCallIsAnswered(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		var got Message
		w.server(Options{}, func(_ context.Context, m Message) []byte {
			got = m
			return result("1")
		})
		var c counts
		var states []State
		reply, err := w.caller(Options{Count: c.add}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{
			Observe: func(s State, id string) {
				states = append(states, s)
				if len(id) != 16 {
					t.Errorf("id %q", id)
				}
			},
		})
		if err != nil || string(reply) != string(result("1")) {
			t.Fatalf("reply %s, %v", reply, err)
		}
		if got.SrcPK != w.near.Key() || got.SrcIP != w.near.IP() || got.DstPK != w.far.Key() || got.DstIP != w.far.IP() || string(got.Topic) != topic || string(got.Payload) != string(request("1")) {
			t.Errorf("request %+v", got)
		}
		if len(states) == 0 || states[0] != StatePending {
			t.Errorf("states %v", states)
		}
		// The reply is counted once it is handed over, and the caller may be quicker.
		testkit.Until(t, patience, "the reply is counted", func() bool { return c.of(CountReply) == 1 })
	})
}

func TestCallToAnAddressOfTheNodesRange(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.server(Options{}, answering)
		ip := w.far.IP()
		other := ip[:strings.LastIndex(ip, ":")] + ":1"
		h := w.caller(Options{})
		for _, ip := range []string{ip, other} {
			if _, err := h.Call(within(t, patience), Peer{IP: ip}, topic, request("1"), "1", CallOptions{}); err != nil {
				t.Errorf("%s: %v", ip, err)
			}
		}
	})
}

func TestManyCallsAtOnce(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.server(Options{}, func(_ context.Context, m Message) []byte {
			id := strings.Split(string(m.Payload), `"`)[7]
			return result(id)
		})
		h := w.caller(Options{Look: time.Second})
		ctx := within(t, patience)
		var group sync.WaitGroup
		for i := range 60 {
			group.Go(func() {
				id := fmt.Sprint("call ", i)
				reply, err := h.Call(ctx, w.dst(), topic, request(id), id, CallOptions{})
				if err != nil || string(reply) != string(result(id)) {
					t.Errorf("%s: %s, %v", id, reply, err)
				}
			})
		}
		group.Wait()
	})
}

func TestReplyThatIsLost(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		var c counts
		w.server(Options{Count: c.add}, answering)
		w.fault.Store(func(e standin.Envelope) standin.Fault { return standin.Fault{Drop: e.Reply} })
		var states []State
		ctx, cancel := context.WithCancel(within(t, patience))
		_, err := w.caller(Options{}).Call(ctx, w.dst(), topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) {
			if states = append(states, s); s == StateRead {
				cancel() // it was read: waiting longer would show no more
			}
		}})
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrAborted) || errors.Is(err, ErrUnsent) {
			t.Errorf("error %v", err)
		}
		if !slices.Contains(states, StateRead) {
			t.Errorf("states %v", states)
		}
		testkit.Until(t, patience, "it was handled", func() bool { return c.of(CountRequest) == 1 })
	})
}

func TestSecondReplyIsDropped(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.server(Options{}, answering)
		w.fault.Store(func(e standin.Envelope) standin.Fault { return standin.Fault{Duplicate: e.Reply} })
		var c counts
		reply, err := w.caller(Options{Count: c.add}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{})
		if err != nil || string(reply) != string(result("1")) {
			t.Fatalf("reply %s, %v", reply, err)
		}
		testkit.Until(t, patience, "the second one", func() bool { return c.of(CountStray) == 1 && c.of(CountReply) > 0 })
		if c.of(CountReply) != 1 {
			t.Errorf("counts %v", c.seen)
		}
	})
}

func TestLateReplyIsStray(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.server(Options{}, func(_ context.Context, _ Message) []byte {
			<-release
			return result("1")
		})
		strays := make(chan Message, 1)
		h := w.caller(Options{Stray: func(m Message) { strays <- m }})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := h.Call(ctx, w.dst(), topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) {
			if s == StateRead {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		close(release)
		select {
		case m := <-strays:
			if string(m.Payload) != string(result("1")) || m.SrcPK != w.far.Key() {
				t.Errorf("stray %+v", m)
			}
		case <-time.After(patience):
			t.Error("the late reply never came")
		}
	})
}

func TestReplyOfAStrangerIsDropped(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.server(Options{}, func(_ context.Context, _ Message) []byte {
			<-release
			return result("1")
		})
		core, logs := observer.New(zap.WarnLevel)
		var c counts
		h := w.caller(Options{Count: c.add, Log: zap.New(core)})
		stranger := w.dial(w.thirds)
		forged := []byte(`{"jsonrpc":"2.0","id":"1","result":"forged"}`)
		tries := 0
		reply, err := h.Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{Observe: func(_ State, id string) {
			if tries++; tries > 1 {
				return
			}
			if err := stranger.Reply(t.Context(), Message{ID: id, SrcPK: w.near.Key()}, forged); err != nil {
				t.Error(err)
			}
			if _, err := stranger.Push(t.Context(), Peer{PK: w.near.Key()}, "", forged, 0); err != nil {
				t.Error(err)
			}
			testkit.Until(t, patience, "both forgeries", func() bool { return c.of(CountStranger) == 2 })
			close(release)
		}})
		if err != nil || string(reply) != string(result("1")) {
			t.Errorf("reply %s, %v", reply, err)
		}
		if logs.Len() != 2 {
			t.Errorf("logged %v", logs.All())
		}
	})
}

// A late reply to an ended call is not taken for the reply to a waiting call to the same node.
func TestReplyToAnotherCallIsDropped(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.server(Options{}, func(_ context.Context, _ Message) []byte {
			<-release
			return result("2")
		})
		var c counts
		h, far := w.caller(Options{Count: c.add}), w.dial(w.far)
		reply, err := h.Call(within(t, patience), w.dst(), topic, request("2"), "2", CallOptions{Observe: func(s State, _ string) {
			if s != StatePending {
				return
			}
			if _, err := far.Push(t.Context(), Peer{PK: w.near.Key()}, "", result("1"), 0); err != nil {
				t.Error(err)
			}
			testkit.Until(t, patience, "a stray", func() bool { return c.of(CountStray)+c.of(CountReply) == 1 })
			close(release)
		}})
		if err != nil || string(reply) != string(result("2")) || c.of(CountStray) != 1 {
			t.Errorf("reply %s, %v, %d strays", reply, err, c.of(CountStray))
		}
	})
}

func TestReplyAsAMessageOfItsOwn(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		far, h := w.dial(w.far), w.caller(Options{})
		for name, id := range map[string]string{"text": `"7"`, "number": `7`} {
			reply := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":1,"message":"m"}}`
			got, err := h.Call(within(t, patience), w.dst(), topic, request("7"), "7", CallOptions{Observe: func(s State, _ string) {
				if s == StatePending {
					if _, err := far.Push(t.Context(), Peer{PK: w.near.Key()}, "", []byte(reply), 0); err != nil {
						t.Error(err)
					}
				}
			}})
			if err != nil || string(got) != reply {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		}
	})
}

func TestAbortedCallSaysSo(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.fault.Store(func(standin.Envelope) standin.Fault { return standin.Fault{Abort: true} })
		var states []State
		_, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) { states = append(states, s) }})
		if !errors.Is(err, ErrAborted) || !slices.Equal(states, []State{StatePending, StateAborted}) {
			t.Errorf("error %v, states %v", err, states)
		}
	})
}

func TestMessageToAnUnknownNodeIsAbortedAfterItsWindow(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		nobody := Peer{PK: strings.Repeat("ab", 32)}
		_, err := w.caller(Options{}).Call(within(t, patience), nobody, topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) {
			w.clock.Store(int64(5 * time.Minute))
		}})
		if !errors.Is(err, ErrAborted) {
			t.Errorf("error %v", err)
		}
	})
}

func TestUnknownStateEndsNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.server(Options{}, func(_ context.Context, _ Message) []byte {
			<-release
			return result("1")
		})
		w.fault.Store(func(e standin.Envelope) standin.Fault { return standin.Fault{} })
		var states []State
		reply, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) {
			states = append(states, s)
			switch s {
			case StatePending:
				w.clock.Store(int64(10 * time.Minute)) // forgotten before it is looked at
			case StateUnknown:
				close(release)
			}
		}})
		if err != nil || string(reply) != string(result("1")) || !slices.Contains(states, StateUnknown) {
			t.Errorf("reply %s, %v, states %v", reply, err, states)
		}
	})
}

func TestNodeIsRestartedWhileACallWaits(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.server(Options{}, func(_ context.Context, _ Message) []byte {
			<-release
			return result("1")
		})
		core, logs := observer.New(zap.InfoLevel)
		h := w.caller(Options{Log: zap.New(core)})
		var restarted bool
		reply, err := h.Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) {
			if s != StateReceived && s != StateRead || restarted {
				return
			}
			restarted = true
			w.near.Stop()
			close(release) // the reply is on its way while nobody is there
			testkit.Until(t, patience, "the node is missed", func() bool { return logs.FilterMessage("mycelium does not answer, asking again").Len() > 0 })
			w.near.Start()
		}})
		if err != nil || string(reply) != string(result("1")) {
			t.Fatalf("reply %s, %v", reply, err)
		}
		if n := logs.FilterMessage("mycelium does not answer, asking again").Len(); n != 1 {
			t.Errorf("%d complaints", n)
		}
	})
}

func TestPushWhoseAnswerIsLostMayHaveBeenMade(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		var c counts
		w.server(Options{Count: c.add}, answering)
		w.fault.Store(func(e standin.Envelope) standin.Fault { return standin.Fault{CutAnswer: !e.Reply} })
		_, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{})
		if err == nil || errors.Is(err, ErrUnsent) || errors.Is(err, ErrRefused) || errors.Is(err, ErrAborted) {
			t.Errorf("error %v", err)
		}
		testkit.Until(t, patience, "the request is served", func() bool { return c.of(CountRequest) == 1 })
	})
}

func TestNothingIsSent(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		h := w.caller(Options{})
		pushed := atomic.Int32{}
		w.fault.Store(func(standin.Envelope) standin.Fault {
			pushed.Add(1)
			return standin.Fault{}
		})
		call := func(h *Hub, dst Peer, topic, id string) error {
			_, err := h.Call(within(t, patience), dst, topic, request("1"), id, CallOptions{})
			return err
		}
		refused := map[string]error{
			"long topic": call(h, w.dst(), strings.Repeat("t", 256), "1"),
			"nowhere":    call(h, Peer{}, topic, "1"),
			"two places": call(h, Peer{IP: "400::1", PK: w.far.Key()}, topic, "1"),
			"odd key":    call(h, Peer{PK: "xyz"}, topic, "1"),
			"odd ip":     call(h, Peer{IP: "here"}, topic, "1"),
		}
		for name, err := range refused {
			if !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := call(h, w.dst(), topic, ""); err == nil {
			t.Error("a call without an id")
		}
		dead := httptest.NewServer(nil)
		dead.Close()
		for _, api := range []API{NewRPC(dead.URL), NewREST(dead.URL)} {
			if err := call(NewHub(api, Options{}), w.dst(), topic, "1"); !errors.Is(err, ErrUnsent) {
				t.Errorf("dead: %v", err)
			}
		}
		other := serve(t, http.NotFoundHandler())
		for _, api := range []API{NewRPC(other), NewREST(other)} {
			if err := call(NewHub(api, Options{}), w.dst(), topic, "1"); !errors.Is(err, ErrUnsent) {
				t.Errorf("another server: %v", err)
			}
		}
		if pushed.Load() != 0 {
			t.Errorf("%d pushed", pushed.Load())
		}
	})
}

func TestTwoCallsOfOneID(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		h := w.caller(Options{})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := h.Call(ctx, w.dst(), topic, request("1"), "1", CallOptions{Observe: func(State, string) {
			if _, err := h.Call(ctx, w.dst(), topic, request("1"), "1", CallOptions{}); err == nil || !strings.Contains(err.Error(), "waits already") {
				t.Errorf("second: %v", err)
			}
			cancel()
		}})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestRepeatedRequestIsServedOnce(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		var c counts
		w.server(Options{Count: c.add}, answering)
		w.fault.Store(func(e standin.Envelope) standin.Fault { return standin.Fault{Duplicate: !e.Reply} })
		if _, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, patience, "the repeat", func() bool { return c.of(CountRepeat) == 1 })
		if c.of(CountRequest) != 1 {
			t.Errorf("counts %v", c.seen)
		}
	})
}

func TestOtherTopicsAreLeftAlone(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.server(Options{}, answering)
		near := w.dial(w.near)
		for _, topic := range []string{"supervisor.rpc2", "supervisor", "SUPERVISOR.RPC"} {
			if _, err := near.Push(t.Context(), w.dst(), topic, request("x"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := w.far.Unread(); n != 3 {
			t.Errorf("%d left", n)
		}
	})
}

func TestHandlerThatPanicsEndsNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zap.ErrorLevel)
		w.server(Options{Log: zap.New(core)}, func(_ context.Context, m Message) []byte {
			if strings.Contains(string(m.Payload), "bad") {
				panic("bad")
			}
			return result("1")
		})
		if _, err := w.dial(w.near).Push(t.Context(), w.dst(), topic, []byte("bad"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, patience, "the panic is logged", func() bool { return logs.FilterMessage("the handler of a topic panicked").Len() == 1 })
	})
}

func TestRequestsBeyondTheBoundWait(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		var at atomic.Int32
		gate := make(chan struct{})
		w.server(Options{Serving: 2}, func(_ context.Context, m Message) []byte {
			at.Add(1)
			<-gate
			return result(strings.Split(string(m.Payload), `"`)[7])
		})
		h := w.caller(Options{})
		var group sync.WaitGroup
		for i := range 12 {
			group.Go(func() {
				id := fmt.Sprint(i)
				if _, err := h.Call(within(t, patience), w.dst(), topic, request(id), id, CallOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		// Two are handled, one is popped and waits, the others stay in the node.
		testkit.Until(t, patience, "all that fit are handled", func() bool { return at.Load() == 2 && w.far.Unread() == 9 })
		close(gate)
		group.Wait()
		if at.Load() != 12 {
			t.Errorf("%d handled", at.Load())
		}
	})
}

func TestHubThatEndsStillReplies(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		h := NewHub(w.dial(w.far), Options{})
		var worked atomic.Bool
		if err := h.Serve(topic, func(ctx context.Context, _ Message) []byte {
			cancel()
			<-ctx.Done()
			<-time.After(50 * time.Millisecond) // work that does not look at its context
			worked.Store(true)
			return result("1")
		}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			err := h.Run(ctx)
			if !worked.Load() {
				t.Error("it ended before its handler")
			}
			done <- err
		}()
		if _, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{}); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := h.Run(t.Context()); err == nil {
			t.Error("it runs twice")
		}
		if err := h.Serve("late", answering); err == nil {
			t.Error("a topic is served after the start")
		}
	})
}
