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

// Removal is what a change removes because it has expired. A [Sweep] makes it. Rows that have
// changed since the sweep read them stay.
type Removal struct {
	Instances []Ended
	// History removes the rows before this place.
	History format.Pointer
	// Forgotten are keys that had nothing but the history that this change removes.
	Forgotten []edda.Key
	// Claims removes the claims before this place.
	Claims      ClaimPlace
	DeadLetters []OldLetter
	// Audits removes those before this place, whose day is zero.
	Audits format.Pointer
	// Texts are manifests that nothing needs. Idle are those that became idle, or are needed again.
	Texts []OldText
	Idle  []OldText
	// Clock is the time by which retention counts age; zero leaves it.
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

// ClaimPlace is the place of a claim: its hour, then its key.
type ClaimPlace struct {
	Hour              time.Time
	Tenant, CommandID string
}

// expire removes what a sweep found and what has not changed since.
func (w *writer) expire(r *Removal) error {
	for _, gone := range r.Instances {
		if err := w.removeInstance(gone); err != nil {
			return fmt.Errorf("instance %s: %w", gone.Key, err)
		}
	}
	if r.History != (format.Pointer{}) && droppedHistory(w.tx).Before(r.History) { // later pointers to these rows end their chains
		if err := w.removeBuckets(format.History, format.DayKey(r.History.Day), r.History.Key()); err != nil {
			return err
		}
		if err := w.bucket(format.Meta).Put(format.MetaDropped, r.History.Append(nil)); err != nil {
			return err
		}
	}
	if err := w.forget(r.Forgotten); err != nil {
		return err
	}
	if !r.Claims.Hour.IsZero() {
		w.staged.cleared = true
		if err := w.removeBuckets(format.Claim, format.HourKey(format.HourOf(r.Claims.Hour)), format.Texts(r.Claims.Tenant, r.Claims.CommandID)); err != nil {
			return err
		}
	}
	for _, old := range r.DeadLetters {
		if at, ok := writtenAt(w.tx, old.ID); !ok || !at.Equal(old.Time) {
			continue
		}
		if err := w.resolve(old.ID); err != nil {
			return err
		}
	}
	if r.Audits != (format.Pointer{}) {
		if _, err := removeRows(w.bucket(format.Audit), r.Audits.Key(), false); err != nil {
			return err
		}
	}
	if err := w.expireTexts(r); err != nil {
		return err
	}
	if r.Clock.IsZero() {
		return nil
	}
	clock := binary.BigEndian.AppendUint64(nil, uint64(max(0, r.Clock.UnixMilli())))
	return w.bucket(format.Meta).Put(format.MetaRetention, clock)
}

// removeInstance removes an instance. Its history has a retention of its own: the head stays
// until then.
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
	if err := w.moveEnd(gone.Key, h, left); err != nil {
		return err
	}
	if err := w.putHead(key, left); err != nil {
		return err
	}
	return w.removeParts(key, in)
}

// removeParts removes the due row of an instance and the parts of its state.
func (w *writer) removeParts(key []byte, in *edda.Instance) error {
	if !in.Armed.IsZero() {
		if err := w.bucket(format.Due).Delete(format.DueKey(in.Armed, key)); err != nil {
			return err
		}
	}
	if in.Parts == 0 {
		return nil
	}
	var parts [][]byte // a cursor must not move over rows that are being deleted
	c := w.bucket(format.Part).Cursor()
	for k, _ := c.Seek(key); bytes.HasPrefix(k, key); k, _ = c.Next() {
		parts = append(parts, bytes.Clone(k))
	}
	for _, k := range parts {
		if err := w.bucket(format.Part).Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// putHead keeps a head while it leads to history that is kept.
func (w *writer) putHead(key []byte, h format.Head) error {
	if !h.Last.Before(droppedHistory(w.tx)) {
		return w.bucket(format.Saga).Put(key, h.Append(nil))
	}
	return w.bucket(format.Saga).Delete(key)
}

// removable reports whether nothing is outstanding for a finished instance: no poison event holds
// it, no step of a late handler waits for its result, and no incident waits for an operator.
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

// removeBuckets removes the rows of a keyspace before a place in its last bucket, and the buckets
// that are empty then. The caller bounds their number.
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
		w.history, w.hour = nil, nil // they may be the bucket that is deleted
		if err := space.DeleteBucket(k); err != nil {
			return err
		}
	}
	return nil
}

var errPlace = errors.New("behind the place")

// removeRows removes the rows before a key, or all, and reports whether the bucket is empty then.
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

// forget removes the heads of keys that have no other row.
func (w *writer) forget(keys []edda.Key) error {
	for _, k := range keys {
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

// droppedHistory is the place before which the history was removed.
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

// waitsFor reports whether events are parked or held for a key.
func waitsFor(tx *wal.Tx, key []byte) bool {
	return queued(tx, format.Parked, key) || queued(tx, format.Held, key)
}

func queued(tx *wal.Tx, name format.Keyspace, key []byte) bool {
	k, _ := tx.Bucket([]byte(name)).Cursor().Seek(key)
	return bytes.HasPrefix(k, key)
}
