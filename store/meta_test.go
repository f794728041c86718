package store

import (
	"fmt"
	"testing"
	"time"

	"edda"
)

func TestBegunSagasAreStored(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	if list, known, err := db.Begun(); err != nil || known || len(list) != 0 {
		t.Fatalf("a store that was never asked says %v, %t, %v", list, known, err)
	}
	want := []Beginning{
		{Saga: "alpha", Time: noon},
		{Saga: "beta", From: "all", Time: noon, At: []edda.Checkpoint{formatCheckpoint()}},
	}
	db.commit(t, Change{Begun: &want})
	db.stop()
	db = open(t, dir, Options{})
	list, known, err := db.Begun()
	same(t, "begun", []any{list, known, err}, []any{want, true, error(nil)})
	none := []Beginning(nil)
	db.commit(t, Change{Begun: &none})
	if list, known, err := db.Begun(); err != nil || !known || len(list) != 0 {
		t.Errorf("of no sagas it says %v, %t, %v", list, known, err)
	}
	db.check(t)
}

func TestASagaHasPositionsOfItsOwnOrThoseOfAll(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	at := func(stream string, seq uint64) edda.Checkpoint { return edda.Checkpoint{Stream: stream, Seq: seq} }
	db.commit(t, Change{
		Checkpoints: []edda.Checkpoint{at("A", 9), at("B", 9), at("C", 9)},
		Positions: []SagaPosition{
			{Tenant: AllTenants, Saga: "beta", Checkpoint: at("A", 3)}, {Tenant: AllTenants, Saga: "beta", Checkpoint: at("B", 4)},
			{Tenant: "acme", Saga: "beta", Checkpoint: at("A", 1)}, {Tenant: "acme", Saga: "beta", Checkpoint: at("B", 2)},
		},
	})
	of := func(tenant, saga string) string {
		out := ""
		for _, c := range must(db.PositionsOf(tenant, saga)) {
			out += fmt.Sprint(c.Stream, c.Seq, " ")
		}
		return out
	}
	same(t, "its own", of("acme", "beta"), "A1 B2 C9 ")
	same(t, "those of all tenants", of("other", "beta"), "A3 B4 C9 ")
	same(t, "the shared ones", of("acme", "alpha"), "A9 B9 C9 ")
	db.commit(t, Change{DropPositions: []SagaPosition{{Tenant: "acme", Saga: "beta", Checkpoint: at("A", 0)}, {Tenant: "acme", Saga: "beta", Checkpoint: at("B", 0)}}})
	same(t, "once it has rejoined", of("acme", "beta"), "A3 B4 C9 ")
	db.check(t)
}

func TestDueButSkipsWaitingRows(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	var rows []Due
	for i := range 10 {
		rows = append(rows, Due{Time: noon.Add(time.Duration(i) * time.Second), Key: key(fmt.Sprint("k", i))})
	}
	db.commit(t, Change{Arm: rows})
	got, next, passed, err := db.DueBut(noon.Add(8*time.Second), 3, func(d Due) bool { return d.Time.Second()%2 == 0 })
	same(t, "due", []any{got, next, passed, err}, []any{[]Due{rows[1], rows[3], rows[5]}, rows[6].Time, 3, error(nil)})
}

// TestATenantsBackupHasThePositionsOfAllTenants: a saga in it is behind by as much.
func TestATenantsBackupHasThePositionsOfAllTenants(t *testing.T) {
	db := ofTwo(t, Options{})
	db.commit(t, Change{
		Begun:     &[]Beginning{{Saga: mine + "saga", From: "all", Time: noon}},
		Positions: []SagaPosition{{Tenant: AllTenants, Saga: mine + "saga", Checkpoint: edda.Checkpoint{Stream: "OTHER", Seq: 3}}},
	})
	dir := t.TempDir()
	if _, err := Restore(t.Context(), save(t, tenantBackup(t, db, "acme")), dir, false, nil, nil); err != nil {
		t.Fatal(err)
	}
	restored := open(t, dir, Options{})
	all := must(restored.Positions())
	if len(all) != 2 || all[0].Tenant != AllTenants || all[0].Seq != 3 || all[1].Tenant != "acme" {
		t.Errorf("positions %+v", all)
	}
	if list, known, err := restored.Begun(); err != nil || !known || len(list) != 1 {
		t.Errorf("begun %v, %t, %v", list, known, err)
	}
	if _, err := db.SnapshotOf(t.Context(), "nobody", nil); err == nil {
		t.Error("there is a backup of a tenant that is not there")
	}
}
