package kv

import (
	"context"
	"strings"
	"testing"

	"edda/stream/wire"
)

// TestAStreamThatCannotBeWrittenIsNotHealthy: on a full disk the server gave up its streams, and
// /health reported no problem.
func TestAStreamThatCannotBeWrittenIsNotHealthy(t *testing.T) {
	bubble(t, func(_ context.Context, w *world) {
		if err := w.Server().(*Embedded).Healthy(); err != nil {
			t.Fatal(err)
		}
		w.Server().(*Embedded).log.Errorf("JetStream stream '%s > %s' critical write error: %v", "$G", wire.AggregateEvents, "no space left on device")
		err := w.Server().(*Embedded).Healthy()
		if err == nil || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "start again") {
			t.Errorf("got %v", err)
		}
	})
}
