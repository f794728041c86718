package store

import (
	"fmt"
	"runtime"
	"testing"
	"weak"

	"edda"
	"edda/store/changelog"
)

// begun commits the first or a later transition of a key.
func (o *opened) begun(t *testing.T, k edda.Key, revision uint64) {
	t.Helper()
	o.commit(t, Change{Transitions: []edda.Transition{step(k, revision)}})
}

// noted has a key looked for, and found absent, by a snapshot that is older than what
// is committed then.
func noted(t *testing.T, db *opened, k edda.Key, then func()) {
	t.Helper()
	tx := must(db.begin(false))
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	then()
	db.absent.note(k, tx)
}

func TestAKeyThatWasAbsentIsNotReadAgain(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.cell(t, key("1"))
	if err := db.view(func(tx *changelog.Tx) error {
		if !db.absent.take(key("1"), tx) {
			t.Error("it is not known")
		}
		if db.absent.take(key("1"), tx) {
			t.Error("it is known when it was taken")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAnAbsentKeyThatCameMeanwhileIsFound: however late the look of an older snapshot is
// noted, the next transition follows the ones that there are.
func TestAnAbsentKeyThatCameMeanwhileIsFound(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, db *opened){
		"in the table": func(*testing.T, *opened) {},
		"in the file":  func(t *testing.T, db *opened) { db.fold(t) },
		"in the file, with more in the table": func(t *testing.T, db *opened) {
			db.fold(t)
			db.begun(t, key("other"), 1)
		},
		"in another file": func(t *testing.T, db *opened) { must(db.Compact(t.Context(), nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, t.TempDir(), Options{})
			noted(t, db, key("1"), func() {
				db.begun(t, key("1"), 1)
				meanwhile(t, db)
			})
			db.begun(t, key("1"), 2)
			same(t, "rows of the history", len(must(db.History(key("1"), 10))), 2)
			db.check(t)
		})
	}
}

// TestNothingRemembersTheFileBeforeACompaction: its pages and tables would stay in memory
// until thousands of keys were new.
func TestNothingRemembersTheFileBeforeACompaction(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	before := weak.Make(db.file)
	noted(t, db, key("1"), func() { must(db.Compact(t.Context(), nil)) })
	db.cell(t, key("2"))
	for range 10 {
		if runtime.GC(); before.Value() == nil {
			return
		}
	}
	t.Error("the old file is in memory still")
}

func TestAbsentKeysAreBounded(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	v := must(db.View())
	defer v.Close()
	for i := range 5 * absentKeys {
		must(v.Cell(key(fmt.Sprint(i))))
	}
	if n := len(db.absent.newer) + len(db.absent.older); n > 2*absentKeys || n < absentKeys {
		t.Errorf("%d keys are remembered", n)
	}
}

// TestInstancesOfALargeFileAreThoseOfTheFileThatThereIs: what is read past the map is of
// the same file, while a snapshot is open over folds, and after a compaction.
func TestInstancesOfALargeFileAreThoseOfTheFileThatThereIs(t *testing.T) {
	const keys = 200
	db := open(t, t.TempDir(), Options{maxMapped: 1, noSync: true})
	are := func(v *View, revision uint64) {
		t.Helper()
		for i := range keys {
			cell := must(v.Cell(key(fmt.Sprint(i))))
			if cell.Instance == nil || cell.Instance.Revision != revision {
				t.Fatalf("%d is %+v, want revision %d", i, cell.Instance, revision)
			}
			if cell := must(v.Cell(key(fmt.Sprint(i, "x")))); cell.Instance != nil {
				t.Fatalf("%dx is there", i)
			}
		}
	}
	write := func(revision uint64) {
		t.Helper()
		change := Change{}
		for i := range keys {
			change.Transitions = append(change.Transitions, step(key(fmt.Sprint(i)), revision))
		}
		db.commit(t, change)
		db.fold(t)
	}
	write(1)
	old := must(db.View())
	defer old.Close()
	are(old, 1)
	write(2)
	are(old, 1)
	write(3) // over pages that were free, if any is
	are(old, 1)
	old.Close()
	must(db.Compact(t.Context(), nil))
	write(4)
	now := must(db.View())
	defer now.Close()
	are(now, 4)
}
