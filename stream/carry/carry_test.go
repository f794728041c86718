package carry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/stream/kv"
)

func TestMain(m *testing.M) { natscluster.Main(m) }

// embedded starts a server of one process.
func embedded(t *testing.T) jetstream.JetStream {
	t.Helper()
	e, err := kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()})
	testkit.Must(t, err)
	conn, js, err := kv.Connect(kv.Connection{Server: e.Server()})
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close(); e.Close() })
	return js
}

// fill makes a stream with n messages, of which one is deleted.
func fill(t *testing.T, js jetstream.JetStream, n int) *jetstream.StreamInfo {
	t.Helper()
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}, Duplicates: time.Hour, MaxMsgsPerSubject: 5})
	testkit.Must(t, err)
	for i := range n {
		_, err := js.Publish(t.Context(), fmt.Sprintf("shop.%d", i), []byte(strings.Repeat(fmt.Sprintf("order %d ", i), 2000)), jetstream.WithMsgID(fmt.Sprint(i)))
		testkit.Must(t, err)
	}
	testkit.Must(t, s.DeleteMsg(t.Context(), 2))
	info, err := s.Info(t.Context())
	testkit.Must(t, err)
	return info
}

// TestAServerWithoutALeaderIsAskedAgain: NATS servers that have just started elect one first.
func TestAServerWithoutALeaderIsAskedAgain(t *testing.T) {
	one, target := embedded(t), embedded(t)
	was := fill(t, one, 3)
	late, err := jetstream.NewWithDomain(target.Conn(), "late")
	testkit.Must(t, err)
	if _, err := late.Stream(t.Context(), "SHOP"); !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("nobody should answer yet: %v", err)
	}
	begins := time.AfterFunc(askAgain+askAgain/2, func() {
		forward(t, target.Conn(), "$JS.late.API.>", func(subject string) string { return "$JS.API." + strings.TrimPrefix(subject, "$JS.late.API.") }, nil)
	})
	defer begins.Stop()
	is, err := Stream(t.Context(), one, late, Options{Stream: "SHOP", Replicas: 1})
	testkit.Must(t, err)
	if !same(is.State, was.State) {
		t.Errorf("%+v, was %+v", is.State, was.State)
	}
}

// forward answers what comes to a subject as another one does. change may be nil.
func forward(t *testing.T, nc *nats.Conn, from string, to func(subject string) string, change func(subject string, answer []byte) []byte) {
	_, err := nc.Subscribe(from, func(m *nats.Msg) {
		answer, err := nc.Request(to(m.Subject), m.Data, answerWithin)
		if err == nil && change != nil {
			answer.Data = change(m.Subject, answer.Data)
		}
		if err == nil {
			err = m.Respond(answer.Data)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAChunkThatFindsNobodyIsSentAgain: a server of a cluster may hear late where another one listens. A restore that
// begins anew is refused there, because the stream exists.
func TestAChunkThatFindsNobodyIsSentAgain(t *testing.T) {
	one, target := embedded(t), embedded(t)
	was := fill(t, one, 3)
	late, err := jetstream.NewWithDomain(target.Conn(), "late")
	testkit.Must(t, err)
	restores := make(chan string, 10) // where their chunks go
	listens := func() {
		to := <-restores
		forward(t, target.Conn(), "late.chunks", func(string) string { return to }, nil)
		restores <- to
	}
	api := func(subject string) string { return "$JS.API." + strings.TrimPrefix(subject, "$JS.late.API.") }
	forward(t, target.Conn(), "$JS.late.API.>", api, func(subject string, answer []byte) []byte {
		var begun struct {
			Deliver string `json:"deliver_subject"`
		}
		if !strings.Contains(subject, "RESTORE") || json.Unmarshal(answer, &begun) != nil {
			return answer
		}
		restores <- begun.Deliver
		time.AfterFunc(askAgain/2, listens)
		return []byte(`{"deliver_subject":"late.chunks"}`)
	})
	is, err := Stream(t.Context(), one, late, Options{Stream: "SHOP", Replicas: 1})
	testkit.Must(t, err)
	if !same(is.State, was.State) || len(restores) != 1 {
		t.Errorf("%+v, was %+v, after %d restores", is.State, was.State, len(restores))
	}
}

// TestAStreamIsCopiedThereAndBack: to three servers and back to one.
func TestAStreamIsCopiedThereAndBack(t *testing.T) {
	c := natscluster.Start(t)
	many, one, back := c.Connect(c.URLs()), embedded(t), embedded(t)
	was := fill(t, one, 300)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := 0
	is, err := Stream(ctx, one, many, Options{Stream: "SHOP", Replicas: 3, Tell: func(n int) { told = n }})
	testkit.Must(t, err)
	if is.Config.Replicas != 3 || is.Config.Duplicates != time.Hour || !same(is.State, was.State) || told == 0 {
		t.Errorf("%+v\nwas %+v; %d bytes told", is, was, told)
	}
	equal(t, one, many, was.State)
	if is, err = Stream(ctx, one, many, Options{Stream: "SHOP", Replicas: 3}); err != nil || !same(is.State, was.State) {
		t.Errorf("a copy that is there: %+v, %v", is, err)
	}
	// The copy is a stream like others: it takes messages behind the last one.
	ack, err := many.Publish(ctx, "shop.9", []byte("new"), jetstream.WithMsgID("300"))
	if err != nil || ack.Sequence != was.State.LastSeq+1 {
		t.Errorf("the next message: %+v, %v", ack, err)
	}
	if _, err := Stream(ctx, one, many, Options{Stream: "SHOP", Replicas: 3}); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "another stream of this name") {
		t.Errorf("over another stream: %v", err)
	}
	returned, err := Stream(ctx, many, back, Options{Stream: "SHOP", Replicas: 1})
	testkit.Must(t, err)
	if returned.Config.Replicas != 1 || returned.State.LastSeq != was.State.LastSeq+1 {
		t.Errorf("%+v", returned)
	}
	equal(t, many, back, returned.State)
	if _, err := Stream(ctx, one, many, Options{Stream: "NONE", Replicas: 3}); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a stream that is not there: %v", err)
	}
}

// equal compares the messages of two streams, with their times.
func equal(t *testing.T, a, b jetstream.JetStream, state jetstream.StreamState) {
	t.Helper()
	first, err := a.Stream(t.Context(), "SHOP")
	testkit.Must(t, err)
	second, err := b.Stream(t.Context(), "SHOP")
	testkit.Must(t, err)
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		x, errX := first.GetMsg(t.Context(), seq)
		y, errY := second.GetMsg(t.Context(), seq)
		if (errX == nil) != (errY == nil) {
			t.Fatalf("message %d: %v and %v", seq, errX, errY)
		}
		if errX == nil && (x.Subject != y.Subject || string(x.Data) != string(y.Data) || !x.Time.Equal(y.Time) || x.Header.Get("Nats-Msg-Id") != y.Header.Get("Nats-Msg-Id")) {
			t.Fatalf("message %d: %v and %v", seq, x, y)
		}
	}
}
