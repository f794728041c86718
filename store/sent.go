package store

import (
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/changelog"
)

// A server that acknowledged a message may have it in memory only, and lose it with the
// power. The row of the outbox is gone by then. Where [Options.KeepSent] says so, the log's
// files are kept until the server must have synced what their rows became, and [DB.Sent]
// reads the rows there.

// TellAfter is how long a row is in the outbox until it is written into the log once more
// as it goes: what was sent lately is in what was logged lately, and at most so much before.
const TellAfter = 10 * time.Second

// metaMarks says where the last messages lie that were published.
var metaMarks = []byte("marks")

// Marks are the last messages that were published, one for each stream, as of the last
// commit that took rows from the outbox.
func (d *DB) Marks() (marks []edda.Mark, err error) {
	err = d.view(func(tx *changelog.Tx) error {
		if row := tx.Bucket([]byte(bucketMeta)).Get(metaMarks); row != nil {
			marks, err = decode[[]edda.Mark]("the last messages that were published", row)
		}
		return err
	})
	return marks, err
}

func (e *encoder) marks(c Change) error {
	if c.Marks == nil {
		return nil
	}
	return e.put(bucketMeta, metaMarks, c.Marks)
}

// tell writes the row into the log once more where it has been in the outbox for long.
func (w *writer) tell(id ulid.ULID, in *changelog.Bucket, value []byte) {
	if w.tells && w.stamp.Clock > id.Time()+uint64(TellAfter.Milliseconds()) {
		in.Tell(id[:], value)
	}
}

// Sent passes the rows that were sent since a moment, in the order of their commits: those
// of which the log or what is kept of it says that they were put into the outbox, and that are
// not there any more. Effects are left out, whose rows stay until their results are there.
// One that waited for long may come twice.
func (d *DB) Sent(since time.Time, fn func(Row) error) error {
	d.swap.RLock()
	file := d.file
	d.swap.RUnlock()
	return file.Past(func(_ uint64, values changelog.Values) error {
		var rows []Row
		var at stamp
		err := values(func(space, key, value []byte) error {
			switch {
			case string(space) == string(bucketMeta) && string(key) == string(metaCommit):
				at = cutStamp(value)
			case string(space) == string(bucketOutbox):
				plain, err := d.seal.open(bucketOutbox, key, value, 0)
				if err != nil {
					return err
				}
				row, err := cutRow(key, plain)
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
			return nil
		})
		if err != nil || at.time().Before(since) {
			return err
		}
		for _, row := range rows {
			if row.Work.Kind == edda.WorkEffect {
				continue
			}
			waits, err := d.inOutbox(row.ID)
			if err != nil {
				return err
			}
			if waits {
				continue
			}
			if err := fn(row); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *DB) inOutbox(id ulid.ULID) (is bool, err error) {
	err = d.read(bucketOutbox, func(b *changelog.Bucket) error {
		is = b.Get(id[:]) != nil
		return nil
	})
	return is, err
}
