package grpceffect

import (
	"errors"
	"testing"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
)

func TestSuite(t *testing.T) {
	for _, description := range []string{describedV1, describedAlpha} {
		t.Run(description, func(t *testing.T) {
			b := openBank(t, description)
			effecttest.Run(t, effecttest.Subject{
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
