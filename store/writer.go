package store

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// appendFill packs the pages of keyspaces that only grow at their end: a page
// that is split there never takes another row.
const appendFill = 0.95

// instanceFill is between that and bbolt's half: where keys of instances ascend, as the
// numbers of orders do, two thirds of the pages are written; where they do not, pages of
// small instances are 58 % full instead of 66, and those of larger ones no emptier.
const instanceFill = 0.7

// writer puts encoded changes into one transaction. What the index will have
// to know goes to staged, which counts only if the transaction does.
type writer struct {
	seal    format.Seal
	tx      *wal.Tx
	buckets map[format.Keyspace]*wal.Bucket
	history *wal.Bucket // of the day
	hour    *wal.Bucket // of the claim that was written last; nil: ask
	ofHour  uint32
	stamp   format.Stamp
	staged  *staged
	tells   bool // rows that were in the outbox for long
	// The key that was asked for last: what is put or deleted there has a copy.
	id [format.PointerSize]byte
	// Ordinals of outbox rows, history rows and audits in this commit.
	works, records, audits uint32
}

func newWriter(tx *wal.Tx, secret format.Seal, s format.Stamp, st *staged) (*writer, error) {
	w := &writer{tx: tx, seal: secret, buckets: make(map[format.Keyspace]*wal.Bucket, len(format.Keyspaces)), stamp: s, staged: st}
	return w, w.bucket(format.Meta).Put(format.MetaCommit, s.Bytes())
}

// bucket is that of a keyspace: most commits need few.
func (w *writer) bucket(name format.Keyspace) *wal.Bucket {
	b := w.buckets[name]
	if b == nil {
		b = w.tx.Bucket([]byte(name))
		w.buckets[name] = b
	}
	return b
}

