package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"edda"
	"edda/store/format"
)

// ofTenant is one row of every kind for a tenant, with the mark in every key,
// name and payload.
func ofTenant(tenant, mark string) []Change {
	at := func(what string) edda.Key {
		return edda.Key{Tenant: tenant, Saga: mark + "saga", Correlation: mark + what}
	}
	payload := json.RawMessage(fmt.Sprintf(`{"secret":%q}`, mark+"payload"))
	event := func(id string) edda.Event {
		return edda.Event{ID: mark + id, Kind: edda.KindEvent, Tenant: tenant, Type: "Order.Placed", Payload: payload, Time: noon}
	}
	instance := func(k edda.Key, status edda.Status) *edda.Instance {
		return &edda.Instance{Key: k, Version: 2, Hash: mark + "hash", Status: status, State: payload, Started: noon, Updated: noon, Revision: 1, Recent: []string{mark + "e"}}
	}
	running, ended, parked, held := at("running"), at("ended"), at("parked"), at("held")
	armed, done, waits := instance(running, edda.StatusRunning), instance(ended, edda.StatusDone), instance(held, edda.StatusStuck)
	armed.Armed, done.Ended, waits.Held, done.Parts = noon.Add(time.Hour), noon, mark+"letter", 1
	entry := edda.Entry{N: 1, Event: event("parked"), Expires: noon.Add(time.Hour)}
	holds := edda.Entry{N: 1, Event: event("held"), DeadLetter: mark + "letter"}
	dead := edda.DeadLetter{ID: mark + "letter", Reason: edda.DeadPoison, Key: held, Event: event("held"), Error: mark + "error", Time: noon}
	lost := edda.DeadLetter{ID: mark + "lost", Reason: edda.DeadUndecodable, Event: edda.Event{Tenant: tenant, Subject: mark + "subject"}, Raw: []byte(mark + "raw"), Time: noon}
	return []Change{
		{
			Transitions: []edda.Transition{
				{Key: running, Event: event("e1"), Fate: edda.FateHandled, Instance: armed, Arm: []time.Time{noon.Add(time.Hour)},
					Work: []edda.Work{{ID: mark + "command", Kind: edda.WorkEffect, From: running, Name: "charge", Payload: payload, Time: noon},
						{ID: mark + "fact", Kind: edda.WorkFact, From: running, Name: "Begun", Payload: payload, Time: noon}}},
				{Key: ended, Event: event("e2"), Fate: edda.FateHandled, Instance: done, Parts: []edda.Part{{N: 3, Data: payload}}},
				{Key: parked, Event: event("e3"), Fate: edda.FateParked, Park: &entry, Arm: []time.Time{noon.Add(time.Hour)}},
				{Key: held, Event: event("e4"), Fate: edda.FateDead, Instance: waits, Hold: &holds, Dead: &dead},
			},
			Dead: []edda.DeadLetter{lost},
		},
		{
			Positions: []SagaPosition{{Tenant: tenant, Saga: mark + "saga", Checkpoint: formatCheckpoint()}},
			Claims:    []edda.Claim{{Tenant: tenant, CommandID: mark + "command", Effect: "charge", Owner: mark + "worker", Claimed: noon, Result: payload}},
			Schedules: []edda.ScheduleState{{Tenant: tenant, Saga: mark + "saga", Name: mark + "nightly", Last: noon}},
			Manifests: []edda.Manifest{{Saga: mark + "saga", Version: 2, Hash: mark + "hash", Text: "saga: " + mark + "\n", Loaded: noon}},
			Audits:    []Audit{{Time: noon, By: mark + "ann", Verb: edda.VerbRetry, Key: running, Reason: mark + "reason"}},
			Replays:   []Replay{{ID: mark + "replay", Tenant: tenant, Saga: mark + "saga", Emit: "none", By: mark + "ann", Begun: noon, Ended: noon, State: "done", Summary: payload}},
		},
	}
}

// The marks are in no file but where they belong. A tenant's name may begin with another's.
const (
	mine   = "MINE-"
	theirs = "THEIRS-"
)

