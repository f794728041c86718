package systemtest

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/stream/wire"
)

// nightly does all that goes to the streams in the transition of its schedule, whose ids
// everybody can compute who knows the manifest.
const nightly = `saga: nightly
version: 1
key: event.order
schedule: {night: {every: 5m, tenants: [acme], with: {order: S}}}
on:
  schedule.night:
    start: true
    do:
      - {effect: work, with: {order: =event.order}}
      - {command: Ledger.Post, to: L1, with: {amount: 7}}
      - {start: child, key: "key + '-c'", with: {order: =key}}
      - {event: Began, with: {order: =key}}
  work.ok: {}
  child.ok: {do: [{done: =event}]}
---
saga: child
version: 1
state: {}
on:
  Born: {start: true, do: [{done: {ok: true}}]}
---
effect: work
http: {method: POST, url: "http://shop.example/work", body: =payload}
`

// Bob may write on bob's subjects alone. He publishes there, beforehand, under every id
// that acme's schedule is going to use.
func TestAnIDThatAnotherTenantTookBeforehandMakesNoWorkVanish(t *testing.T) {
	for name, apart := range map[string]bool{"within": false, "apart": true} {
		t.Run(name, func(t *testing.T) {
			ids := nightlyIDs(t, apart)
			aNight(t, apart, func(w *world) {
				for _, id := range ids {
					for n, taken := range []string{id, "acme " + id, wire.ResultID(id), "acme " + wire.ResultID(id)} {
						for _, family := range []string{"aggregate.Order", "effect.none", "effect_result.none"} { // one in each stream
							w.take("tenant.bob."+family+"."+fmt.Sprint(n, "-")+id, taken)
						}
					}
				}
			}, func(w *world) {
				w.ends("nightly", "S", edda.StatusDone)
				w.idle()
				same(t, "calls", w.shop.effects("S"), "work")
				result := "tenant.acme.effect_result.work." + ids[2]
				if !apart {
					result += ".echo"
				}
				for subject, want := range map[string]string{
					"tenant.acme.command.Ledger.L1":        ids[0],
					"tenant.acme.workflow_event.nightly.S": ids[1],
					result:                                 wire.ResultID(ids[2]),
				} {
					name := wire.WorkflowEvents
					if subject == "tenant.acme.command.Ledger.L1" {
						name = wire.WorkflowCommands
					}
					var got []string
					for _, m := range readAll(t, w.js, name, subject) {
						got = append(got, idOf(m))
					}
					same(t, subject, got, want)
				}
			})
		})
	}
}

// nightlyIDs are those of the command, the fact, the effect and the start.
func nightlyIDs(t *testing.T, apart bool) (ids []string) {
	aNight(t, apart, func(*world) {}, func(w *world) {
		w.ends("nightly", "S", edda.StatusDone)
		w.idle()
		byKind := map[edda.WorkKind]string{}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, tr := range w.seen {
			for _, work := range tr.Work {
				if tr.Key.Saga == "nightly" {
					byKind[work.Kind] = work.ID
				}
			}
		}
		ids = []string{byKind[edda.WorkCommand], byKind[edda.WorkFact], byKind[edda.WorkEffect], byKind[edda.WorkStart]}
	})
	for i, id := range ids {
		if id == "" {
			t.Fatalf("no id of kind %d in %q", i, ids)
		}
	}
	return ids
}

// aNight runs before a moment before acme's schedule is due.
func aNight(t *testing.T, apart bool, before, after func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, filepath.Join(dir, "night"), nightly)
		w.virtual, w.apart, w.direct = true, apart, true
		w.startNATS()
		defer w.close()
		w.start()
		w.pass(time.Now().Truncate(5 * time.Minute).Add(5*time.Minute - 5*time.Second))
		before(w)
		w.pass(time.Now().Add(6 * time.Second))
		after(w)
	})
}

// take sends a message as a stranger does, who chooses its Nats-Msg-Id.
func (w *world) take(subject, id string) {
	w.t.Helper()
	m := &nats.Msg{Subject: subject, Header: nats.Header{"Nats-Msg-Id": {id}}, Data: []byte(`{"event_type":"X"}`)}
	ack, err := w.js.PublishMsg(w.t.Context(), m)
	if err != nil || ack.Duplicate {
		w.t.Fatalf("%s under %s: %+v, %v", subject, id, ack, err)
	}
}
