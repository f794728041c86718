package store

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// maxRead bounds the bytes of a page, as stored. The page ends with the row that exceeds it.
const maxRead = 4 << 20

// Outbox lists the rows after an id, in commit order: up to limit, and fewer if they are large. At
// the end it lists none.
func (d *DB) Outbox(after ulid.ULID, limit int) (rows []Row, err error) {
	size := 0
	err = d.read(format.Outbox, func(b *wal.Bucket) error {
		c := b.Cursor()
		k, v := c.Seek(after[:])
		if bytes.Equal(k, after[:]) {
			k, v = c.Next()
		}
		for ; k != nil && len(rows) < limit && size < maxRead; k, v = c.Next() {
			if v, err = d.seal.Open(format.Outbox, k, v, 0); err != nil {
				return err
			}
			row, err := cutRow(k, v)
			if err != nil {
				return err
			}
			rows, size = append(rows, row), size+len(v)
		}
		return nil
	})
	return rows, err
}

func cutRow(k, v []byte) (r Row, err error) {
	r.ID, r.Work, err = format.CutWork(k, v)
	return r, err
}

// Committed is signalled (capacity 1, never closed) when a commit added outbox rows that it did not
// send to [DB.Added].
func (d *DB) Committed() <-chan struct{} { return d.committed }

// Armed is signalled (capacity 1) when a commit added due rows.
func (d *DB) Armed() <-chan struct{} { return d.armed }

// Waiting finds an effect command that waits for its result, by id.
func (d *DB) Waiting(commandID string) (work edda.Work, found bool) {
	d.index.mu.RLock()
	row, ok := d.index.waiting[commandID]
	d.index.mu.RUnlock()
	if !ok {
		return work, false
	}
	id := row.ID
	err := d.read(format.Outbox, func(b *wal.Bucket) error {
		value := b.Get(id[:])
		if value == nil {
			return nil // settled since
		}
		value, err := d.seal.Open(format.Outbox, id[:], value, 0)
		if err != nil {
			return err
		}
		_, work, err = format.CutWork(id[:], value)
		found = err == nil
		return err
	})
	return work, found && err == nil
}

// Checkpoints lists the shared positions.
func (d *DB) Checkpoints() ([]edda.Checkpoint, error) {
	return list[edda.Checkpoint](d, format.Checkpoint)
}

// Positions lists the sagas' own positions.
func (d *DB) Positions() (out []SagaPosition, err error) {
	err = d.read(format.Position, func(b *wal.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			var p SagaPosition
			p.Tenant, p.Saga, p.Checkpoint, err = format.CutPosition(k, v)
			out = append(out, p)
			return err
		})
	})
	return out, err
}

// PositionsOf is how far a saga has come for a tenant: its own positions, and the shared ones of
// the other streams.
func (d *DB) PositionsOf(tenant, saga string) (out []edda.Checkpoint, err error) {
	if out, err = d.Checkpoints(); err != nil {
		return nil, err
	}
	all, err := d.Positions()
	own := func(whose string) (found bool) {
		for _, p := range all {
			if p.Tenant != whose || p.Saga != saga {
				continue
			}
			found = true
			if i := slices.IndexFunc(out, func(c edda.Checkpoint) bool { return c.Stream == p.Stream }); i >= 0 {
				out[i] = p.Checkpoint
			}
		}
		return found
	}
	if !own(tenant) {
		own(AllTenants)
	}
	return out, err
}

// Schedules lists how far each schedule has come.
func (d *DB) Schedules() ([]edda.ScheduleState, error) {
	return list[edda.ScheduleState](d, format.Schedule)
}

// Manifests lists the texts of manifests, by saga and version.
func (d *DB) Manifests() ([]edda.Manifest, error) { return list[edda.Manifest](d, format.Manifest) }

// Audits lists the audit log, newest first, at most limit entries.
func (d *DB) Audits(limit int) (out []Audit, err error) {
	err = d.read(format.Audit, func(b *wal.Bucket) error {
		c := b.Cursor()
		for k, v := c.Last(); k != nil && len(out) < limit; k, v = c.Prev() {
			if v, err = d.seal.Open(format.Audit, k, v, 0); err != nil {
				return err
			}
			a, err := format.Decode[Audit]("audit", v)
			if err != nil {
				return err
			}
			out = append(out, a)
		}
		return nil
	})
	return out, err
}

