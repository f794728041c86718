package systemtest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"edda"
)

// pulse is a saga whose timer repeats faster than its effect answers.
const pulse = `
saga: pulse
version: 1
key: event.order_id
state: {n: 0}
on:
  OrderPlaced:
    start: true
    do: [{timer: tick, every: 100ms}]
  timer.tick:
    set: {n: "=state.n + 1"}
    do:
      - {effect: ping, with: {order: =key, n: =state.n}, if: state.n <= 5}
      - {done: =state.n, if: state.n > 9}
---
effect: ping
http: {method: POST, url: "http://shop.example/ping", body: =payload}
timeout: 5s
`

// TestARestoredStoreFiresEachTimeOfARepeatingTimer: what a repeating timer came to
// while the store's process worked was not missed. Were it taken together, the effects
// would be called again, under the keys of other times.
func TestARestoredStoreFiresEachTimeOfARepeatingTimer(t *testing.T) {
	const orders = 40
	inBubbleOf(t, []string{pulse}, true, func(w *world) {
		w.shop.answer("ping", func(call) int {
			time.Sleep(250 * time.Millisecond)
			return http.StatusOK
		})
		place := func(from, to int) {
			for n := from; n < to; n++ {
				w.send(fmt.Sprint("e", n), "OrderPlaced", fmt.Sprint("O", n), fmt.Sprintf(`{"order_id":"O%d"}`, n))
				time.Sleep(25 * time.Millisecond)
			}
		}
		ended := func() {
			for n := range orders {
				w.ends("pulse", fmt.Sprint("O", n), edda.StatusDone)
			}
			w.idle()
		}
		place(0, orders/2)
		backup := w.backUp()
		place(orders/2, orders)
		ended()
		w.stop()
		w.restore(backup)
		w.pass(time.Now().Add(time.Hour))
		w.start()
		ended()
		keys := map[string]string{}
		for _, c := range w.shop.all() {
			if was := keys[c.Body]; was != "" && was != c.Key {
				t.Errorf("%s was called under two keys: %s and %s", c.Body, was, c.Key)
			}
			keys[c.Body] = c.Key
		}
		if len(keys) != 5*orders {
			t.Errorf("%d pings, want %d", len(keys), 5*orders)
		}
	})
}
