package store

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
)

var update = flag.Bool("update", false, "rewrite testdata/format-v4.db as today's code writes it")

// formatFile is the checked-in file: a store that was stopped in order.
const formatFile = "testdata/format-v4.db"

// The values in the checked-in file. A second day and a key with the escape
// byte in it are there for the keys' sake.
var (
	formatKey    = edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}
	formatParked = edda.Key{Tenant: "acme", Saga: "order", Correlation: "early\x00bird"}
	formatHeld   = edda.Key{Saga: "trip", Correlation: "T/1"}
	formatDay    = noon.Add(24 * time.Hour)
)

func formatEvent(id string) edda.Event {
	return edda.Event{
		Kind: edda.KindEvent, ID: id, Tenant: "acme", Type: "Order.Placed", AggregateType: "Order", AggregateID: "O1", Version: 1,
		Time: noon, Stream: "AGGREGATE_EVENTS", Seq: 7, Payload: json.RawMessage(`{"html":"<&>","total":12345678901234567}`), Trace: "t1",
	}
}

func formatWork() []edda.Work {
	return []edda.Work{
		{
			ID: "c1", Kind: edda.WorkEffect, From: formatKey, Name: "charge", Payload: json.RawMessage(`{"amount":12345678901234567}`),
			Step: "charge", Attempt: 1, IdempotencyKey: "c1", NotAfter: noon.Add(time.Minute), Time: noon, Causation: "e1", High: true,
		},
		{ID: "f1", Kind: edda.WorkFact, From: formatKey, Name: "Placed", Time: noon},
	}
}

func formatInstance(revision uint64) *edda.Instance {
	return &edda.Instance{
		Key: formatKey, Version: 2, Hash: "abc", Generation: 1, Status: edda.StatusRunning, State: json.RawMessage(`{"total":12345678901234567}`),
		Started: noon, Updated: noon, Revision: revision, Armed: noon.Add(time.Minute), Recent: []string{"e1"},
		Steps: []edda.Step{{
			ID: "charge", Kind: edda.StepEffect, Name: "charge", Command: "c1", Status: edda.StepPending, Attempt: 1, Emitted: noon,
			Due: noon.Add(time.Minute), Action: "on/0/do/0", Scope: &edda.Scope{Handler: "Order.Placed", Event: json.RawMessage(`{"a":1}`)},
		}},
		Timers: []edda.Timer{{Name: "pay", Due: noon.Add(30 * time.Minute), Order: 1}},
	}
}

func formatHeldInstance() *edda.Instance {
	return &edda.Instance{Key: formatHeld, Version: 1, Hash: "def", Generation: 3, Status: edda.StatusStuck, Started: noon, Updated: noon, Revision: 9, Held: "d1"}
}

func formatDead() edda.DeadLetter {
	return edda.DeadLetter{ID: "d1", Reason: edda.DeadPoison, Key: formatHeld, Event: formatEvent("e3"), Error: "no such field", Time: noon, Raw: []byte{0, 255}}
}

func formatCheckpoint() edda.Checkpoint {
	return edda.Checkpoint{Stream: "AGGREGATE_EVENTS", Seq: 7, Time: noon, Created: noon.Add(-time.Hour)}
}

// formatPosition lies within a batch of CloudEvents.
func formatPosition() SagaPosition {
	at := formatCheckpoint()
	at.Partly = &edda.Partly{Seq: 8, Time: noon.Add(time.Second), Members: 2}
	return SagaPosition{Tenant: "acme", Saga: "order", Checkpoint: at}
}

// formatMember is a member of that batch.
func formatMember(id string) edda.Event {
	ev := formatEvent(id)
	ev.Seq, ev.Time, ev.Member = 8, noon.Add(time.Second), 2
	return ev
}

func formatClaims() []edda.Claim {
	return []edda.Claim{
		{Tenant: "acme", CommandID: "c1", Effect: "charge", Owner: "w1", Claimed: noon},
		{CommandID: "c0", Effect: "charge", Owner: "w1", Claimed: noon.Add(-2 * time.Hour), Done: true, Outcome: edda.Succeeded, Result: json.RawMessage(`{"ok":true}`), Attempts: 2, Finished: noon},
	}
}

func formatEntry(n uint64, id string) *edda.Entry {
	return &edda.Entry{N: n, Event: formatEvent(id), Expires: noon.Add(time.Hour)}
}

// formatChanges are committed one by one: two on the first day, one on the next.
func formatChanges() []Change {
	held := formatEntry(1, "e3")
	held.DeadLetter = "d1"
	dead := formatDead()
	return []Change{
		{
			Transitions: []edda.Transition{
				{
					Key: formatKey, Event: formatEvent("e1"), Fate: edda.FateHandled, Handlers: []string{"Order.Placed"}, Instance: formatInstance(1),
					Outputs: []edda.Output{{Word: "effect", Name: "charge", Step: "charge", ID: "c1"}}, Work: formatWork(), Arm: []time.Time{noon.Add(time.Minute)},
				},
				{Key: formatParked, Event: formatEvent("e2"), Fate: edda.FateParked, Park: formatEntry(1, "e2"), Arm: []time.Time{noon.Add(time.Hour)}},
				{Key: formatHeld, Event: formatEvent("e3"), Fate: edda.FateDead, Instance: formatHeldInstance(), Hold: held, Dead: &dead},
			},
			Checkpoints: []edda.Checkpoint{formatCheckpoint()},
		},
		{
			Positions: []SagaPosition{formatPosition()},
			Claims:    formatClaims(),
			Schedules: []edda.ScheduleState{{Tenant: "acme", Saga: "report", Name: "nightly", Last: noon}},
			Manifests: []edda.Manifest{{Saga: "order", Version: 2, Hash: "abc", Text: "saga: order\n", Loaded: noon}},
			Audits:    []Audit{{Time: noon, By: "ann", Verb: edda.VerbRetry, Key: formatHeld, Reason: "asked to", Detail: "by hand"}},
			Replays:   []Replay{{ID: "01J0000000000000000000000A", Tenant: "acme", Saga: "order", Emit: "none", By: "ann", Begun: noon, Ended: noon, State: "done", Summary: json.RawMessage(`{"keys":1}`)}},
		},
		{Transitions: []edda.Transition{{Key: formatKey, Event: formatMember("e4"), Fate: edda.FateHandled, Instance: formatInstance(2)}}},
	}
}

