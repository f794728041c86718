package store

import (
	"github.com/oklog/ulid/v2"

	"edda"
)

const (
	// addedCommits bounds the commits whose outbox rows wait for the relay. A relay that is further
	// behind reads the store.
	addedCommits = 16
	// addedBytes bounds the rows of such a commit, as stored.
	addedBytes = 512 << 10
)

// NewRow is an outbox row of a commit. The work is that of the change and must not be modified.
type NewRow struct {
	ID   ulid.ULID
	Work *edda.Work
}

// Added are the outbox rows that one commit added, in commit order.
type Added struct {
	Rows []NewRow
	// Missed says that earlier rows were not sent: read the outbox for them.
	Missed bool
}

// Added is where the committer sends the outbox rows of each commit, to one relay. The committer
// never waits for it: without room, rows are in the outbox alone. Then [DB.Committed] is signalled,
// and the next Added has Missed set.
func (d *DB) Added() <-chan Added { return d.added }

// addedRows are the rows that a commit added, or Missed if they are too large.
func addedRows(s *staged) (a Added) {
	size := 0
	for _, row := range s.added {
		if size += row.size; size > addedBytes {
			return Added{Missed: true}
		}
	}
	rows := make([]NewRow, 0, len(s.added))
	for _, a := range s.added {
		if !s.gone[a.id] {
			rows = append(rows, NewRow{a.id, a.work})
		}
	}
	return Added{Rows: rows}
}

// send gives the rows of a commit to the relay.
func (d *DB) send(a Added) {
	if a.Missed = a.Missed || d.missed; !a.Missed && len(a.Rows) == 0 {
		return
	}
	select {
	case d.added <- a:
		d.missed = false
	default:
		d.missed = true
		signal(d.committed)
	}
}

// added is an outbox row of a transaction.
type added struct {
	id   ulid.ULID
	work *edda.Work
	size int
}
