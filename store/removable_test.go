package store

import (
	"os"
	"path/filepath"
	"testing"

	"edda"
)

// An operator has to find what an incident is about.
func TestAnIncidentKeepsItsInstance(t *testing.T) {
	in := &edda.Instance{Status: edda.StatusFailed}
	if !removable(in) {
		t.Error("a failed instance without an incident stays")
	}
	in.Incidents = []edda.Incident{{Step: "refund", Orphan: true}}
	if removable(in) {
		t.Error("an instance with an incident that waits goes")
	}
}

// There is a store at every moment: a start that found none would begin a new one.
func TestAReplacedStoreKeepsAName(t *testing.T) {
	t.Parallel() // it waits
	dir, other := t.TempDir(), t.TempDir()
	id := map[string]string{}
	for _, d := range []string{dir, other} {
		db := open(t, d, Options{})
		id[d] = db.ID()
		db.stop()
	}
	// What is to come is not there: it stops between the two steps.
	aside, err := replaceStore(dir, removing, filepath.Join(dir, "none"))
	if err == nil {
		t.Fatal("a file that is not there took the store's place")
	}
	db := open(t, dir, Options{})
	same(t, "what a start between the steps finds", db.ID(), id[dir])
	if _, err := replaceStore(dir, removing, filepath.Join(other, FileName)); !Held(err) {
		t.Errorf("a store that is held: %v", err)
	}
	db.stop()
	if err := os.Remove(aside); err != nil {
		t.Fatal(err)
	}
	if _, err = replaceStore(dir, removing, filepath.Join(other, FileName)); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir, Options{})
	same(t, "the store", db.ID(), id[other])
	db.stop()
	if err := os.Remove(filepath.Join(other, FileName)); err == nil {
		t.Error("the new store has two names")
	}
}
