package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// These bound what one change removes, so that the next commit waits some milliseconds at most.
// Instances, heads and ids of dead letters are scattered: each costs pages of its own. Other rows
// are in order.
const (
	maxRemovedScattered = 64
	maxRemovedRows      = 256
	maxRemovedBytes     = 256 << 10
	// maxScannedRows bounds how long a scan keeps its snapshot open.
	maxScannedRows = 4096
)

// RowKind is a kind of rows that expire.
type RowKind string

// The kinds, in the order in which they are swept.
const (
	KindInstances   RowKind = "instances"
	KindHistory     RowKind = "history"
	KindClaims      RowKind = "claims"
	KindDeadLetters RowKind = "dead_letters"
	KindAudit       RowKind = "audit"
	KindManifests   RowKind = "manifests" // texts that nothing needs
)

// Kinds lists them.
func Kinds() []RowKind {
	return []RowKind{KindInstances, KindHistory, KindClaims, KindDeadLetters, KindAudit, KindManifests}
}

// Cutoffs are the times before which rows have expired. A zero time keeps all.
type Cutoffs struct {
	// Ended returns the cutoff of finished instances by saga and status; nil keeps all.
	Ended                                func(saga string, status edda.Status) time.Time
	History, Claims, DeadLetters, Audits time.Time
	// Manifests is for texts that are idle since before then.
	Manifests time.Time
	// Loaded reports whether instances run on a text; nil: not known.
	Loaded func(edda.Manifest) bool
	// Now is the time from which texts are marked as idle. Zero marks none.
	Now time.Time
}

// Sweep finds the expired rows of one kind, in portions that one change can remove. Between two
// portions it has no snapshot open. It is for one goroutine.
type Sweep struct {
	db    *DB
	kind  RowKind
	cut   Cutoffs
	after []byte // where to go on, in the order of the kind
	done  bool
}

// Portion is what a change can remove, with its size.
type Portion struct {
	Removal
	Rows  int
	Bytes int64
}

// Sweep begins a sweep. It removes nothing: a change with the portion does.
func (d *DB) Sweep(kind RowKind, cut Cutoffs) *Sweep { return &Sweep{db: d, kind: kind, cut: cut} }

// Done reports whether all rows were read.
func (s *Sweep) Done() bool { return s.done }

// Next returns the next portion. It may be empty although the sweep is not done.
func (s *Sweep) Next(ctx context.Context) (p Portion, err error) {
	if err := context.Cause(ctx); err != nil {
		return p, err
	}
	l := &scan{Sweep: s, seal: s.db.seal, portion: &p}
	err = s.db.view(func(tx *wal.Tx) error {
		l.tx = tx
		return l.run()
	})
	if errors.Is(err, errFull) {
		return p, nil
	}
	s.done = err == nil
	return p, err
}

// scan fills a portion.
type scan struct {
	*Sweep
	tx      *wal.Tx
	seal    format.Seal
	portion *Portion
	seen    int
}

// errFull ends a scan before a row that the portion has no room for.
var errFull = errors.New("the portion is full")

func (l *scan) run() error {
	switch l.kind {
	case KindInstances:
		return l.instances()
	case KindHistory:
		return l.buckets(format.History, format.DayKey(format.DayOf(l.cut.History)), l.cut.History, l.record)
	case KindClaims:
		return l.buckets(format.Claim, format.HourKey(format.HourOf(l.cut.Claims)), l.cut.Claims, l.claim)
	case KindDeadLetters:
		return l.letters()
	case KindAudit:
		return l.audits()
	case KindManifests:
		return l.manifests()
	}
	return fmt.Errorf("there is no kind %q to sweep", l.kind)
}

// room refuses a row that exceeds the bounds of the portion.
func (l *scan) room(rows int) error {
	if l.seen++; l.seen > maxScannedRows || l.portion.Rows >= rows || l.portion.Bytes >= maxRemovedBytes {
		return errFull
	}
	return nil
}

