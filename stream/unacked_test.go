package stream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/jsonvalue/jsonvaluetest"
	"edda/internal/testkit"
	"edda/stream/wire"
)

const wellStored = `{"stream":"S", "seq":7}`

func TestParseAck(t *testing.T) {
	var a ack // reused: each ack must overwrite the last
	full := &jetstream.APIError{}
	for data, want := range map[string]error{
		wellStored: nil,
		`{"stream":"S","seq":7,"duplicate":true}`:                                                        nil,
		`{"stream":"S","domain":"hub","seq":7,"batch":"b"}`:                                              nil,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S"}`: full,
		``:                 jetstream.ErrInvalidJSAck,
		`{}`:               jetstream.ErrInvalidJSAck,
		`[]`:               jetstream.ErrInvalidJSAck,
		`{"seq":7}`:        jetstream.ErrInvalidJSAck,
		`{"error":"full"}`: jetstream.ErrInvalidJSAck,
		`thanks`:           jetstream.ErrInvalidJSAck,
	} {
		err := parseAck(&nats.Msg{Data: []byte(data)}, &a)
		if want == error(full) {
			if !errors.As(err, &full) || full.ErrorCode != 10077 {
				t.Errorf("%s: %v", data, err)
			}
		} else if err != want {
			t.Errorf("%s: %v, want %v", data, err, want)
		}
	}
	none := &nats.Msg{Header: nats.Header{"Status": {"503"}}}
	if err := parseAck(none, &a); err != jetstream.ErrNoStreamResponse {
		t.Error(err)
	}
}

// silentSubject receives messages as a stream would, and acknowledges nothing.
func silentSubject(t *testing.T, w *world) <-chan *nats.Msg {
	t.Helper()
	heard := make(chan *nats.Msg, 8)
	if _, err := w.NC.ChanSubscribe("silentSubject.*", heard); err != nil {
		t.Fatal(err)
	}
	return heard
}

// publishOne publishes a message in a window of its own.
func (u *unacked) publishOne(t *testing.T, ctx context.Context) error {
	t.Helper()
	w, err := u.open(make([]edda.Work, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.publish(0, nats.NewMsg("silentSubject.x")); err != nil {
		t.Fatal(err)
	}
	return w.wait(ctx)[0]
}

// TestALateAckDoesNotAckTheNextMessage: otherwise a lost message would count as stored.
func TestALateAckDoesNotAckTheNextMessage(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		heard, u := silentSubject(t, w), newUnacked(w.NC)
		for range 2 {
			if err := u.publishOne(t, ctx); err != errUnacked {
				t.Errorf("got %v", err)
			}
			if err := (<-heard).Respond([]byte(wellStored)); err != nil {
				t.Error(err)
			}
		}
		go func() {
			m := <-heard
			for _, said := range []string{`{"error":{"code":500,"err_code":1}}`, wellStored} { // only the first counts
				if err := m.Respond([]byte(said)); err != nil {
					t.Error(err)
				}
			}
		}()
		if err := u.publishOne(t, ctx); err == nil {
			t.Error("the second ack counted")
		}
		synctest.Wait()
		if n := len(u.windows); n != 0 {
			t.Errorf("%d windows are left", n)
		}
	})
}

func TestADisconnectEndsTheWaitForAcks(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		u, began := newUnacked(w.NC), time.Now()
		silentSubject(t, w)
		fate := make(chan error, 1)
		go func() { fate <- u.publishOne(t, ctx) }()
		synctest.Wait()
		w.Restart(func() {
			if err := <-fate; err != nats.ErrDisconnected || time.Since(began) >= publishWait {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		})
		ctx, cancel := context.WithCancel(ctx)
		go func() { fate <- u.publishOne(t, ctx) }()
		synctest.Wait()
		cancel()
		if err := <-fate; err != context.Canceled {
			t.Error(err)
		}
	})
}

func TestAFullStreamRefusesWork(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.Update(ctx, wire.WorkflowEvents, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew })
		errs := NewPublisher(w.JS, wire.Codec{}).Deliver(ctx, facts(3))
		if len(errs) != 3 || errs[0] != nil || errs[1] != nil {
			t.Fatalf("got %v", errs)
		}
		testkit.WantError(t, errs[2], edda.Temporary, "w-2", "maximum messages")
	})
}

func TestAcksAreReadAsByEncodingJSON(t *testing.T) { jsonvaluetest.Suite(t, &ack{}) }

func FuzzDecodeAck(f *testing.F) { jsonvaluetest.FuzzDecode(f, &ack{}) }