// writeFormat makes the file as today's code does.
func writeFormat(t *testing.T, dir string) {
	clocks := []time.Time{noon, noon, noon, formatDay} // creation, then the commits
	db := open(t, dir, Options{initialMap: 1 << 15, Now: func() time.Time {
		now := clocks[0]
		clocks = clocks[1:]
		return now
	}})
	changes := formatChanges()
	for i, c := range changes {
		if i == len(changes)-1 {
			db.flush(t)
		}
		db.commit(t, c)
	}
	db.stop()
}

func TestFormatFile(t *testing.T) {
	fresh := t.TempDir()
	writeFormat(t, fresh)
	if *update {
		copyFile(t, filepath.Join(fresh, FileName), formatFile)
	}
	now := dump(t, open(t, fresh, Options{}).DB)
	delete(now, `meta/"id"`) // drawn at random
	old := t.TempDir()
	copyFile(t, formatFile, filepath.Join(old, FileName))
	db := open(t, old, Options{})
	rows := dump(t, db.DB)
	delete(rows, `meta/"id"`)
	same(t, "what today's code writes, against "+formatFile+" (-update rewrites it)", now, rows)
	readFormat(t, db)
	db.flush(t)
	readFormat(t, db)
}

// readFormat reads every field of every keyspace through the front door.
func readFormat(t *testing.T, db *opened) {
	if _, err := ulid.ParseStrict(db.ID()); err != nil {
		t.Errorf("store id %q: %v", db.ID(), err)
	}
	for _, err := range db.examine(context.Background(), nil, true).Findings {
		t.Error(err)
	}
	same(t, "instance", db.cell(t, formatKey), edda.Cell{Key: formatKey, Instance: formatInstance(2)})
	same(t, "parked", db.cell(t, formatParked), edda.Cell{Key: formatParked, Parked: []edda.Entry{*formatEntry(1, "e2")}})
	held := *formatEntry(1, "e3")
	held.DeadLetter = "d1"
	same(t, "held", db.cell(t, formatHeld), edda.Cell{Key: formatHeld, Instance: formatHeldInstance(), Held: []edda.Entry{held}})

	rows := must(db.Outbox(ulid.ULID{}, 10))
	same(t, "outbox ids", []string{rows[0].ID.String(), rows[1].ID.String()}, []string{"01KJMMA2G00000000004000000", "01KJMMA2G00000000004000001"})
	same(t, "outbox", []edda.Work{rows[0].Work, rows[1].Work}, formatWork())
	due, next, err := db.Due(noon.Add(time.Minute), 10)
	same(t, "due", due, []Due{{noon.Add(time.Minute), formatKey}})
	same(t, "next due", next, noon.Add(time.Hour))
	same(t, "due error", err, nil)
	same(t, "counts", db.Counts(), []Count{
		{Saga: "trip", Version: 1, Status: edda.StatusStuck, N: 1},
		{Tenant: "acme", Saga: "order", Version: 2, Status: edda.StatusRunning, N: 1},
	})
	readFormatHistory(t, db)

	same(t, "checkpoints", must(db.Checkpoints()), []edda.Checkpoint{formatCheckpoint()})
	same(t, "positions", must(db.Positions()), []SagaPosition{formatPosition()})
	same(t, "schedules", must(db.Schedules()), formatChanges()[1].Schedules)
	same(t, "replays", must(db.Replays()), formatChanges()[1].Replays)
	same(t, "manifests", must(db.Manifests()), formatChanges()[1].Manifests)
	same(t, "audits", must(db.Audits(10)), formatChanges()[1].Audits)
	same(t, "dead letters", must(db.DeadLetters("", 10)), []edda.DeadLetter{formatDead()})
	for _, want := range formatClaims() {
		claim, found, err := db.Claim(want.Tenant, want.CommandID)
		same(t, "claim", claim, want)
		same(t, "claim found", found, err == nil)
	}
}

func readFormatHistory(t *testing.T, db *opened) {
	in := formatInstance(1)
	same(t, "history", must(db.History(formatKey, 10)), []Record{
		{Key: formatKey, Commit: 3, Generation: 1, Version: 2, Revision: 2, Event: formatMember("e4"), Fate: edda.FateHandled, Status: in.Status, State: in.State},
		{
			Key: formatKey, Commit: 1, Generation: 1, Version: 2, Revision: 1, Event: formatEvent("e1"), Fate: edda.FateHandled, Status: in.Status, State: in.State,
			Handlers: []string{"Order.Placed"}, Outputs: []edda.Output{{Word: "effect", Name: "charge", Step: "charge", ID: "c1"}}, Work: []string{"c1", "f1"},
		},
	})
	same(t, "history of a key without an instance", must(db.History(formatParked, 10)), []Record{
		{Key: formatParked, Commit: 1, N: 1, Event: formatEvent("e2"), Fate: edda.FateParked},
	})
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