func (l *scan) take(bytes int) {
	l.portion.Rows++
	l.portion.Bytes += int64(bytes)
}

// instances reads the index of ends. Within a saga and a status the oldest come first, so it goes on
// with the next status at the first that is too young.
func (l *scan) instances() error {
	if l.cut.Ended == nil {
		return nil
	}
	c := l.tx.Bucket([]byte(format.Ended)).Cursor()
	k, _ := c.Seek(l.after)
	for k != nil {
		e, err := format.CutEnded(k)
		if err != nil {
			return fmt.Errorf("index of ends: %x: %w", k, err)
		}
		if !e.Time.Before(l.cut.Ended(e.Saga, e.Status)) {
			l.after = format.PrefixEnd(format.Texts(e.Saga, string(e.Status)))
			k, _ = c.Seek(l.after)
			continue
		}
		if err := l.room(maxRemovedScattered); err != nil {
			return err
		}
		if err := l.ended(e); err != nil {
			return err
		}
		l.after = append(append(l.after[:0:0], k...), 0)
		k, _ = c.Next()
	}
	return nil
}

func (l *scan) ended(e format.EndKey) error {
	key := format.InstanceKey(e.Key)
	row := l.tx.Bucket([]byte(format.Saga)).Get(key)
	opened, err := l.seal.Instance(key, row)
	if err != nil {
		return err
	}
	in, err := format.CutInstance(e.Key, opened)
	if err != nil || !removable(in) {
		return err
	}
	l.take(len(key) + len(row))
	l.portion.Rows += in.Parts // they are removed with it
	l.portion.Instances = append(l.portion.Instances, Ended{Key: e.Key, Time: e.Time})
	return nil
}

// buckets reads the buckets before one, oldest first.
func (l *scan) buckets(name format.Keyspace, before []byte, cut time.Time, row func(bucket, k, v []byte) error) error {
	if cut.IsZero() {
		return nil
	}
	space := l.tx.Bucket([]byte(name))
	c := space.Cursor()
	for bucket, _ := c.Seek(l.after[:min(format.PartSize, len(l.after))]); bucket != nil && string(bucket) < string(before); bucket, _ = c.Next() {
		part, err := partOf(name, space, bucket)
		if err != nil {
			return err
		}
		rows := part.Cursor()
		k, v := rows.First()
		if len(l.after) > format.PartSize && string(l.after[:format.PartSize]) == string(bucket) {
			k, v = rows.Seek(l.after[format.PartSize:])
		}
		for ; k != nil; k, v = rows.Next() {
			if err := l.room(maxRemovedRows); err != nil {
				return err
			}
			if err := row(bucket, k, v); err != nil {
				return err
			}
			l.take(len(k) + len(v))
			l.after = append(append(append(l.after[:0:0], bucket...), k...), 0)
		}
	}
	return nil
}

// record takes a history row, and the head of its key if that has no other row.
func (l *scan) record(day, k, v []byte) error {
	if len(k) != format.PointerSize-format.PartSize {
		return fmt.Errorf("history of day %x: row %x: %w", day, k, format.ErrKey)
	}
	at := format.CutPointer(append(append([]byte(nil), day...), k...))
	if len(v) < format.PointerSize {
		return fmt.Errorf("history of day %x: row %x: %w", day, k, format.ErrRow)
	}
	var of struct {
		Key edda.Key `json:"key"`
	}
	v, err := l.seal.Record(at, v)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(v[format.PointerSize:], &of); err != nil {
		return fmt.Errorf("decode history: %w", err)
	}
	key := format.InstanceKey(of.Key)
	h, _, err := format.CutHead(l.tx.Bucket([]byte(format.Saga)).Get(key))
	if err == nil && h.Status == "" && h.Last == at && !waitsFor(l.tx, key) {
		if len(l.portion.Forgotten) >= maxRemovedScattered {
			return errFull
		}
		l.portion.Forgotten = append(l.portion.Forgotten, of.Key)
	}
	next := at
	next.N++
	l.portion.History = next
	return err
}

