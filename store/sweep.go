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

// What one change removes is bounded, so that a commit that waits behind it
// waits a few milliseconds and no more. Instances lie scattered, and so do the heads
// of keys that nothing is left of and the ids of dead letters: each costs pages of
// its own. All else lies in order.
const (
	maxRemovedScattered = 64
	maxRemovedRows      = 256
	maxRemovedBytes     = 256 << 10
	// maxScannedRows bounds how long one scan keeps its snapshot open.
	maxScannedRows = 4096
)

// Kind is a kind of rows that expire.
type Kind string

// The kinds, in the order in which they are swept.
const (
	KindInstances   Kind = "instances"
	KindHistory     Kind = "history"
	KindClaims      Kind = "claims"
	KindDeadLetters Kind = "dead_letters"
	KindAudit       Kind = "audit"
	KindManifests   Kind = "manifests" // texts that nothing needs
)

// Kinds lists them.
func Kinds() []Kind {
	return []Kind{KindInstances, KindHistory, KindClaims, KindDeadLetters, KindAudit, KindManifests}
}

// Cutoffs say what has expired: what is before its time. A zero time keeps all.
type Cutoffs struct {
	// Ended asks by saga and status of finished instances; nil keeps all.
	Ended                                func(saga string, status edda.Status) time.Time
	History, Claims, DeadLetters, Audits time.Time
	// Manifests asks for texts that nothing has needed since before then.
	Manifests time.Time
	// Loaded tells whether a text is one that instances run on; nil: nobody knows.
	Loaded func(edda.Manifest) bool
	// Now is the time by which age is counted: texts that become idle are so from
	// then on. Zero marks none.
	Now time.Time
}

// Sweep walks one kind of rows and finds what has expired, in portions that one
// change can remove. It keeps no snapshot open between two of them. It is for
// one goroutine.
type Sweep struct {
	db    *DB
	kind  Kind
	cut   Cutoffs
	after []byte // the row that was looked at last, in the kind's own order
	done  bool
}

// Portion is what a change can remove, and how much that is.
type Portion struct {
	Removal
	Rows  int
	Bytes int64
}

// Sweep begins one. What it finds stays until a change removes it.
func (d *DB) Sweep(kind Kind, cut Cutoffs) *Sweep { return &Sweep{db: d, kind: kind, cut: cut} }

// Done tells whether all was looked at.
func (s *Sweep) Done() bool { return s.done }

// Next scans on. A portion may be empty although the sweep is not done.
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

// scan is one portion being filled.
type scan struct {
	*Sweep
	tx      *wal.Tx
	seal    format.Seal
	portion *Portion
	seen    int
}

// errFull ends a scan whose portion is full, before the row it was at.
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

// room refuses a row beyond the bounds of the portion.
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

// instances goes through the index of ends: in each group of one saga and one
// status the oldest come first, so that it ends at the first that is too young.
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

func (l *scan) ended(e format.End) error {
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
	l.portion.Rows += in.Parts // which go with it
	l.portion.Instances = append(l.portion.Instances, Ended{Key: e.Key, Time: e.Time})
	return nil
}

// buckets goes through the buckets before one, oldest first.
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

// record takes one row of the history, and the key it was the last of, if
// nothing else of it is left.
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

// letters leaves those that hold a key, and those that were written lately,
// however old the event is.
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

// audits lie in commit order: it ends at the first that is too young.
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

// RetentionClock is how far time has come for retention, as the last removal
// said; where none has said it, it is the last commit's time, or the store's creation, and kept is false.
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
