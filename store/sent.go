package store

import (
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// A server may acknowledge a message before it syncs it, and lose it in a power cut. The row of the
// outbox is deleted by then. With [Options.KeepSent] the files of the WAL are kept until the server
// must have synced the messages, and [DB.Sent] reads the rows there.

// TellAfter is the age at which a row is written to the WAL once more when it is deleted from the
// outbox. So the WAL since a moment less TellAfter has all rows that were sent since that moment.
const TellAfter = 10 * time.Second

// Sent passes the rows that were sent since a moment, in the order of their commits: those that the
// WAL and its kept files put into the outbox, and that are not there any more. It passes no
// effects, whose rows stay until their results. It may pass a row that waited for long twice.
func (d *DB) Sent(since time.Time, fn func(Row) error) error {
	d.swap.RLock()
	file := d.file
	d.swap.RUnlock()
	return file.Past(func(_ uint64, values wal.Values) error {
		var at format.Stamp
		if err := values(func(space, key, value []byte) error {
			if string(space) == string(format.Meta) && string(key) == string(format.MetaCommit) {
				at = format.CutStamp(value)
			}
			return nil
		}); err != nil || at.Time().Before(since) {
			return err // the key of older rows may be gone
		}
		var rows []Row
		if err := values(func(space, key, value []byte) error {
			if string(space) != string(format.Outbox) {
				return nil
			}
			plain, err := d.seal.Open(format.Outbox, key, value, 0)
			if err != nil {
				return err
			}
			row, err := cutRow(key, plain)
			rows = append(rows, row)
			return err
		}); err != nil {
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
	err = d.read(format.Outbox, func(b *wal.Bucket) error {
		is = b.Get(id[:]) != nil
		return nil
	})
	return is, err
}
