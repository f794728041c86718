package store

import (
	"bytes"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// A server that acknowledged a message may have it in memory only, and lose it with the
// power. The row of the outbox is gone by then. Where [Options.KeepSent] says so, the WAL's
// files are kept until the server must have synced what their rows became, and [DB.Sent]
// reads the rows there.

// TellAfter is how long a row is in the outbox until it is written into the log once more
// as it goes: what was sent lately is in what was logged lately, and at most so much before.
const TellAfter = 10 * time.Second

// Marks are the last messages that were published, one for each stream, as of the last
// commit that took rows from the outbox.
func (d *DB) Marks() (marks []edda.Mark, err error) {
	err = d.view(func(tx *wal.Tx) error {
		c := tx.Bucket([]byte(format.Meta)).Cursor()
		for k, v := c.Seek([]byte(format.MetaMark)); bytes.HasPrefix(k, []byte(format.MetaMark)); k, v = c.Next() {
			m, err := format.Decode[edda.Mark]("the last message that was published", v)
			if err != nil {
				return err
			}
			marks = append(marks, m)
		}
		return nil
	})
	return marks, err
}

func (e *encoder) marks(c Change) error {
	for i := range c.Marks {
		key := []byte(format.MetaMark + c.Marks[i].Stream)
		if c.Marks[i].Seq == 0 {
			e.out.puts = append(e.out.puts, row{bucket: format.Meta, key: key})
		} else if err := e.put(format.Meta, key, &c.Marks[i]); err != nil {
			return err
		}
	}
	return nil
}

// late tells whether the row is to be written into the log once more as it goes, since it
// has been in the outbox for long.
func (w *writer) late(id ulid.ULID) bool {
	return w.tells && w.stamp.Clock > id.Time()+uint64(TellAfter.Milliseconds())
}

func (e *encoder) sent(c Change) error {
	e.out.sent = nil
	for i := range c.Sent {
		value, err := e.value(0, &c.Sent[i].Work)
		if err != nil {
			return fmt.Errorf("work %s: %w", c.Sent[i].Work.ID, err)
		}
		e.out.sent = append(e.out.sent, row{bucket: format.Outbox, key: c.Sent[i].ID.Bytes(), value: value})
	}
	return nil
}

// told has the log say what rows were sent.
func (w *writer) told(e *encoded) error {
	for _, r := range e.sent {
		b := w.bucket(format.Outbox)
		if b.Get(r.key) != nil {
			continue // it goes out as it is
		}
		value, err := w.seal.Close(format.Outbox, r.key, r.value, 0)
		if err != nil {
			return err
		}
		b.Tell(r.key, value)
	}
	return nil
}

// Sent passes the rows that were sent since a moment, in the order of their commits: those
// of which the log or what is kept of it says that they were put into the outbox, and that are
// not there any more. Effects are left out, whose rows stay until their results are there.
// One that waited for long may come twice.
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
			return err // older ones may be sealed with a key that is gone
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
