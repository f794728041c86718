package store

import (
	"context"
	"errors"
	"testing"

	"edda"
)

var errShut = errors.New("shut")

// TestNothingIsCommittedWhileTheFenceIsClosed: the caller gets a temporary error, and the store
// reports why it is unhealthy.
func TestNothingIsCommittedWhileTheFenceIsClosed(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, audit("before"))
	db.Fence(func(context.Context) error { return errShut })
	for _, c := range []Change{audit("behind"), {}} {
		err := db.Commit(context.Background(), c)
		if !errors.Is(err, errShut) || !errors.Is(err, edda.Temporary) {
			t.Errorf("who commits hears %v", err)
		}
	}
	if err := db.Healthy(); !errors.Is(err, errShut) {
		t.Errorf("the store says %v", err)
	}
	db.Fence(func(context.Context) error { return nil })
	db.commit(t, audit("after"))
	if err := db.Healthy(); err != nil {
		t.Errorf("the store says %v", err)
	}
	var got []string
	for _, a := range must(db.Audits(10)) {
		got = append(got, a.Detail)
	}
	same(t, "audits", got, []string{"after", "before"})
}
