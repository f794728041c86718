package carry

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
)

// TestACopyThatWasCutOffBeginsAnew: the server that it was copied to gives it up after some ten seconds, and keeps an
// empty stream. Another empty stream is not taken for that: one with a reader, or that was made in another way.
func TestACopyThatWasCutOffBeginsAnew(t *testing.T) {
	one, alone := embedded(t), embedded(t)
	was := fill(t, one, 300)
	c := natscluster.Start(t)
	for name, to := range map[string]struct {
		js       jetstream.JetStream
		replicas int
	}{"one server": {alone, 1}, "three servers": {c.Connect(c.URLs()), 3}} {
		t.Run(name, func(t *testing.T) {
			ctx, cut := context.WithCancel(t.Context())
			defer cut()
			o := Options{Stream: "SHOP", Replicas: to.replicas, Tell: func(int) { cut() }}
			if _, err := Stream(ctx, one, to.js, o); !errors.Is(err, context.Canceled) {
				t.Fatalf("the copy was not cut off: %v", err)
			}
			o.Tell = nil
			is, err := Stream(t.Context(), one, to.js, o)
			testkit.Must(t, err)
			if !same(is.State, was.State) {
				t.Errorf("%+v, was %+v", is.State, was.State)
			}
			equal(t, one, to.js, was.State)
		})
	}
	for name, own := range map[string]jetstream.StreamConfig{"READ": {}, "MADE": {MaxMsgs: 7}} {
		subjects := []string{strings.ToLower(name)}
		own.Name, own.Subjects = name, subjects
		there, err := alone.CreateStream(t.Context(), own)
		testkit.Must(t, err)
		if name == "READ" {
			_, err = there.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "somebody"})
			testkit.Must(t, err)
		}
		_, err = one.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects})
		testkit.Must(t, err)
		_, err = one.Publish(t.Context(), subjects[0], nil)
		testkit.Must(t, err)
		if _, err := Stream(t.Context(), one, alone, Options{Stream: name, Replicas: 1}); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "another stream of this name") {
			t.Errorf("over the stream %s: %v", name, err)
		}
	}
}
