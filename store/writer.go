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

// writer writes encoded changes in one transaction. staged gets what the index changes if the
// transaction commits.
type writer struct {
	seal    format.Seal
	tx      *wal.Tx
	buckets map[format.Keyspace]*wal.Bucket
	history *wal.Bucket // of the day
	hour    *wal.Bucket // of the claim that was written last; nil: of none
	ofHour  uint32
	stamp   format.Stamp
	staged  *staged
	tells   bool // delivered rows to the WAL; see [DB.Sent]
	// id is memory for one key: puts and deletes copy it.
	id [format.PointerSize]byte
	// How many outbox rows, history rows and audits the commit has so far.
	works, records, audits uint32
}

func newWriter(tx *wal.Tx, secret format.Seal, s format.Stamp, st *staged) (*writer, error) {
	w := &writer{tx: tx, seal: secret, buckets: make(map[format.Keyspace]*wal.Bucket, len(format.Keyspaces)), stamp: s, staged: st}
	return w, w.bucket(format.Meta).Put(format.MetaCommit, s.Bytes())
}

// bucket opens the bucket of a keyspace. Most commits need few.
func (w *writer) bucket(name format.Keyspace) *wal.Bucket {
	b := w.buckets[name]
	if b == nil {
		b = w.tx.Bucket([]byte(name))
		w.buckets[name] = b
	}
	return b
}

// change writes one change: first what expires and what is stale, since a transition may write
// the same rows again, then the work that goes out before that of the transitions. The echo of
// a result is such work: a restored store must not find what the result caused without it.
func (w *writer) change(e *encoded) error {
	if err := w.expire(&e.remove); err != nil {
		return fmt.Errorf("remove what has expired: %w", err)
	}
	if err := w.dues(e.disarm, nil); err != nil {
		return err
	}
	for i := range e.ready {
		if err := w.send(e.ready[i].work); err != nil {
			return err
		}
	}
	if err := w.send(e.work); err != nil {
		return err
	}
	for i := range e.ready {
		if t := e.ready[i].transition; t != nil {
			if err := w.transition(t); err != nil {
				return fmt.Errorf("instance %s: %w", t.who, err)
			}
		}
	}
	for i := range e.transitions {
		if err := w.transition(&e.transitions[i]); err != nil {
			return fmt.Errorf("instance %s: %w", e.transitions[i].who, err)
		}
	}
	for _, r := range e.puts {
		if err := w.write("", r); err != nil {
			return err
		}
	}
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
	for _, id := range e.delivered {
		if err := w.deliver(id); err != nil {
			return err
		}
	}
	for _, r := range e.sent {
		if w.bucket(format.Outbox).Get(r.key) != nil {
			continue // it goes out as it is
		}
		value, err := w.seal.Close(format.Outbox, r.key, r.value, 0)
		if err != nil {
			return err
		}
		w.bucket(format.Outbox).Tell(r.key, value)
	}
	return w.dues(nil, e.arm)
}

