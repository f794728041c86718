package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestErrorsAfterWhichNothingComesEndTheReading(t *testing.T) {
	for _, tt := range []struct {
		err  error
		read uint64 // messages of this consumer so far
		ends bool
	}{
		{nats.ErrNoResponders, 0, true}, {nats.ErrNoResponders, 1, false},
		{jetstream.ErrNoHeartbeat, 1, true}, {jetstream.ErrConsumerDeleted, 1, true}, {jetstream.ErrConnectionClosed, 1, true},
		{jetstream.ErrConsumerLeadershipChanged, 0, false}, {nats.ErrTimeout, 0, false},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f := &feed{reader: &reader{name: "SHOP"}, end: cancel}
		f.number.Store(tt.read)
		f.onError(nil, fmt.Errorf("pull: %w", tt.err))
		if ended := ctx.Err() != nil; ended != tt.ends || ended && !errors.Is(context.Cause(ctx), tt.err) {
			t.Errorf("%v after %d messages: ended %t, because of %v", tt.err, tt.read, ended, context.Cause(ctx))
		}
		cancel(nil)
	}
}