func ofTwo(t *testing.T, o Options) *opened {
	t.Helper()
	db := open(t, t.TempDir(), o)
	ours, others, longer := ofTenant("acme", mine), ofTenant("beta", theirs), ofTenant("acme2", theirs+"2-")
	for i := range ours { // side by side, so that commits and days are shared
		db.commit(t, others[i])
		db.commit(t, ours[i])
		db.commit(t, longer[i])
	}
	db.commit(t, Change{Checkpoints: []edda.Checkpoint{formatCheckpoint()}, Audits: []Audit{{Time: noon, By: theirs + "root", Verb: "gc"}}})
	return db
}

func tenantBackup(t *testing.T, db *opened, tenant string) []byte {
	t.Helper()
	s, err := db.SnapshotOf(t.Context(), tenant, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out bytes.Buffer
	if err := s.WriteTo(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != s.Bytes || s.Tenant != tenant {
		t.Errorf("%d bytes of %q, said %d", out.Len(), s.Tenant, s.Bytes)
	}
	return out.Bytes()
}

func TestABackupOfATenantHasNothingOfAnother(t *testing.T) {
	_, key := keysetFile(t)
	for name, sealing := range map[string]AEAD{"plain": nil, "sealed": key} {
		db := ofTwo(t, Options{Seal: sealing, plain: true})
		db.check(t)
		raw := tenantBackup(t, db, "acme")
		for _, foreign := range []string{theirs, "beta", "acme2", db.ID()} {
			if bytes.Contains(raw, []byte(foreign)) {
				t.Errorf("%s: %q is in the file", name, foreign)
			}
		}
		if got := bytes.Contains(raw, []byte(mine+"payload")); got != (sealing == nil) {
			t.Errorf("%s: a payload can be read: %t", name, got)
		}
		dir := t.TempDir()
		r, err := Restore(t.Context(), save(t, raw), dir, false, sealing, nil)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "whose", []any{r.Tenant, len(r.Positions)}, []any{"acme", 1})
		restored := open(t, dir, Options{Seal: sealing})
		restored.check(t)
		checkIndex(t, restored.DB)
		same(t, "its tenant", restored.Tenant(), "acme")
		same(t, name, rowsOf(t, restored.DB), rowsOf(t, db.DB))
		for _, c := range ofTenant("acme", "AGAIN-") { // and it goes on
			restored.commit(t, c)
		}
		restored.check(t)
	}
}

// rowsOf is all that can be read of acme, through the front door.
func rowsOf(t *testing.T, db *DB) map[string]any {
	t.Helper()
	out := map[string]any{}
	var errs []error
	note := func(name string, v any, err error) { out[name] = v; errs = append(errs, err) }
	v, err := db.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, what := range []string{"running", "ended", "parked", "held"} {
		k := edda.Key{Tenant: "acme", Saga: mine + "saga", Correlation: mine + what}
		cell, err := v.Cell(k)
		note("cell "+what, cell, err)
		history, err := db.History(k, 10)
		note("history "+what, history, err)
	}
	instances, err := db.Instances(Query{Tenant: "acme"})
	note("instances", instances, err)
	for _, id := range []string{mine + "letter", mine + "lost"} {
		letter, _, err := db.DeadLetter(id)
		note(id, letter, err)
	}
	claim, found, err := db.Claim("acme", mine+"command")
	note(fmt.Sprint("claim ", found), claim, err)
	audits, _, err := db.AuditsOf(AuditQuery{Tenant: "acme", Limit: 10})
	note("audits", audits, err)
	command, waits := db.Waiting(mine + "command")
	note(fmt.Sprint("waiting ", waits), command, nil)
	due, _, err := db.Due(noon.Add(2*time.Hour), 100)
	note("due", slices.DeleteFunc(due, func(d Due) bool { return d.Key.Tenant != "acme" }), err)
	positions, err := db.Positions()
	note("positions", slices.DeleteFunc(positions, func(p SagaPosition) bool { return p.Tenant != "acme" }), err)
	schedules, err := db.Schedules()
	note("schedules", slices.DeleteFunc(schedules, func(s edda.ScheduleState) bool { return s.Tenant != "acme" }), err)
	replays, err := db.Replays()
	note("replays", slices.DeleteFunc(replays, func(r Replay) bool { return r.Tenant != "acme" }), err)
	note("counts", slices.DeleteFunc(db.Counts(), func(c Count) bool { return c.Tenant != "acme" }), nil)
	checkpoints, err := db.Checkpoints()
	note("checkpoints", checkpoints, err)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}

// Every keyspace has a row of each tenant, so that one whose rows nobody sorts
// by tenant shows.
func TestEveryKeyspaceIsInTheTestOfATenantsBackup(t *testing.T) {
	db := ofTwo(t, Options{})
	in := func(db *DB) map[string]int {
		out := map[string]int{}
		for row := range dump(t, db) {
			space, _, _ := strings.Cut(row, "/")
			out[space]++
		}
		return out
	}
	dir := t.TempDir()
	if _, err := Restore(t.Context(), save(t, tenantBackup(t, db, "acme")), dir, false, nil, nil); err != nil {
		t.Fatal(err)
	}
	all, one := in(db.DB), in(open(t, dir, Options{}).DB)
	for _, space := range format.Keyspaces {
		switch name := string(space); space {
		case format.Meta, format.Checkpoint:
		case format.Audit:
			same(t, "acts", []int{all[name], one[name]}, []int{4, 1})
		default:
			if one[name] == 0 || all[name] != 3*one[name] {
				t.Errorf("%s: %d rows of three tenants alike, and %d in the backup of one", name, all[name], one[name])
			}
		}
	}
}

// What was plain before the keyset came is encrypted in the copy.
func TestABackupOfATenantEncryptsPlainRows(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	for _, c := range ofTenant("acme", mine) {
		db.commit(t, c)
	}
	db.stop()
	_, key := keysetFile(t)
	db = open(t, dir, Options{Seal: key})
	if raw := tenantBackup(t, db, "acme"); bytes.Contains(raw, []byte(mine+"payload")) {
		t.Error("a payload can be read")
	}
}

func TestRestoreOfASpecialFileDoesNotWait(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, t.TempDir(), "/dev/zero"} {
		dir := filepath.Join(t.TempDir(), "new")
		if _, err := Restore(t.Context(), path, dir, false, nil, nil); err == nil || !strings.Contains(err.Error(), "is no file") {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: %s was made", path, dir)
		}
	}
}

