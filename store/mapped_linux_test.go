package store

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"edda"
)

func TestALookAtEveryInstanceKeepsLittleMapped(t *testing.T) {
	const room, written = 6 << 20, 36 << 20
	most := Mapped() + room // the code of this test is mapped, too
	db := open(t, t.TempDir(), Options{noSync: true, maxMapped: most, plain: true})
	state := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 250<<10)...), '"')
	for i := range written / len(state) {
		tr := step(key(fmt.Sprint(i)), 1)
		tr.Instance.State = state
		db.commit(t, Change{Transitions: []edda.Transition{tr}})
	}
	if rows := must(db.Instances(Query{Status: edda.StatusStuck})); len(rows) != 0 {
		t.Fatalf("%d stuck", len(rows))
	}
	if now := Mapped(); now > most+room {
		t.Errorf("%d MiB mapped after a look at every instance, the bound is %d", now>>20, most>>20)
	}
	db.check(t) // reads everything, and does not trim
	if now := Mapped(); now <= most {
		t.Fatalf("only %d MiB are mapped after everything was read", now>>20)
	}
	db.trim()
	if now := Mapped(); now > most {
		t.Errorf("%d MiB are mapped after a trim, the bound is %d", now>>20, most>>20)
	}
	same(t, "an instance after a trim", must(db.Instances(Query{Limit: 1}))[0].Key, key("0"))
}

// TestALookAtKeysAllOverALargeFileMapsNothing: of each page that is mapped come fifteen
// others with it.
func TestALookAtKeysAllOverALargeFileMapsNothing(t *testing.T) {
	const instances, looks, room = 4000, 100, 1 << 20
	db := open(t, t.TempDir(), Options{noSync: true, maxMapped: 1, plain: true})
	state := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 3000)...), '"')
	change := Change{}
	for i := range instances {
		tr := step(key(fmt.Sprintf("%04d", i)), 1)
		tr.Instance.State = state
		if change.Transitions = append(change.Transitions, tr); len(change.Transitions) == 50 {
			db.commit(t, change)
			change = Change{}
		}
	}
	db.fold(t)
	view := must(db.View())
	defer view.Close()
	db.trimIn(view.tx)
	before := Mapped()
	for i := range looks {
		at := fmt.Sprintf("%04d", i*(instances/looks))
		if cell := must(view.Cell(key(at))); cell.Instance == nil || !bytes.Equal(cell.Instance.State, state) {
			t.Fatalf("%s is not as it was written", at)
		}
		if cell := must(view.Cell(key(at + "x"))); cell.Instance != nil {
			t.Fatalf("%sx is there", at)
		}
		if more := Mapped() - before; more > room { // it is given back at times
			t.Fatalf("%d KiB more are mapped after %d looks", more>>10, 2*(i+1))
		}
	}
}

func TestTrimEndsWithItsContext(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := db.Trim(ctx); err != nil {
		t.Error(err)
	}
}
