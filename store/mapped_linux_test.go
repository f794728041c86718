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

func TestTrimEndsWithItsContext(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := db.Trim(ctx); err != nil {
		t.Error(err)
	}
}