func TestABackupOfAnUnknownTenantFails(t *testing.T) {
	db := ofTwo(t, Options{})
	for _, tenant := range []string{"", "nobody", "acm", "*", "acme\x00"} {
		if s, err := db.SnapshotOf(t.Context(), tenant, nil); !errors.Is(err, edda.Permanent) {
			t.Errorf("%q: %v %v", tenant, s, err)
		}
	}
	s, err := db.SnapshotOf(t.Context(), "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.SnapshotOf(t.Context(), "beta", nil); !errors.Is(err, edda.Temporary) {
		t.Errorf("a second at once: %v", err)
	}
	s.Close()
	s.Close()
	tenantBackup(t, db, "beta")
	if left := must(os.ReadDir(filepath.Dir(db.path))); len(left) != 3 { // the file and its WAL
		t.Errorf("left behind: %v", left)
	}
}

// TestABackupOfATenantIsCompressed: like its store.
func TestABackupOfATenantIsCompressed(t *testing.T) {
	names := []byte(`"kind":"event","id":"`) // of fields of every event
	for _, plain := range []bool{true, false} {
		raw := tenantBackup(t, ofTwo(t, Options{plain: plain}), "acme")
		if got := bytes.Contains(raw, names); got != plain {
			t.Errorf("plain: %t, and the names of fields are in the file: %t", plain, got)
		}
	}
}

// TestAStoreKnowsItsOrigins: through a backup of a backup.
func TestAStoreKnowsItsOrigins(t *testing.T) {
	db := ofTwo(t, Options{})
	restored := func(raw []byte) *opened {
		dir := t.TempDir()
		if _, err := Restore(t.Context(), save(t, raw), dir, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		return open(t, dir, Options{})
	}
	first := restored(tenantBackup(t, db, "acme"))
	second := restored(tenantBackup(t, first, "acme"))
	for name, got := range map[string]bool{
		"a backup of its store": first.MadeOf(db.ID()), "a backup of a backup": second.MadeOf(first.ID()), "and of that one's store": second.MadeOf(db.ID()),
		"not the other way": !db.MadeOf(first.ID()), "not of itself": !first.MadeOf(first.ID()),
	} {
		if !got {
			t.Error(name)
		}
	}
}
