package operator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/testkit"
	"edda/server"
	"edda/store"
	"edda/stream"
)

// quarantined is a quarantine of a store that no stream is beside, and its log.
func quarantined(t *testing.T) (*Quarantine, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
	none := func() (*stream.Publisher, error) { return nil, errors.New("no stream") }
	return NewQuarantine(db, Options{Publisher: none, MaxBytes: 1000, Log: zap.New(core), Metrics: prometheus.NewRegistry()}), logs
}

var from = edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}

// refusedWork is the dead letter of a fact that its stream did not take.
func refusedWork(t *testing.T, q *Quarantine, id string) edda.DeadLetter {
	t.Helper()
	w := edda.Work{ID: id, Kind: edda.WorkFact, From: from, Name: "Closed", Payload: json.RawMessage(`{"secret":1}`)}
	d := edda.DeadLetter{ID: "outbox." + id, Reason: edda.DeadRejected, Key: from, Work: &w, Event: edda.Event{ID: id, Tenant: "acme"}}
	if err := q.db.Commit(t.Context(), store.Change{Dead: []edda.DeadLetter{d}}); err != nil {
		t.Fatal(err)
	}
	return d
}

func (q *Quarantine) outboxed(t *testing.T) []store.Row {
	t.Helper()
	rows, err := q.db.Outbox(ulid.ULID{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestRefusedWorkGoesBackToTheOutboxOnce(t *testing.T) {
	q, logs := quarantined(t)
	d := refusedWork(t, q, "w1")
	act := store.Audit{By: "ann", Verb: edda.VerbRedrive, Key: from, Reason: "the limit is higher now"}
	const callers = 4
	results := make(chan error, callers)
	for range callers {
		go func() {
			_, err := q.Redeliver(context.Background(), d, json.RawMessage(`{"n":2}`), act)
			results <- err
		}()
	}
	gone := 0
	for range callers {
		switch err := <-results; {
		case errors.Is(err, server.ErrGone):
			gone++
		case err != nil:
			t.Error(err)
		}
	}
	rows := q.outboxed(t)
	if gone != callers-1 || len(rows) != 1 || rows[0].Work.ID != "w1" || string(rows[0].Work.Payload) != `{"n":2}` || rows[0].Work.Kind != edda.WorkFact {
		t.Errorf("%d were too late; outbox %+v", gone, rows)
	}
	if _, found, err := q.db.DeadLetter(d.ID); found || err != nil {
		t.Errorf("the letter is there still: %v", err)
	}
	audits, _, err := q.db.AuditsOf(store.AuditQuery{Tenant: "acme", Limit: 10})
	if err != nil || len(audits) != 1 || audits[0].Reason != "the limit is higher now" || !strings.HasSuffix(audits[0].Detail, "; back in the outbox") || audits[0].Time.IsZero() {
		t.Errorf("audit %+v %v", audits, err)
	}
	if n := testutil.ToFloat64(q.settled.WithLabelValues("redrive", edda.DeadRejected)); n != 1 {
		t.Errorf("%v were counted", n)
	}
	if lines := logs.FilterMessage("dead letter: an operator acted").All(); len(lines) != 1 || lines[0].ContextMap()["by"] != "ann" || lines[0].ContextMap()["why"] != "the limit is higher now" {
		t.Errorf("log %+v", lines)
	}
}

func TestADroppedLetterIsGone(t *testing.T) {
	q, logs := quarantined(t)
	d := refusedWork(t, q, "w1")
	act := store.Audit{By: "ann", Verb: edda.VerbDrop, Key: from, Reason: "old"}
	if err := q.Drop(t.Context(), d, act); err != nil {
		t.Fatal(err)
	}
	if err := q.Drop(t.Context(), d, act); !errors.Is(err, server.ErrGone) {
		t.Errorf("the second time: %v", err)
	}
	if _, err := q.Redeliver(t.Context(), d, nil, act); !errors.Is(err, server.ErrGone) {
		t.Errorf("redrive of what is gone: %v", err)
	}
	if rows := q.outboxed(t); len(rows) != 0 || q.db.Queues().Dead[edda.DeadRejected] != 0 {
		t.Errorf("outbox %+v, counts %+v", rows, q.db.Queues())
	}
	old := refusedWork(t, q, "w2")
	old.Work = nil
	if _, err := q.Redeliver(t.Context(), old, nil, act); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "can only be dropped") {
		t.Errorf("without its work: %v", err)
	}
	for _, line := range logs.All() {
		for _, value := range line.ContextMap() {
			if s, ok := value.(string); ok && strings.Contains(s, "secret") {
				t.Errorf("a payload is in the log: %+v", line)
			}
		}
	}
}

// TestOperatorsVerbsAreCountedWithBoundedLabels whatever is published as a verb.
func TestOperatorsVerbsAreCountedWithBoundedLabels(t *testing.T) {
	q, logs := quarantined(t)
	act := func(verb, why string, resolved ...string) edda.Transition {
		return edda.Transition{Key: from, Fate: edda.FateHandled, Resolved: resolved, Event: edda.Event{
			Kind: edda.KindOperator, Type: verb, By: "ann", Why: why, Payload: json.RawMessage(`{"dead_letter":"D1","reason":"version","data":{"secret":1}}`)}}
	}
	child := act(edda.VerbCancel, "")
	child.Event.CommandID, child.Event.By = "c1", "parent"
	again := act(edda.VerbCancel, "again")
	again.Event.Redriven = true
	q.Observe([]edda.Transition{
		act(edda.VerbRedrive, "mended", "D1"), act("a"+strings.Repeat("b", 100), "x"), child, again,
		{Key: from, Fate: edda.FateHandled, Event: edda.Event{Kind: edda.KindSignal, Type: "go"}},
	})
	if n := testutil.CollectAndCount(q.commands); n != 2 {
		t.Errorf("%d verbs", n)
	}
	if n := testutil.ToFloat64(q.settled.WithLabelValues("redrive", edda.DeadVersion)); n != 1 {
		t.Errorf("%v were redriven", n)
	}
	if n := testutil.ToFloat64(q.commands.WithLabelValues("other")); n != 1 {
		t.Errorf("%v other verbs", n)
	}
	lines := logs.FilterMessage("an operator acted").All()
	if len(lines) != 2 || lines[0].ContextMap()["dead_letter"] != "D1" || lines[0].ContextMap()["why"] != "mended" {
		t.Errorf("log %+v", lines)
	}
}

// TestTheLogSaysWhatBecameOfTheEvent and not that the verb was handled.
func TestTheLogSaysWhatBecameOfTheEvent(t *testing.T) {
	q, logs := quarantined(t)
	verb := func(verb string, fate edda.Fate, resolved ...string) edda.Transition {
		return edda.Transition{Key: from, Fate: fate, Resolved: resolved, Event: edda.Event{
			Kind: edda.KindOperator, Type: verb, ID: "v", Payload: json.RawMessage(`{"dead_letter":"D1"}`)}}
	}
	inner := func(fate edda.Fate, dead *edda.DeadLetter) edda.Transition {
		return edda.Transition{Key: from, Fate: fate, Dead: dead, Event: edda.Event{Kind: edda.KindEvent, ID: "e", Redriven: true}}
	}
	gone := verb(edda.VerbRedrive, edda.FateLate)
	gone.Outputs = []edda.Output{{Word: "refused", Reason: "it is gone"}}
	q.Observe([]edda.Transition{
		verb(edda.VerbRedrive, edda.FateHandled, "D1"), inner(edda.FateDead, &edda.DeadLetter{ID: "D2", Reason: edda.DeadPoison}),
		verb(edda.VerbRedrive, edda.FateHandled, "D1"), inner(edda.FateGuarded, nil), inner(edda.FateHandled, nil),
		verb(edda.VerbSkip, edda.FateHandled, "D1"), inner(edda.FateHandled, nil),
		verb(edda.VerbDrop, edda.FateHandled, "D1"), gone, verb(edda.VerbTerminate, edda.FateHandled, "D1"), inner(edda.FateLate, nil),
	})
	var got []any
	for _, line := range logs.FilterMessage("an operator acted").All() {
		got = append(got, line.ContextMap()["fate"])
	}
	want := []any{"died again: poison, dead letter D2", "guarded", "dropped", "dropped", "late; refused: it is gone", "handled"}
	if !slices.Equal(got, want) {
		t.Errorf("fates %q, want %q", got, want)
	}
}

func TestTheQueuesAreShownAsMetrics(t *testing.T) {
	q, _ := quarantined(t)
	refusedWork(t, q, "w1")
	refusedWork(t, q, "w2")
	strange := edda.DeadLetter{ID: "x", Reason: "no word of ours"}
	if err := q.db.Commit(t.Context(), store.Change{Dead: []edda.DeadLetter{strange}, Transitions: []edda.Transition{
		{Key: from, Event: edda.Event{ID: "p"}, Fate: edda.FateParked, Park: &edda.Entry{N: 1}},
	}}); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP edda_dead_letters Dead letters in the store, by reason.
# TYPE edda_dead_letters gauge
edda_dead_letters{reason="other"} 1
edda_dead_letters{reason="rejected"} 2
# HELP edda_held_keys Keys that a poison event holds.
# TYPE edda_held_keys gauge
edda_held_keys 0
`
	if err := testutil.CollectAndCompare(&queueCollector{q.db, 1000}, strings.NewReader(want), "edda_dead_letters", "edda_held_keys"); err != nil {
		t.Error(err)
	}
}