// transition writes what one input did to one instance. The work goes out before settled
// commands are removed, because a change may have an effect and its result.
func (w *writer) transition(t *encodedTransition) error {
	if err := w.cell(t); err != nil {
		return err
	}
	if err := w.send(t.work); err != nil {
		return err
	}
	for _, command := range t.settled {
		if err := w.settle(command, t.who); err != nil {
			return err
		}
	}
	for _, r := range t.rows {
		if err := w.write(t.who.Tenant, r); err != nil {
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

// write puts or deletes a row, and counts it if it is one of a tenant's queues.
func (w *writer) write(tenant string, r row) error {
	b := w.bucket(r.bucket)
	if r.bucket == format.Parked || r.bucket == format.Held {
		was, err := w.seal.Open(r.bucket, r.key, b.Get(r.key), 0)
		if err == nil {
			err = w.staged.queues.row(r.bucket, was, -1)
		}
		if err == nil {
			err = w.staged.queues.row(r.bucket, r.value, 1)
		}
		if err != nil {
			return err
		}
		if r.bucket == format.Parked && (was == nil) != (r.value == nil) {
			n := 1
			if r.value == nil {
				n = -1
			}
			set(&w.staged.parked, tenant, w.staged.parked[tenant]+n)
		}
	}
	if r.value == nil {
		return b.Delete(r.key)
	}
	return w.put(b, r.bucket, r.key, r.key, r.value, 0)
}

// put writes a row, encrypted after its head where the keyspace is. The place of a row in the
// bucket of a day is more than its key.
func (w *writer) put(b *wal.Bucket, space format.Keyspace, key, place, value []byte, head int) error {
	value, err := w.seal.Close(space, place, value, head)
	if err != nil {
		return err
	}
	return b.Put(key, value)
}

// cell writes the history row and the instance. Each points to the history row before.
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
	if old.Status == "" {
		// An instance that is put back after it was removed needs its due row again.
		if err := w.dues(nil, t.due); err != nil {
			return err
		}
	}
	if t.head.Status.Finished() {
		t.head.Ended = w.stamp.Clock
		if same, err := w.sameEnd(old, t, row); err != nil {
			return err
		} else if same {
			t.head.Ended = old.Ended
		}
	}
	if err := w.moveEnd(t.who, old, t.head); err != nil {
		return err
	}
	t.head.Append(t.instance[:0])
	w.staged.count(t.who, old, t.head)
	return w.put(w.bucket(format.Saga), format.Saga, t.key, t.key, t.instance, t.head.Size())
}

// sameEnd reports whether a finished instance changed after its end. One that was started again
// and ended at once has another generation.
func (w *writer) sameEnd(old format.Head, t *encodedTransition, row []byte) (bool, error) {
	if old.Status != t.head.Status {
		return false, nil
	}
	row, err := w.seal.Instance(t.key, row)
	if err != nil {
		return false, err
	}
	_, body, err := format.CutHead(row)
	if err != nil {
		return false, err
	}
	before, err := format.Decode[format.InstancePart]("instance "+t.who.String(), body)
	return before.Generation == t.generation, err
}

// moveEnd moves an instance in the index of ends.
func (w *writer) moveEnd(k edda.Key, old, now format.Head) error {
	if old.Ended == now.Ended && old.Status == now.Status {
		return nil
	}
	if old.Ended != 0 {
		if err := w.bucket(format.Ended).Delete(format.EndedKey(old.Status, old.Ended, k)); err != nil {
			return err
		}
	}
	if now.Ended == 0 {
		return nil
	}
	return w.bucket(format.Ended).Put(format.EndedKey(now.Status, now.Ended, k), []byte{})
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

// send writes outbox rows. A second row of an effect replaces the first.
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

// settle removes the row of an effect if it is one of this instance: the publisher of a result
// chooses the command id in it.
func (w *writer) settle(command string, who edda.Key) error {
	row, ok := w.staged.waiting(command)
	if !ok || row.From != who {
		return nil
	}
	w.staged.removed(row.ID, edda.WorkEffect, w.staged.index.owner(who.Tenant, who.Saga))
	w.id = row.ID
	return w.bucket(format.Outbox).Delete(w.id[:])
}

// deliver removes an outbox row. One that was in the outbox for long is written into the WAL
// once more, for [DB.Sent].
func (w *writer) deliver(id ulid.ULID) error {
	bucket := w.bucket(format.Outbox)
	w.id = id
	value := bucket.Get(w.id[:])
	if value == nil {
		return nil // delivered before
	}
	if w.tells && w.stamp.Clock > id.Time()+uint64(TellAfter.Milliseconds()) {
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

// claim writes a claim. Most claims of a commit share the bucket of an hour.
func (w *writer) claim(c *encodedClaim) (err error) {
	w.staged.claimed = append(w.staged.claimed, c.command)
	if w.hour == nil || w.ofHour != c.hour {
		if !slices.Contains(w.staged.hours, c.hour) {
			w.staged.hours = append(w.staged.hours, c.hour)
		}
		w.ofHour = c.hour
		if w.hour, err = w.bucket(format.Claim).CreateBucketIfNotExists(format.HourKey(c.hour)); err != nil {
			return fmt.Errorf("claims of an hour: %w", err)
		}
	}
	return w.put(w.hour, format.Claim, c.key, c.key, c.value, 0)
}

// deadLetter writes a dead letter. It replaces one of the same id.
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
	if err := w.staged.queues.row(format.DeadLetter, value, 1); err != nil {
		return err
	}
	key := format.DeadKey(d.time, d.id)
	return w.put(w.bucket(format.DeadLetter), format.DeadLetter, key, key, value, 0)
}

// resolve removes a dead letter.
func (w *writer) resolve(id string) error {
	key, ok := findDead(w.tx, id)
	if !ok {
		return nil
	}
	was, err := w.seal.Open(format.DeadLetter, key, w.bucket(format.DeadLetter).Get(key), 0)
	if err != nil {
		return err
	}
	if err := w.staged.queues.row(format.DeadLetter, was, -1); err != nil {
		return err
	}
	if err := w.bucket(format.DeadLetter).Delete(key); err != nil {
		return err
	}
	return w.bucket(format.DeadLetterID).Delete(format.Texts(id))
}

// dues deletes and adds rows of the due index.
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

// finish writes the counters that the transaction changed, and notes the first outbox row. No
// row is before the front, so the search does not pass the many rows that were deleted lately.
func (w *writer) finish() error {
	k, _ := w.bucket(format.Outbox).Cursor().Seek(w.staged.index.front[:])
	copy(w.staged.oldest[:], k)
	w.staged.front = w.staged.oldest
	if k == nil {
		w.staged.front = w.rowID() // the next row is after this
	}
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
