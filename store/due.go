package store

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"edda/store/format"
	"edda/store/wal"
)

// Due lists up to limit rows that are due at or before until, earliest first, and the time of the
// first row after them; zero when there is none.
func (d *DB) Due(until time.Time, limit int) (rows []Due, next time.Time, err error) {
	rows, next, _, err = d.DueBut(until, limit, nil)
	return rows, next, err
}

// DueBut is [DB.Due] without the rows for which waits is true, and counts these. They wait for
// something else than their time. A nil waits passes over none.
func (d *DB) DueBut(until time.Time, limit int, waits func(Due) bool) (rows []Due, next time.Time, passed int, err error) {
	from, arms := d.dues.look()
	err = d.read(format.Due, func(b *wal.Bucket) error {
		c := b.Cursor()
		k, _ := c.Seek(from)
		if k != nil {
			d.dues.found(k, arms)
		}
		for ; k != nil; k, _ = c.Next() {
			at, key, err := format.CutDue(k)
			if err != nil {
				return fmt.Errorf("due row %x: %w", k, err)
			}
			due := Due{at, key}
			if len(rows) >= limit || due.Time.After(until) {
				next = due.Time
				return nil
			}
			if waits != nil && waits(due) {
				passed++
				continue
			}
			rows = append(rows, due)
		}
		return nil
	})
	return rows, next, passed, err
}

// dueFront is a lower bound of the keys in the due index. Without it each read of the scheduler
// would step over the tombstones of the rows that have fired, until their memtable is flushed.
type dueFront struct {
	mu   sync.Mutex // guards the fields below
	key  []byte     // immutable
	arms uint64     // commits that added rows
}

// look returns where a scan may begin. The scan opens its snapshot afterwards.
func (f *dueFront) look() (from []byte, arms uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key, f.arms
}

// found moves the front to the first row of a scan, unless commits have added rows since that its
// snapshot may lack.
func (f *dueFront) found(first []byte, arms uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arms == arms && !bytes.Equal(first, f.key) {
		f.key = bytes.Clone(first)
	}
}

// armed notes a commit that added rows, by the first of them. It is called before the submitter
// is answered, whose scans then find the rows.
func (f *dueFront) armed(first []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arms++
	if bytes.Compare(first, f.key) < 0 {
		f.key = bytes.Clone(first)
	}
}
