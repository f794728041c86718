package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/stream/wire"
)

// told is a result as everybody finds it in its stream.
type toldResult struct {
	ID       string          `json:"command_id"`
	Effect   string          `json:"effect_name"`
	Outcome  string          `json:"result_type"`
	Payload  json.RawMessage `json:"payload"`
	Metadata json.RawMessage `json:"metadata"`
}

// results are those in the stream.
func (w *world) results() (out []toldResult) {
	w.t.Helper()
	for _, m := range readAll(w.t, w.js, wire.WorkflowEvents, "tenant.acme.effect_result.>") {
		var r toldResult
		decode(w.t, m.Data(), &r)
		if id := idOf(m); id != wire.ResultID(r.ID) {
			w.t.Errorf("the result of %s has the id %s", r.ID, id)
		}
		out = append(out, r)
	}
	return out
}

// resultOf is the last result of an effect.
func (w *world) resultOf(effect string) toldResult {
	w.t.Helper()
	all := w.results()
	i := slices.IndexFunc(all, func(r toldResult) bool { return r.Effect == effect })
	if i < 0 {
		w.t.Fatalf("no result of %s; %s", effect, w.story())
	}
	return all[i]
}

// took tells how often each result was applied, and as what.
func (w *world) took() map[string][]edda.Fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string][]edda.Fate{}
	for _, t := range w.seen {
		if t.Event.Kind == edda.KindResult {
			out[t.Event.CommandID] = append(out[t.Event.CommandID], t.Fate)
		}
	}
	return out
}

// TestHandedOverCommandsLeaveNoTraceButTheirResults: others find what they found
// before, and each result counts once.
func TestHandedOverCommandsLeaveNoTraceButTheirResults(t *testing.T) {
	var told [2][]string
	for i, apart := range []bool{false, true} {
		inBubbleOf(t, embedded(t, "02-order.yaml", "effects.yaml"), apart, func(w *world) {
			w.shop.answer("ship", func(c call) int {
				if c.Order == "O2" {
					return http.StatusConflict
				}
				return http.StatusOK
			})
			for _, id := range []string{"O1", "O2", "O3"} {
				w.send("e"+id, "OrderPlaced", id, order(id))
				w.send("p"+id, "PaymentReceived", id, payment(id))
			}
			w.ends("order", "O1", edda.StatusDone)
			w.ends("order", "O2", edda.StatusUndone)
			w.ends("order", "O3", edda.StatusDone)
			w.idle()
			w.pass(time.Now().Add(time.Minute)) // whatever may still come
			for _, r := range w.results() {
				var md struct{ Saga, Key, Step string }
				decode(t, r.Metadata, &md)
				told[i] = append(told[i], fmt.Sprint(md.Saga, md.Key, md.Step, r.Effect, r.Outcome, r.Effect != "ship" || strings.Contains(string(r.Payload), "Z-"+md.Key)))
				if got := w.took()[r.ID]; !slices.Equal(got, []edda.Fate{edda.FateHandled}) {
					t.Errorf("apart %v: the result of %s was taken as %v", apart, r.ID, got)
				}
			}
			if n := len(readAll(t, w.js, wire.WorkflowCommands, "tenant.acme.effect.>")); (n > 0) != apart {
				t.Errorf("apart %v: %d commands of effects in their stream", apart, n)
			}
			if errs := w.running.db.Check(context.Background()); len(errs) > 0 {
				t.Errorf("the store contradicts itself: %v", errs)
			}
			slices.Sort(told[i])
		})
	}
	if len(told[0]) == 0 || !slices.Equal(told[0], told[1]) {
		t.Errorf("within: %v\napart: %v", told[0], told[1])
	}
}

// TestTheWayMayChangeAtEveryStart: what one began the other ends.
func TestTheWayMayChangeAtEveryStart(t *testing.T) {
	inBubble(t, embedded(t, "02-order.yaml", "effects.yaml"), func(w *world) {
		const n = 60
		for i := range n {
			id := fmt.Sprintf("O%d", i)
			w.send("e"+id, "OrderPlaced", id, order(id))
			w.send("p"+id, "PaymentReceived", id, payment(id))
			if i%10 == 5 {
				w.stop()
				w.apart = !w.apart
				w.start()
			}
		}
		for i := range n {
			w.ends("order", fmt.Sprintf("O%d", i), edda.StatusDone)
		}
		w.idle()
		w.books(n)
	})
}
