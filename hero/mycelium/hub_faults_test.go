package mycelium

import (
	"context"
	"testing"
	"time"

	"edda/internal/testkit"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestReplyIsOfferedUntilTheNodeIsThere(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.server(Options{}, func(context.Context, Message) []byte {
			w.far.Stop()
			time.AfterFunc(150*time.Millisecond, w.far.Start)
			return result("1")
		})
		if _, err := w.caller(Options{}).Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestNodeThatIsDownAtTheStart(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zap.InfoLevel)
		w.far.Stop()
		w.server(Options{Log: zap.New(core)}, answering)
		testkit.Until(t, patience, "it is missed", func() bool { return logs.FilterMessage("mycelium does not answer, asking again").Len() == 2 })
		h := w.caller(Options{})
		_, err := h.Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) {
			if s == StatePending {
				w.far.Start() // it gets what is still being tried
			}
		}})
		if err != nil {
			t.Error(err)
		}
	})
}

// slow is an API whose push returns only after the reply was popped.
type slow struct {
	API
	popped chan struct{}
}

func (s *slow) Push(ctx context.Context, d Peer, topic string, payload []byte, wait time.Duration) (Pushed, error) {
	p, err := s.API.Push(ctx, d, topic, payload, wait)
	<-s.popped
	return p, err
}

func TestReplyThatIsQuickerThanThePush(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		// Its id is null, so that only the id of the message tells whose it is.
		unread := `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`
		w.server(Options{}, func(context.Context, Message) []byte { return []byte(unread) })
		s := &slow{API: w.dial(w.near), popped: make(chan struct{})}
		h := NewHub(s, Options{})
		testkit.Run(t, h.Run)
		go func() {
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				h.mu.Lock()
				early := len(h.early)
				h.mu.Unlock()
				if early == 1 {
					break
				}
			}
			close(s.popped)
		}()
		got, err := h.Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{})
		if err != nil || string(got) != unread {
			t.Errorf("reply %s, %v", got, err)
		}
	})
}

// The server could not read the request, so only the message's id identifies the call.
func TestReplyWithoutAnID(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		unread := `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`
		for _, reply := range []string{unread, "no JSON at all"} {
			ctx, cancel := context.WithCancel(t.Context())
			release, replied := make(chan struct{}), make(chan struct{})
			far := w.dial(w.far)
			go func() {
				defer close(replied)
				select {
				case <-release:
				case <-ctx.Done(): // the push has failed, as the test says
					return
				}
				if m := pop(t, far, topic); m == nil || far.Reply(t.Context(), *m, []byte(reply)) != nil {
					t.Error("the far node did not reply")
				}
			}()
			h := NewHub(w.dial(w.near), Options{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = h.Run(ctx) // nil
			}()
			got, err := h.Call(within(t, patience), w.dst(), topic, request("1"), "1", CallOptions{Observe: func(s State, _ string) {
				if s == StatePending {
					close(release) // the push has returned
				}
			}})
			if err != nil || string(got) != reply {
				t.Errorf("reply %s, %v", got, err)
			}
			cancel()
			<-done
			<-replied // the reply may be here before its sender knows
		}
	})
}

func TestResponsesAreNotRequests(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		var c counts
		w.server(Options{Count: c.add}, func(context.Context, Message) []byte {
			t.Error("a response was handled")
			return nil
		})
		for _, payload := range []string{`{"jsonrpc":"2.0","id":"9","result":null}`, `{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"m"}}`} {
			if _, err := w.dial(w.near).Push(t.Context(), w.dst(), topic, []byte(payload), 0); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Until(t, patience, "both are strays", func() bool { return c.of(CountStray) == 2 })
	})
}

func TestSecondReplyToACallThatHasNotTakenTheFirst(t *testing.T) {
	var c counts
	h := NewHub(nil, Options{Count: c.add})
	w := &waiter{reply: make(chan []byte, 1)}
	for range 3 {
		h.hand(w, Message{Payload: []byte("x")})
	}
	if c.of(CountReply) != 1 || c.of(CountStray) != 2 {
		t.Errorf("counts %v", c.seen)
	}
}

func TestMemoryForgetsTheOldest(t *testing.T) {
	m := newMemory(2)
	for i, want := range []struct {
		key string
		new bool
	}{{"a", true}, {"a", false}, {"b", true}, {"a", false}, {"c", true}, {"b", false}, {"a", true}, {"b", true}} {
		if m.add(want.key) != want.new {
			t.Errorf("%d: %s", i, want.key)
		}
	}
	if len(m.keys) != 2 {
		t.Errorf("%d keys", len(m.keys))
	}
}

// A pop takes the message even if its caller does not wait for the answer.
func TestNothingIsLostWithAHubThatEnds(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		far := w.dial(w.far)
		for i := range 40 {
			ctx, cancel := context.WithCancel(t.Context())
			strays := make(chan Message, 1)
			h := NewHub(w.dial(w.near), Options{Stray: func(m Message) { strays <- m }})
			done := make(chan error, 1)
			go func() { done <- h.Run(ctx) }()
			if _, err := far.Push(t.Context(), Peer{PK: w.near.Key()}, "", []byte("x"), 0); err != nil {
				t.Fatal(err)
			}
			cancel()
			testkit.Must(t, <-done)
			if m := pop(t, w.dial(w.near), ""); (m == nil) != (len(strays) == 1) {
				t.Fatalf("%d: left %v, taken %d", i, m, len(strays))
			}
		}
	})
}

func TestRequestIsNotHandledByAHubThatEnds(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	h := NewHub(nil, Options{Log: zap.New(core)})
	if err := h.Serve("", func(context.Context, Message) []byte {
		t.Error("handled")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.arrived(ctx, Message{ID: "1", Payload: []byte("x")})
	h.working.Wait()
	if logs.Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
}