// Count is how many instances of a version of a saga have a status.
type Count struct {
	Tenant, Saga string
	Version      int
	Status       edda.Status
	N            int
}

// Counts lists the counts, sorted. It costs no scan, because every commit keeps them.
func (d *DB) Counts() []Count {
	d.index.mu.RLock()
	out := make([]Count, 0, len(d.index.counts))
	for k, n := range d.index.counts {
		out = append(out, Count{Tenant: k.Tenant, Saga: k.Saga, Version: k.Version, Status: k.Status, N: n})
	}
	d.index.mu.RUnlock()
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Saga, b.Saga),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Status, b.Status))
	})
	return out
}

func loadCounts(tx *wal.Tx) (map[format.CountKey]int, error) {
	out := map[format.CountKey]int{}
	err := tx.Bucket([]byte(format.Count)).ForEach(func(k, v []byte) error {
		key, err := format.CutCount(k)
		if err != nil || len(v) != 8 {
			return fmt.Errorf("counter %x: %w", k, cmp.Or(err, format.ErrRow))
		}
		out[key] = int(binary.BigEndian.Uint64(v))
		return nil
	})
	return out, err
}

// DeadPlace is the place of a dead letter, for [DB.DeadLetters].
func DeadPlace(l edda.DeadLetter) string {
	return base64.RawURLEncoding.EncodeToString(format.DeadKey(l.Time, l.ID))
}

// cutPlace decodes a [DeadPlace].
func cutPlace(place string) ([]byte, error) {
	key, err := base64.RawURLEncoding.DecodeString(place)
	if err == nil {
		var rest []byte
		if _, rest, err = format.CutTime(key); err == nil {
			_, rest, err = format.CutText(rest)
		}
		if len(rest) > 0 {
			err = format.ErrKey
		}
	}
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "%.100q is no place among the dead letters: give the next of the page before", place)
	}
	return key, nil
}

// DeadLetters lists the dead letters after a place, oldest first: up to limit, and fewer if they are
// large. At the end it lists none. The letter at the place may have been removed.
func (d *DB) DeadLetters(after string, limit int) (out []edda.DeadLetter, err error) {
	var from []byte
	if after != "" {
		if from, err = cutPlace(after); err != nil {
			return nil, err
		}
	}
	size := 0
	err = d.read(format.DeadLetter, func(b *wal.Bucket) error {
		c := b.Cursor()
		k, v := c.Seek(from)
		if bytes.Equal(k, from) {
			k, v = c.Next()
		}
		for ; k != nil && len(out) < limit && size < maxRead; k, v = c.Next() {
			if v, err = d.seal.Open(format.DeadLetter, k, v, 0); err != nil {
				return err
			}
			letter, err := format.Decode[edda.DeadLetter]("dead letter", v)
			if err != nil {
				return err
			}
			out, size = append(out, letter), size+len(v)
		}
		return nil
	})
	return out, err
}

// DeadLetter finds a dead letter by its id.
func (d *DB) DeadLetter(id string) (letter edda.DeadLetter, found bool, err error) {
	err = d.view(func(tx *wal.Tx) error {
		var key []byte
		if key, found = findDead(tx, id); !found {
			return nil
		}
		value, err := d.seal.Open(format.DeadLetter, key, tx.Bucket([]byte(format.DeadLetter)).Get(key), 0)
		if err == nil {
			letter, err = format.Decode[edda.DeadLetter]("dead letter "+id, value)
		}
		return err
	})
	return letter, found && err == nil, err
}

func findDead(tx *wal.Tx, id string) ([]byte, bool) {
	at := tx.Bucket([]byte(format.DeadLetterID)).Get(format.Texts(id))
	if len(at) < format.TimeSize {
		return nil, false
	}
	return append(bytes.Clone(at[:format.TimeSize]), format.Texts(id)...), true
}

// read runs fn on a keyspace of a snapshot.
func (d *DB) read(name format.Keyspace, fn func(*wal.Bucket) error) error {
	return d.view(func(tx *wal.Tx) error { return fn(tx.Bucket([]byte(name))) })
}

// list decodes a whole keyspace, which must be small.
func list[T any](d *DB, name format.Keyspace) (out []T, err error) {
	err = d.read(name, func(b *wal.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			v, err := d.seal.Open(name, k, v, 0)
			if err != nil {
				return err
			}
			row, err := format.Decode[T](string(name), v)
			out = append(out, row)
			return err
		})
	})
	return out, err
}
