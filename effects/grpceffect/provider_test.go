package grpceffect

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
)

func TestSuite(t *testing.T) {
	for _, description := range []string{describedV1, describedAlpha} {
		t.Run(description, func(t *testing.T) {
			b := openBank(t, description)
			effecttest.Run(t, effecttest.Fixture{
				Provider:    local(t),
				Accepted:    b.config(),
				Hangs:       b.config(map[string]any{"message": map[string]any{"order": "hang"}}),
				Unreachable: b.config(map[string]any{"target": nobody(t)}),
				Impossible:  b.config(map[string]any{"message": map[string]any{"oder": "o1"}}),
				Seen:        b.count,
			})
		})
	}
}

func TestUnreachableIsTriedAgainAtOnce(t *testing.T) {
	b := openBank(t, describedV1)
	p := local(t)
	b.stop()
	for range 3 {
		if _, err := b.call(p, "k"); !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) {
			t.Fatalf("error %v", err)
		}
	}
	b.start(describedV1)
	if _, err := b.call(p, "k"); err != nil {
		t.Errorf("the server is back, and the call gave %v", err)
	}
}

// TestOvertaken: what grpc says of a call whose context has ended is no answer,
// what the other side says of it is one.
func TestOvertaken(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		ctx  context.Context
		code codes.Code
		want bool
	}{
		{ended, codes.Canceled, true}, {ended, codes.DeadlineExceeded, true}, {ended, codes.NotFound, false},
		{t.Context(), codes.Canceled, false}, {t.Context(), codes.DeadlineExceeded, false},
	} {
		if got := overtaken(tt.ctx, status.Error(tt.code, "")); got != tt.want {
			t.Errorf("%v %s: %t", tt.ctx.Err(), tt.code, got)
		}
	}
}
