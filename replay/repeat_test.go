package replay

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/internal/testkit"
)

// TestARepeatedCallBeginsNoSecondReplay, also after a restart, which a dry run does not outlive.
func TestARepeatedCallBeginsNoSecondReplay(t *testing.T) {
	w := newWorld(t, orderSaga)
	q := Request{Tenant: tenant, Saga: "order", ID: ulid.Make().String(), Stream: "AGGREGATE_EVENTS", FromSeq: 1, By: "ann", Shards: 2}
	begin := func(q Request) (Report, error) { return w.replayer.Begin(t.Context(), q) }
	first := testkit.Value[Report](t)(begin(q))
	q.By = "bob" // who repeats it
	again := testkit.Value[Report](t)(begin(q))
	if first.ID != q.ID || again.ID != q.ID || again.By != "ann" || again.Shards != 2 {
		t.Errorf("first %+v, again %+v", first, again)
	}
	w.ended(q.ID)
	w.stop()
	w.start()
	if again := testkit.Value[Report](t)(begin(q)); again.State != StateDone {
		t.Errorf("after a restart: %+v", again)
	}
	if audits, err := w.db.Audits(10); err != nil || len(audits) != 1 {
		t.Errorf("%d audits, %v", len(audits), err)
	}
	newest := Request{Tenant: tenant, Saga: "order", ID: ulid.Make().String(), Newest: true}
	first = testkit.Value[Report](t)(begin(newest))
	w.ended(newest.ID)
	w.swap(strings.Replace(orderSaga, "version: 1", "version: 2", 1), orderSaga)
	if again := testkit.Value[Report](t)(begin(newest)); again.Version != first.Version || first.Version == 0 {
		t.Errorf("with the newest version %d, then %d", first.Version, again.Version)
	}
	for name, change := range map[string]func(*Request){
		"saga": func(q *Request) { q.Saga = "other" }, "from": func(q *Request) { q.FromSeq = 2 }, "dry run": func(q *Request) { q.DryRun = true },
		"emit": func(q *Request) { q.Emit = EmitAll }, "tenant": func(q *Request) { q.Tenant = "other" },
	} {
		other := q
		change(&other)
		if _, err := begin(other); !errors.Is(err, edda.Permanent) {
			t.Errorf("another %s under the same id: %v", name, err)
		}
	}
}

// TestCallsAtOnceBeginOneReplay under one id.
func TestCallsAtOnceBeginOneReplay(t *testing.T) {
	w := newWorld(t, orderSaga)
	q := Request{Tenant: tenant, Saga: "order", ID: ulid.Make().String()}
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if _, err := w.replayer.Begin(t.Context(), q); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	w.ended(q.ID)
	if all := testkit.Value[[]Report](t)(w.replayer.Reports()); len(all) != 1 {
		t.Errorf("%d replays", len(all))
	}
}
