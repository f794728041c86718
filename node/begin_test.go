package node

import (
	"path/filepath"
	"testing"

	"edda"
	"edda/internal/testkit"
	"edda/saga"
	"edda/store"
)

const betaSaga = `saga: beta
key: event.id
from: all
on:
  Placed: {start: true}
  Closed: {do: [{done: true}]}
`

// TestASagaOfAnUpgradedStoreHasBegun: a version that did not note it has read for it. From
// then on what is added begins by its own word.
func TestASagaOfAnUpgradedStoreHasBegun(t *testing.T) {
	dir := t.TempDir()
	held := []edda.Checkpoint{{Stream: "AGGREGATE_EVENTS", Seq: 7}}
	commit(t, dir, store.Change{Checkpoints: held})
	db := openStore(t, dir)
	file := filepath.Join(t.TempDir(), "beta.yaml")
	write(t, file, betaSaga)
	l, err := load([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	set, err := saga.NewSet(l.programs...)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{db: db}
	b, err := p.begin(t.Context(), nil, set, held)
	if err != nil || len(b.positions)+len(b.said) > 0 || b.begun == nil || len(*b.begun) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	commit(t, dir, b.change())
	p.db = openStore(t, dir)
	defer func() { _ = p.db.Close() }()
	if b, err = p.begin(t.Context(), nil, set, held); err != nil || b.begun != nil || len(b.positions) > 0 {
		t.Errorf("it begins again: %+v, %v", b, err)
	}
	if list, known, err := p.db.Begun(); err != nil || !known || len(list) != 1 || list[0].Saga != "beta" || list[0].From != "" {
		t.Errorf("%+v, %t, %v", list, known, err)
	}
}

func openStore(t *testing.T, data string) *store.DB {
	t.Helper()
	db, err := store.Open(data, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func commit(t *testing.T, data string, c store.Change) {
	t.Helper()
	db, stop := testkit.OpenStore(t, data, store.Options{})
	testkit.Commit(t, db, c)
	stop()
}
