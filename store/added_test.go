package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
)

func outgoing(n, size int) (c Change) {
	for i := range n {
		c.Work = append(c.Work, edda.Work{
			ID: fmt.Sprintf("w%d", i), Kind: edda.WorkFact, From: key("1"), Time: noon, Payload: json.RawMessage(`"` + strings.Repeat("x", size) + `"`),
		})
	}
	return c
}

func addedRowsOf(a Added) (rows []Row) {
	for _, r := range a.Rows {
		rows = append(rows, Row{ID: r.ID, Work: *r.Work})
	}
	return rows
}

func TestACommitSendsTheRowsThatItAdds(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	defer db.stop()
	db.commit(t, outgoing(3, 10))
	got := <-db.Added()
	same(t, "missed", got.Missed, false)
	same(t, "rows", addedRowsOf(got), must(db.Outbox(ulid.ULID{}, 10)))
	db.commit(t, Change{Delivered: []ulid.ULID{got.Rows[0].ID}})
	if len(db.Added()) != 0 {
		t.Error("a commit without new rows sends something")
	}
}

// TestAddedReportsMissedRows: rows that do not fit the channel count as missed.
func TestAddedReportsMissedRows(t *testing.T) {
	db := open(t, t.TempDir(), Options{noSync: true})
	defer db.stop()
	for range addedCommits + 1 {
		db.commit(t, outgoing(1, 10))
	}
	select {
	case <-db.Committed(): // it comes after the answer to the commit
	case <-time.After(10 * time.Second):
		t.Fatal("no signal that rows were not sent")
	}
	for range addedCommits {
		same(t, "missed", (<-db.Added()).Missed, false)
	}
	db.commit(t, outgoing(1, 10))
	same(t, "missed", (<-db.Added()).Missed, true)
	db.commit(t, outgoing(1, 10))
	same(t, "missed", (<-db.Added()).Missed, false)
}

func TestAddedIsBoundedInBytes(t *testing.T) {
	db := open(t, t.TempDir(), Options{noSync: true})
	defer db.stop()
	db.commit(t, outgoing(3, addedBytes/2))
	got := <-db.Added()
	same(t, "missed", got.Missed, true)
	same(t, "rows", len(got.Rows), 0)
}

func TestAnEffectSettledInItsOwnChangeIsNotAdded(t *testing.T) {
	db := open(t, t.TempDir(), Options{noSync: true})
	defer db.stop()
	step := working("1", 1, "c1")
	settled := working("1", 2, "c2")
	settled.Settled = []string{"c1"}
	db.commit(t, Change{Transitions: []edda.Transition{step, settled}})
	got := <-db.Added()
	same(t, "rows", addedRowsOf(got), must(db.Outbox(ulid.ULID{}, 10)))
}
