//go:build !race

package systemtest

import (
	"fmt"
	"testing"
	"time"

	"edda/stream/wire"
)

// TestLiveOrdersGoOnWhileAHundredThousandMessagesAreCaughtUp, within milliseconds each.
func TestLiveOrdersGoOnWhileAHundredThousandMessagesAreCaughtUp(t *testing.T) {
	many := 100_000
	if testing.Short() {
		many = 10_000
	}
	inBubble(t, []string{fmt.Sprintf(diarySaga, "first")}, func(w *world) {
		w.quiet = true
		for i := range many {
			if _, err := w.js.PublishAsync(fmt.Sprintf("tenant.%s.aggregate.Order.K%d", tenant, i%1000), []byte(fmt.Sprintf(
				`{"event_id":"e%d","tenant_id":%q,"aggregate_type":"Order","aggregate_id":"K","event_type":"Opened","payload":{"id":"K%d"}}`, i, tenant, i%1000))); err != nil {
				t.Fatal(err)
			}
			if i%2000 == 1999 {
				<-w.js.PublishAsyncComplete()
			}
		}
		w.until("all is taken in", func() bool { return w.running.position(wire.AggregateEvents) >= uint64(many) })
		w.begins(fmt.Sprintf(diarySaga, "later"))
		slowest, n := time.Duration(0), 0
		for ; len(w.running.engine.Info().Behind) > 0; n++ {
			id := fmt.Sprint("L", n)
			began := time.Now()
			w.send("live"+id, "Opened", id, fmt.Sprintf(`{"id":%q}`, id))
			w.until("it is taken in", func() bool { return w.instance("first", id) != nil })
			slowest = max(slowest, time.Since(began))
		}
		w.liveAgain()
		if slowest > 100*time.Millisecond || n == 0 {
			t.Errorf("of %d live events one took %v", n, slowest)
		}
		for _, id := range []string{"K0", "K999"} {
			if got, want := w.diary("later", id), w.diary("first", id); got != want {
				t.Errorf("%s has %.100s, want %.100s", id, got, want)
			}
		}
	})
}