func (w *writer) change(e *encoded) error {
	for _, step := range []func(*encoded) error{
		w.expire, w.stale, w.outgoing, w.transitions, w.puts, w.claims, w.letters, w.delivered, w.told, w.armed,
	} {
		if err := step(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) transitions(e *encoded) error {
	for i := range e.ready {
		t := e.ready[i].transition
		if t == nil {
			continue
		}
		if err := w.transition(t); err != nil {
			return fmt.Errorf("instance %s: %w", t.who, err)
		}
	}
	for i := range e.transitions {
		t := &e.transitions[i]
		if err := w.transition(t); err != nil {
			return fmt.Errorf("instance %s: %w", t.who, err)
		}
	}
	return nil
}

func (w *writer) transition(t *encodedTransition) error {
	if err := w.cell(t); err != nil {
		return err
	}
	if err := w.work(t); err != nil {
		return err
	}
	for _, r := range t.rows {
		if r.bucket == format.Parked {
			w.park(t.who.Tenant, r)
		}
		if err := w.write(r); err != nil {
			return err
		}
	}
	if t.dead != nil {
		if err := w.deadLetter(t.dead); err != nil {
			return err
		}
	}
	for _, id := range t.resolved {
		if err := w.resolve(id); err != nil {
			return err
		}
	}
	return w.dues(t.disarm, t.arm)
}

// park counts a parked event that comes or goes.
func (w *writer) park(tenant string, r row) {
	was, is := w.bucket(format.Parked).Get(r.key) != nil, r.value != nil
	switch {
	case is && !was:
		w.staged.parked[tenant]++
	case was && !is:
		w.staged.parked[tenant]--
	}
}

func (w *writer) write(r row) error {
	if err := w.countEntry(r); err != nil {
		return err
	}
	if r.value == nil {
		return w.bucket(r.bucket).Delete(r.key)
	}
	return w.put(w.bucket(r.bucket), r.bucket, r.key, r.key, r.value, 0)
}

// put writes a row, sealed behind its head where the keyspace is one of those.
// A row in the bucket of a day has a place that its key alone does not tell.
func (w *writer) put(b *wal.Bucket, space format.Keyspace, key, place, value []byte, head int) error {
	value, err := w.seal.Close(space, place, value, head)
	if err != nil {
		return err
	}
	return b.Put(key, value)
}

// cell writes the history row and the instance, each pointing to the one before.
func (w *writer) cell(t *encodedTransition) error {
	if t.record == nil && t.instance == nil {
		return nil
	}
	row := w.bucket(format.Saga).Get(t.key)
	old, body, err := format.CutHead(row)
	if err != nil {
		return err
	}
	last := old.Last
	if t.record != nil {
		if last, err = w.record(t.record, old.Last); err != nil {
			return err
		}
	}
	if t.instance == nil {
		old.Last = last
		return w.bucket(format.Saga).Put(t.key, append(old.Append(nil), body...))
	}
	t.head.Last = last
	if err := w.end(t, old, row); err != nil {
		return err
	}
	t.head.Append(t.instance[:0])
	w.staged.count(t.who, old, t.head)
	return w.put(w.bucket(format.Saga), format.Saga, t.key, t.key, t.instance, t.head.Size())
}

func (w *writer) record(row []byte, previous format.Pointer) (format.Pointer, error) {
	at := format.Pointer{Day: format.DayOf(w.stamp.Time()), Commit: w.stamp.Commit, N: w.records}
	w.records++
	if w.history == nil {
		day, err := w.bucket(format.History).CreateBucketIfNotExists(format.DayKey(at.Day))
		if err != nil {
			return at, fmt.Errorf("history of a day: %w", err)
		}
		w.history = day
	}
	previous.Append(row[:0])
	place := at.Append(w.id[:0])
	return at, w.put(w.history, format.History, place[format.PartSize:], place, row, format.PointerSize)
}

// rowID is the id of the next outbox row.
func (w *writer) rowID() ulid.ULID {
	n := w.works
	w.works++
	return w.stamp.RowID(n)
}

// work adds what goes out and removes what is settled, in this order: the
// result of an effect may stand in the same change as the effect.
func (w *writer) work(t *encodedTransition) error {
	if err := w.send(t.work); err != nil {
		return err
	}
	for _, command := range t.settled {
		if err := w.settle(command, t.who); err != nil {
			return err
		}
	}
	return nil
}

// outgoing comes before the work of transitions: the copy of a result goes out before
// what the result sets off, or a store that was restored could find the one without
// the other.
func (w *writer) outgoing(e *encoded) error {
	for i := range e.ready {
		if err := w.send(e.ready[i].work); err != nil {
			return err
		}
	}
	return w.send(e.work)
}

// send writes outbox rows; a second one of an effect takes the place of the first.
func (w *writer) send(list []encodedWork) error {
	for _, work := range list {
		if work.kind == edda.WorkEffect {
			if err := w.settle(work.id, work.from); err != nil {
				return err
			}
		}
		id := w.rowID()
		w.id = id
		if err := w.put(w.bucket(format.Outbox), format.Outbox, w.id[:], w.id[:], work.value, 0); err != nil {
			return err
		}
		w.staged.add(id, work)
	}
	return nil
}

// settle removes an effect's row, if it is one of who's: whoever publishes a
// result chooses the command id in it.
func (w *writer) settle(command string, who edda.Key) error {
	row, ok := w.staged.waiting(command)
	if !ok || row.From != who {
		return nil
	}
	w.staged.removed(row.ID, edda.WorkEffect, w.staged.index.owner(who.Tenant, who.Saga))
	w.id = row.ID
	return w.bucket(format.Outbox).Delete(w.id[:])
}

func (w *writer) remove(id ulid.ULID) error {
	bucket := w.bucket(format.Outbox)
	w.id = id
	value := bucket.Get(w.id[:])
	if value == nil {
		return nil // delivered before
	}
	if w.late(id) {
		bucket.Tell(w.id[:], value)
	}
	value, err := w.seal.Open(format.Outbox, w.id[:], value, 0)
	if err != nil {
		return err
	}
	by, err := w.staged.index.ownerOf(value)
	if err != nil {
		return err
	}
	w.staged.removed(id, format.KindOf(value), by)
	return bucket.Delete(w.id[:])
}

func (w *writer) delivered(e *encoded) error {
	for _, id := range e.delivered {
		if err := w.remove(id); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) puts(e *encoded) error {
	for _, r := range e.puts {
		if err := w.write(r); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) claims(e *encoded) error {
	for i := range e.ready {
		if c := e.ready[i].claim; c != nil {
			if err := w.claim(c); err != nil {
				return err
			}
		}
	}
	for i := range e.claims {
		if err := w.claim(&e.claims[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) claim(c *encodedClaim) error {
	w.staged.claimed = append(w.staged.claimed, c.command)
	if err := w.turn(c.hour); err != nil {
		return fmt.Errorf("claims of an hour: %w", err)
	}
	return w.put(w.hour, format.Claim, c.key, c.key, c.value, 0)
}

// turn goes on with the claims of an hour, which most that come together share.
func (w *writer) turn(hour uint32) (err error) {
	if w.hour != nil && w.ofHour == hour {
		return nil
	}
	if !slices.Contains(w.staged.hours, hour) {
		w.staged.hours = append(w.staged.hours, hour)
	}
	w.ofHour = hour
	w.hour, err = w.bucket(format.Claim).CreateBucketIfNotExists(format.HourKey(hour))
	return err
}

func (w *writer) letters(e *encoded) error {
	for i := range e.dead {
		if err := w.deadLetter(&e.dead[i]); err != nil {
			return err
		}
	}
	for _, a := range e.audits {
		key := format.Pointer{Commit: w.stamp.Commit, N: w.audits}.Key()
		w.audits++
		if err := w.put(w.bucket(format.Audit), format.Audit, key, key, a, 0); err != nil {
			return err
		}
	}
	return nil
}

// deadLetter puts one; the same id again replaces it.
func (w *writer) deadLetter(d *encodedDead) error {
	if err := w.resolve(d.id); err != nil {
		return err
	}
	at := binary.BigEndian.AppendUint64(format.AppendTime(nil, d.time), w.stamp.Clock)
	if err := w.bucket(format.DeadLetterID).Put(format.Texts(d.id), at); err != nil {
		return err
	}
	value := d.value
	if d.cut != nil && w.staged.letters(d.tenant)+len(value) > w.staged.index.maxDead {
		value = d.cut
	}
	if err := w.staged.queues.letter(value, 1); err != nil {
		return err
	}
	key := format.DeadKey(d.time, d.id)
	return w.put(w.bucket(format.DeadLetter), format.DeadLetter, key, key, value, 0)
}

func (w *writer) resolve(id string) error {
	ids := w.bucket(format.DeadLetterID)
	key, ok := findDead(w.tx, id)
	if !ok {
		return nil
	}
	was, err := w.seal.Open(format.DeadLetter, key, w.bucket(format.DeadLetter).Get(key), 0)
	if err != nil {
		return err
	}
	if err := w.staged.queues.letter(was, -1); err != nil {
		return err
	}
	if err := w.bucket(format.DeadLetter).Delete(key); err != nil {
		return err
	}
	return ids.Delete(format.Texts(id))
}

// stale removes the due rows that a look found stale. It comes before the
// transitions, which may arm the same key for the same time.
func (w *writer) stale(e *encoded) error { return w.dues(e.disarm, nil) }

func (w *writer) armed(e *encoded) error { return w.dues(nil, e.arm) }

func (w *writer) dues(disarm, arm [][]byte) error {
	bucket := w.bucket(format.Due)
	for _, key := range disarm {
		if err := bucket.Delete(key); err != nil {
			return err
		}
	}
	for _, key := range arm {
		if err := bucket.Put(key, []byte{}); err != nil {
			return err
		}
		w.staged.arm(key)
	}
	return nil
}

// counts writes the counters that this transaction changed.
func (w *writer) counts() error {
	for key, n := range w.staged.counts {
		if n == 0 {
			if err := w.bucket(format.Count).Delete(key.Bytes()); err != nil {
				return err
			}
			continue
		}
		if err := w.bucket(format.Count).Put(key.Bytes(), binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
			return err
		}
	}
	return nil
}

// oldest notes the first outbox row. None comes before those there were, so that the
// many that were deleted lately are not passed again.
func (w *writer) oldest() {
	k, _ := w.bucket(format.Outbox).Cursor().Seek(w.staged.index.front[:])
	w.staged.oldest = ulid.ULID{}
	copy(w.staged.oldest[:], k)
	w.staged.front = w.staged.oldest
	if k == nil {
		w.staged.front = w.rowID() // the next one is behind this
	}
}
