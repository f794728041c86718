package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Removal is what one change removes because it has expired. A [Sweep] makes
// it; what has changed since the sweep looked stays.
type Removal struct {
	Instances []Ended
	// History removes all rows before this place.
	History format.Pointer
	// Forgotten are keys that had nothing but the history removed here.
	Forgotten []edda.Key
	// Claims removes those of earlier hours, and in this hour those before this one.
	Claims      ClaimPlace
	DeadLetters []OldLetter
	// Audits removes those before this place; its day is zero.
	Audits format.Pointer
	// Texts are manifests that nothing needs; Idle are those that began to be so, or
	// ceased to.
	Texts []OldText
	Idle  []OldText
	// Clock is how far time has come for retention; zero leaves it.
	Clock time.Time
}

// Ended is a finished instance and the time of the commit that finished it.
type Ended struct {
	Key  edda.Key
	Time time.Time
}

// OldLetter is a dead letter and the time of the commit that wrote it.
type OldLetter struct {
	ID   string
	Time time.Time
}

// ClaimPlace is where a claim lies.
type ClaimPlace struct {
	Hour              time.Time
	Tenant, CommandID string
}

// expire removes what a sweep found, as far as it is still so.
func (w *writer) expire(e *encoded) error {
	r := &e.remove
	if r.empty() {
		return nil
	}
	for _, step := range []func(*Removal) error{
		w.removeInstances, w.removeHistory, w.forget, w.removeClaims, w.removeLetters, w.removeAudits, w.markTexts, w.removeTexts, w.retentionClock,
	} {
		if err := step(r); err != nil {
			return fmt.Errorf("remove what has expired: %w", err)
		}
	}
	return nil
}

func (r *Removal) empty() bool {
	return len(r.Instances)+len(r.Forgotten)+len(r.DeadLetters)+len(r.Texts)+len(r.Idle) == 0 &&
		r.History == (format.Pointer{}) && r.Claims == (ClaimPlace{}) && r.Audits == (format.Pointer{}) && r.Clock.IsZero()
}

func (w *writer) removeInstances(r *Removal) error {
	for _, gone := range r.Instances {
		if err := w.removeInstance(gone); err != nil {
			return fmt.Errorf("instance %s: %w", gone.Key, err)
		}
	}
	return nil
}

// removeInstance leaves the key's history, where there is any, to its own
// retention: the head alone stays until then.
func (w *writer) removeInstance(gone Ended) error {
	key := format.InstanceKey(gone.Key)
	row := w.bucket(format.Saga).Get(key)
	h, _, err := format.CutHead(row)
	if err != nil || h.Ended == 0 || h.Ended != uint64(gone.Time.UnixMilli()) {
		return err // changed since it was looked at
	}
	if row, err = w.seal.Instance(key, row); err != nil {
		return err
	}
	in, err := format.CutInstance(gone.Key, row)
	if err != nil || !removable(in) {
		return err
	}
	left := format.Head{Last: h.Last}
	w.staged.count(gone.Key, h, left)
	for _, step := range []error{
		w.moveEnd(gone.Key, h, left),
		w.dues(w.dueRows(key, in), nil),
		w.putHead(key, left),
		w.removeParts(key, in),
	} {
		if step != nil {
			return step
		}
	}
	return nil
}

