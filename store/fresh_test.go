package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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

func TestNewOutboxRowsAreNotReadFromTheFile(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, outgoing(3, 10))
	rows := must(db.Outbox(ulid.ULID{}, 10))
	same(t, "rows", rows, must(db.readOutbox(ulid.ULID{}, 10)))
	db.commit(t, Change{Delivered: []ulid.ULID{rows[0].ID, rows[1].ID}})
	left, all := db.fresh.list(nil, ulid.ULID{}, 10)
	same(t, "known", all, true)
	same(t, "rows that are left", left, rows[2:])
	same(t, "kept in memory", db.fresh.n, 1)
	db.stop()

	db = open(t, dir, Options{})
	same(t, "rows of the process before", must(db.Outbox(ulid.ULID{}, 10)), rows[2:])
	db.commit(t, outgoing(2, 10))
	if _, all := db.fresh.list(nil, rows[2].ID, 10); all {
		t.Error("whoever has not read all rows of the process before is answered from memory")
	}
	next := must(db.Outbox(rows[2].ID, 1))
	again, all := db.fresh.list(nil, next[0].ID, 10)
	same(t, "known", all, true)
	same(t, "the last row", again, must(db.readOutbox(next[0].ID, 10)))
}

// A relay that is far behind reads the file, and no row is passed over.
func TestOutboxRowsInMemoryAreBounded(t *testing.T) {
	for name, c := range map[string]Change{"by their number": outgoing(freshRows+50, 1), "by their bytes": outgoing(60, 128<<10)} {
		t.Run(name, func(t *testing.T) {
			db := open(t, t.TempDir(), Options{noSync: true})
			db.commit(t, c)
			if db.fresh.n > freshRows || db.fresh.bytes > freshBytes || db.fresh.n == len(c.Work) {
				t.Errorf("%d rows of %d bytes are kept", db.fresh.n, db.fresh.bytes)
			}
			var got []string
			for after := (ulid.ULID{}); ; {
				rows := must(db.Outbox(after, 7))
				if len(rows) == 0 {
					break
				}
				for _, r := range rows {
					got = append(got, r.Work.ID)
				}
				after = rows[len(rows)-1].ID
			}
			var want []string
			for i := range c.Work {
				want = append(want, c.Work[i].ID)
			}
			same(t, "rows", got, want)
		})
	}
}

// TestAPageIsAppended to the rows that there are, from memory and from the file.
func TestAPageIsAppended(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, outgoing(3, 10))
	all := must(db.Outbox(ulid.ULID{}, 10))
	for _, from := range []string{"memory", "file"} {
		if from == "file" {
			db.fresh = newFresh(db.stamp, false)
		}
		room := make([]Row, 0, 8)
		rows := must(db.AppendOutbox(append(room, Row{}), all[0].ID, 10))
		same(t, "rows of "+from, rows[1:], all[1:])
		if &rows[0] != &room[:1][0] {
			t.Errorf("the rows of %s have another place", from)
		}
	}
}