func (l *scan) claim(hour, k, _ []byte) error {
	at := ClaimPlace{Hour: time.Unix(int64(binary.BigEndian.Uint32(hour))*60*60, 0).UTC()}
	tenant, rest, err := format.CutText(k)
	if err != nil {
		return fmt.Errorf("claim %x: %w", k, err)
	}
	command, _, err := format.CutText(rest)
	if err != nil {
		return fmt.Errorf("claim %x: %w", k, err)
	}
	at.Tenant, at.CommandID = tenant, command+"\x00" // the next key there can be
	l.portion.Claims = at
	return nil
}

// letters takes dead letters that hold no key, by the time of the event and of the commit.
func (l *scan) letters() error {
	if l.cut.DeadLetters.IsZero() {
		return nil
	}
	c := l.tx.Bucket([]byte(format.DeadLetter)).Cursor()
	for k, v := c.Seek(l.after); k != nil; k, v = c.Next() {
		at, _, err := format.CutTime(k)
		if err != nil {
			return fmt.Errorf("dead letter %x: %w", k, err)
		}
		if !at.Before(l.cut.DeadLetters) {
			return nil
		}
		if err := l.room(maxRemovedScattered); err != nil {
			return err
		}
		l.after = append(append(l.after[:0:0], k...), 0)
		if err := l.letter(k, v); err != nil {
			return err
		}
	}
	return nil
}

func (l *scan) letter(k, v []byte) error {
	var letter struct {
		ID  string   `json:"id"`
		Key edda.Key `json:"key"`
	}
	v, err := l.seal.Open(format.DeadLetter, k, v, 0)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(v, &letter); err != nil {
		return fmt.Errorf("decode dead letter: %w", err)
	}
	written, ok := writtenAt(l.tx, letter.ID)
	if !ok || !written.Before(l.cut.DeadLetters) || queued(l.tx, format.Held, format.InstanceKey(letter.Key)) {
		return nil
	}
	l.take(len(k) + len(v))
	l.portion.DeadLetters = append(l.portion.DeadLetters, OldLetter{ID: letter.ID, Time: written})
	return nil
}

// audits are in commit order, so it ends at the first that is too young.
func (l *scan) audits() error {
	if l.cut.Audits.IsZero() {
		return nil
	}
	c := l.tx.Bucket([]byte(format.Audit)).Cursor()
	for k, v := c.Seek(l.after); k != nil; k, v = c.Next() {
		a, err := l.db.cutAudit(k, v)
		if err != nil || !a.Time.Before(l.cut.Audits) {
			return err
		}
		if err := l.room(maxRemovedRows); err != nil {
			return err
		}
		l.take(len(k) + len(v))
		l.after = append(append(l.after[:0:0], k...), 0)
		at := format.CutPointer(append(make([]byte, 4), k...))
		at.N++
		l.portion.Audits = at
	}
	return nil
}

// RetentionClock is the time by which retention counts age, as of the last removal. If none has set
// it, it is the time of the last commit or of the store's creation, and kept is false.
func (d *DB) RetentionClock() (t time.Time, kept bool, err error) {
	err = d.view(func(tx *wal.Tx) error {
		if b := tx.Bucket([]byte(format.Meta)).Get(format.MetaRetention); len(b) == 8 {
			t, kept = format.Stamp{Clock: binary.BigEndian.Uint64(b)}.Time(), true
			return nil
		}
		m := metaOf(tx)
		if t = m.Committed; t.Before(m.Created) {
			t = m.Created
		}
		return nil
	})
	return t, kept, err
}

// partOf returns the bucket of a day or an hour. Edda writes no other key there; edda doctor
// reports one, too.
func partOf(name format.Keyspace, space *wal.Bucket, key []byte) (*wal.Bucket, error) {
	part := space.Bucket(key)
	if part == nil || len(key) != format.PartSize {
		return nil, fmt.Errorf("%s: %x is no bucket of a day or an hour: %w", name, key, format.ErrKey)
	}
	return part, nil
}
