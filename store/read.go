package store

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Due lists up to limit rows due at or before until, earliest first, and the
// time of the first row after those (zero when there is none).
func (d *DB) Due(until time.Time, limit int) (rows []Due, next time.Time, err error) {
	rows, next, _, err = d.DueBut(until, limit, nil)
	return rows, next, err
}

// DueBut is [DB.Due] without the rows that wait for something else than their time, as
// waits tells, and says how many of those it passed over. A nil waits passes over none.
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

// maxRead bounds one page of rows in memory, by their bytes as stored: it ends
// with the row that passes it.
const maxRead = 4 << 20

// Outbox lists rows after a position, in commit order: up to limit, and fewer
// where they are large. There are no more when it lists none.
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

// OutboxSize is how many rows wait, and the time of the oldest.
func (d *DB) OutboxSize() (int, time.Time) { return d.index.outbox() }

// Committed is signalled (capacity 1, never closed) when a commit added outbox rows that
// were not sent to [DB.Added].
func (d *DB) Committed() <-chan struct{} { return d.committed }

// Armed is signalled (capacity 1) when a commit added due rows.
func (d *DB) Armed() <-chan struct{} { return d.armed }

// Waiting finds the effect command that still waits for its result, by id.
func (d *DB) Waiting(commandID string) (work edda.Work, found bool) {
	id, ok := d.index.command(commandID)
	if !ok {
		return work, false
	}
	err := d.read(format.Outbox, func(b *wal.Bucket) error {
		value := b.Get(id[:])
		if value == nil {
			return nil // settled a moment ago
		}
		value, err := d.seal.Open(format.Outbox, id[:], value, 0)
		if err != nil {
			return err
		}
		row, err := cutRow(id[:], value)
		work, found = row.Work, err == nil
		return err
	})
	return work, found && err == nil
}

// Checkpoints lists the shared positions.
func (d *DB) Checkpoints() ([]edda.Checkpoint, error) {
	return list[edda.Checkpoint](d, format.Checkpoint)
}

// Positions lists the sagas' own positions.
func (d *DB) Positions() (out []Position, err error) {
	err = d.read(format.Position, func(b *wal.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			var p Position
			p.Tenant, p.Saga, p.Checkpoint, err = format.CutPosition(k, v)
			out = append(out, p)
			return err
		})
	})
	return out, err
}

// PositionsOf is how far one saga has come for one tenant: its own positions, where it has
// any, and the shared ones of the other streams.
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

// Schedules lists how far every schedule has come.
func (d *DB) Schedules() ([]edda.Schedule, error) { return list[edda.Schedule](d, format.Schedule) }

// Manifests lists the kept manifest texts, by saga and version.
func (d *DB) Manifests() ([]edda.Manifest, error) { return list[edda.Manifest](d, format.Manifest) }

// Audits lists operators' acts, newest first, at most limit.
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

// Count says how many instances of one version of a saga stand in one status.
type Count struct {
	Tenant, Saga string
	Version      int
	Status       edda.Status
	N            int
}

// Counts is kept up to date by every commit; it costs no scan. It is sorted.
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

// Claim finds an entry of the effect ledger.
func (d *DB) Claim(tenant, commandID string) (claim edda.Claim, found bool, err error) {
	command := recentOf(commandID)
	first := command.hour()
	if d.hours.none(command.millis) || d.hours.recent.lacks(command) {
		return claim, false, d.hours.now.Load().readable(first)
	}
	key := format.Texts(tenant, commandID)
	err = d.read(format.Claim, func(b *wal.Bucket) error {
		ledger := d.hours.now.Load()
		for _, hour := range ledger.from(first) {
			value := claimIn(b, hour, key)
			if value == nil {
				continue
			}
			if value, err = d.seal.Open(format.Claim, key, value, 0); err != nil {
				return err
			}
			found = true
			claim, err = format.Decode[edda.Claim]("claim "+commandID, value)
			return err
		}
		return ledger.readable(first)
	})
	return claim, found && err == nil, err
}

func claimIn(b *wal.Bucket, hour uint32, key []byte) []byte {
	if claims := b.Bucket(format.HourKey(hour)); claims != nil {
		return claims.Get(key)
	}
	return nil
}

// DeadPlace is where a dead letter lies among the others, for [DB.DeadLetters].
func DeadPlace(l edda.DeadLetter) string {
	return base64.RawURLEncoding.EncodeToString(format.DeadKey(l.Time, l.ID))
}

// cutPlace reads what DeadPlace wrote.
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

// DeadLetters lists dead letters after a place, oldest first: up to limit, and
// fewer where they are large. There are no more when it lists none. Whether the
// letter of that place is still there does not matter.
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

// DeadLetter finds one.
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

// read runs fn on one keyspace of a snapshot.
func (d *DB) read(name format.Keyspace, fn func(*wal.Bucket) error) error {
	return d.view(func(tx *wal.Tx) error { return fn(tx.Bucket([]byte(name))) })
}

// list decodes a whole keyspace, for those that stay small.
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