// removeParts removes what an instance's state has besides its own row.
func (w *writer) removeParts(key []byte, in *edda.Instance) error {
	if in.Parts == 0 {
		return nil
	}
	var gone [][]byte // a cursor does not bear that its rows are deleted
	c := w.bucket(format.Part).Cursor()
	for k, _ := c.Seek(key); bytes.HasPrefix(k, key); k, _ = c.Next() {
		gone = append(gone, bytes.Clone(k))
	}
	for _, k := range gone {
		if err := w.bucket(format.Part).Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) dueRows(key []byte, in *edda.Instance) (rows [][]byte) {
	for _, at := range armed(in) {
		rows = append(rows, format.DueKey(at, key))
	}
	return rows
}

// putHead keeps a head while it leads to history that is kept.
func (w *writer) putHead(key []byte, h format.Head) error {
	if !h.Last.Before(droppedHistory(w.tx)) {
		return w.bucket(format.Saga).Put(key, h.Append(nil))
	}
	return w.bucket(format.Saga).Delete(key)
}

// removable tells whether nothing is outstanding for a finished instance: no
// poison event holds it, no step of a late handler waits for its result, and no
// incident for an operator.
func removable(in *edda.Instance) bool {
	if in == nil || !in.Status.Finished() || in.Held != "" || len(in.Incidents) > 0 {
		return false
	}
	for _, steps := range [][]edda.Step{in.Steps, in.Older} {
		for i := range steps {
			if steps[i].Status == edda.StepPending && steps[i].Late {
				return false
			}
		}
	}
	return true
}

// removeHistory removes the oldest rows. Later pointers to them end their chains.
func (w *writer) removeHistory(r *Removal) error {
	until := r.History
	if !droppedHistory(w.tx).Before(until) {
		return nil
	}
	if err := w.removeBuckets(format.History, format.DayKey(until.Day), until.Key()); err != nil {
		return err
	}
	return w.bucket(format.Meta).Put(format.MetaDropped, until.Append(nil))
}

// removeBuckets removes, in a keyspace of buckets, all rows before a place, and
// the buckets that have become empty. Whoever calls has bounded them.
func (w *writer) removeBuckets(name format.Keyspace, last, until []byte) error {
	space := w.bucket(name)
	var names [][]byte
	c := space.Cursor()
	for k, _ := c.First(); k != nil && bytes.Compare(k, last) <= 0; k, _ = c.Next() {
		names = append(names, bytes.Clone(k))
	}
	for _, k := range names {
		end := until
		if !bytes.Equal(k, last) {
			end = nil
		}
		part, err := partOf(name, space, k)
		if err != nil {
			return err
		}
		empty, err := removeRows(part, end, !bytes.Equal(k, last))
		if err != nil {
			return err
		}
		if !empty {
			continue
		}
		w.history, w.hour = nil, nil // a bucket of theirs may be the one that goes
		if err := space.DeleteBucket(k); err != nil {
			return err
		}
	}
	return nil
}

var errPlace = errors.New("behind the place")

// removeRows removes the rows before a key, or all, and tells whether none is left.
func removeRows(b *wal.Bucket, until []byte, all bool) (empty bool, err error) {
	var keys [][]byte
	empty = true
	err = b.ForEach(func(k, _ []byte) error {
		if !all && bytes.Compare(k, until) >= 0 {
			empty = false
			return errPlace
		}
		keys = append(keys, bytes.Clone(k))
		return nil
	})
	if err != nil && !errors.Is(err, errPlace) {
		return false, err
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return false, err
		}
	}
	return empty, nil
}

// forget removes the heads of keys that have nothing any more.
func (w *writer) forget(r *Removal) error {
	for _, k := range r.Forgotten {
		key := format.InstanceKey(k)
		row := w.bucket(format.Saga).Get(key)
		h, _, err := format.CutHead(row)
		if err != nil {
			return fmt.Errorf("instance %s: %w", k, err)
		}
		if row == nil || h.Status != "" || !h.Last.Before(droppedHistory(w.tx)) || waitsFor(w.tx, key) {
			continue
		}
		if err := w.bucket(format.Saga).Delete(key); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) removeClaims(r *Removal) error {
	if r.Claims.Hour.IsZero() {
		return nil
	}
	w.staged.cleared = true
	return w.removeBuckets(format.Claim, format.HourKey(format.HourOf(r.Claims.Hour)), format.Texts(r.Claims.Tenant, r.Claims.CommandID))
}

func (w *writer) removeLetters(r *Removal) error {
	for _, old := range r.DeadLetters {
		if at, ok := writtenAt(w.tx, old.ID); !ok || !at.Equal(old.Time) {
			continue
		}
		if err := w.resolve(old.ID); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) removeAudits(r *Removal) error {
	_, err := removeRows(w.bucket(format.Audit), r.Audits.Key(), false)
	return err
}

// retentionClock notes how far time has come for retention.
func (w *writer) retentionClock(r *Removal) error {
	if r.Clock.IsZero() {
		return nil
	}
	clock := binary.BigEndian.AppendUint64(nil, uint64(max(0, r.Clock.UnixMilli())))
	return w.bucket(format.Meta).Put(format.MetaRetention, clock)
}

// droppedHistory is the place before which history was removed.
func droppedHistory(tx *wal.Tx) format.Pointer {
	if b := tx.Bucket([]byte(format.Meta)).Get(format.MetaDropped); len(b) == format.PointerSize {
		return format.CutPointer(b)
	}
	return format.Pointer{}
}

// writtenAt is the time of the commit that wrote a dead letter.
func writtenAt(tx *wal.Tx, id string) (time.Time, bool) {
	at := tx.Bucket([]byte(format.DeadLetterID)).Get(format.Texts(id))
	if len(at) != format.TimeSize+8 {
		return time.Time{}, false
	}
	return format.Stamp{Clock: binary.BigEndian.Uint64(at[format.TimeSize:])}.Time(), true
}

// waitsFor tells whether events are parked or held for a key.
func waitsFor(tx *wal.Tx, key []byte) bool {
	return queued(tx, format.Parked, key) || queued(tx, format.Held, key)
}

func queued(tx *wal.Tx, name format.Keyspace, key []byte) bool {
	k, _ := tx.Bucket([]byte(name)).Cursor().Seek(key)
	return bytes.HasPrefix(k, key)
}
