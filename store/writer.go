package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/wal"
)

// keyspace is the name of a top-level bucket.
type keyspace string

// The keyspaces; FORMAT.md says what each holds.
const (
	bucketMeta       keyspace = "meta"
	bucketSaga       keyspace = "saga"
	bucketCount      keyspace = "count"
	bucketCheckpoint keyspace = "checkpoint"
	bucketPosition   keyspace = "position"
	bucketOutbox     keyspace = "outbox"
	bucketDue        keyspace = "due"
	bucketEnded      keyspace = "ended"
	bucketClaim      keyspace = "claim"   // a bucket per hour
	bucketHistory    keyspace = "history" // a bucket per day
	bucketParked     keyspace = "parked"
	bucketHeld       keyspace = "held"
	bucketDead       keyspace = "deadletter"
	bucketDeadID     keyspace = "deadletter-id"
	bucketManifest   keyspace = "manifest"
	bucketSchedule   keyspace = "schedule"
	bucketAudit      keyspace = "audit"
	bucketReplay     keyspace = "replay"
	bucketPart       keyspace = "part"
)

var keyspaces = []keyspace{
	bucketMeta, bucketSaga, bucketCount, bucketCheckpoint, bucketPosition, bucketOutbox, bucketDue, bucketEnded,
	bucketClaim, bucketHistory, bucketParked, bucketHeld, bucketDead, bucketDeadID, bucketManifest, bucketSchedule, bucketAudit, bucketReplay, bucketPart,
}

// appendFill packs the pages of keyspaces that only grow at their end: a page
// that is split there never takes another row.
const appendFill = 0.95

// instanceFill is between that and bbolt's half: where keys of instances ascend, as the
// numbers of orders do, two thirds of the pages are written; where they do not, pages of
// small instances are 58 % full instead of 66, and those of larger ones no emptier.
const instanceFill = 0.7

// stamp is what tells commits apart: a number without gaps, and a time that
// never goes back, in milliseconds. It is a row of meta.
type stamp struct {
	Commit uint64
	Clock  uint64
}

const stampSize = 16

func (s stamp) row() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.Commit), s.Clock)
}

func cutStamp(b []byte) stamp {
	if len(b) != stampSize {
		return stamp{}
	}
	return stamp{Commit: binary.BigEndian.Uint64(b), Clock: binary.BigEndian.Uint64(b[8:])}
}

func (s stamp) next(now time.Time) stamp {
	return stamp{Commit: s.Commit + 1, Clock: max(s.Clock, uint64(max(0, now.UnixMilli())))}
}

func (s stamp) time() time.Time { return time.UnixMilli(int64(s.Clock)).UTC() }

// writer puts encoded changes into one transaction. What the index will have
// to know goes to staged, which counts only if the transaction does.
type writer struct {
	seal    seal
	tx      *wal.Tx
	buckets map[keyspace]*wal.Bucket
	history *wal.Bucket // of the day
	hour    *wal.Bucket // of the claim that was written last; nil: ask
	ofHour  uint32
	stamp   stamp
	staged  *staged
	tells   bool // rows that were in the outbox for long
	// The key that was asked for last: what is put or deleted there has a copy.
	id [pointerSize]byte
	// Ordinals of outbox rows, history rows and audits in this commit.
	works, records, audits uint32
}

func newWriter(tx *wal.Tx, secret seal, s stamp, st *staged) (*writer, error) {
	w := &writer{tx: tx, seal: secret, buckets: make(map[keyspace]*wal.Bucket, len(keyspaces)), stamp: s, staged: st}
	return w, w.bucket(bucketMeta).Put(metaCommit, s.row())
}

// bucket is that of a keyspace: most commits need few.
func (w *writer) bucket(name keyspace) *wal.Bucket {
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
		if r.bucket == bucketParked {
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
	was, is := w.bucket(bucketParked).Get(r.key) != nil, r.value != nil
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
func (w *writer) put(b *wal.Bucket, space keyspace, key, place, value []byte, head int) error {
	value, err := w.seal.close(space, place, value, head)
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
	row := w.bucket(bucketSaga).Get(t.key)
	old, body, err := cutHead(row)
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
		return w.bucket(bucketSaga).Put(t.key, append(old.append(nil), body...))
	}
	t.head.Last = last
	if err := w.end(t, old, row); err != nil {
		return err
	}
	t.head.append(t.instance[:0])
	w.staged.count(t.who, old, t.head)
	return w.put(w.bucket(bucketSaga), bucketSaga, t.key, t.key, t.instance, t.head.size())
}

func (w *writer) record(row []byte, previous pointer) (pointer, error) {
	at := pointer{Day: dayOf(w.stamp.time()), Commit: w.stamp.Commit, N: w.records}
	w.records++
	if w.history == nil {
		day, err := w.bucket(bucketHistory).CreateBucketIfNotExists(dayKey(at.Day))
		if err != nil {
			return at, fmt.Errorf("history of a day: %w", err)
		}
		w.history = day
	}
	previous.append(row[:0])
	place := at.append(w.id[:0])
	return at, w.put(w.history, bucketHistory, place[partSize:], place, row, pointerSize)
}

// ulid names the next outbox row: the commit's time, its number, the row's
// ordinal in it. It needs no randomness to be unique, and sorts in commit order
// even where the clock went back.
func (w *writer) ulid() (id ulid.ULID) {
	_ = id.SetTime(w.stamp.Clock & ulid.MaxTime())
	var commit [8]byte
	binary.BigEndian.PutUint64(commit[:], w.stamp.Commit)
	copy(id[6:12], commit[2:])
	binary.BigEndian.PutUint32(id[12:], w.works)
	w.works++
	return id
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
		id := w.ulid()
		w.id = id
		if err := w.put(w.bucket(bucketOutbox), bucketOutbox, w.id[:], w.id[:], work.value, 0); err != nil {
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
	return w.bucket(bucketOutbox).Delete(w.id[:])
}

func (w *writer) remove(id ulid.ULID) error {
	bucket := w.bucket(bucketOutbox)
	w.id = id
	value := bucket.Get(w.id[:])
	if value == nil {
		return nil // delivered before
	}
	if w.late(id) {
		bucket.Tell(w.id[:], value)
	}
	value, err := w.seal.open(bucketOutbox, w.id[:], value, 0)
	if err != nil {
		return err
	}
	by, err := w.staged.index.ownerOf(value)
	if err != nil {
		return err
	}
	w.staged.removed(id, kindOf(value), by)
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
	return w.put(w.hour, bucketClaim, c.key, c.key, c.value, 0)
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
	w.hour, err = w.bucket(bucketClaim).CreateBucketIfNotExists(hourKey(hour))
	return err
}

func (w *writer) letters(e *encoded) error {
	for i := range e.dead {
		if err := w.deadLetter(&e.dead[i]); err != nil {
			return err
		}
	}
	for _, a := range e.audits {
		key := pointer{Commit: w.stamp.Commit, N: w.audits}.key()
		w.audits++
		if err := w.put(w.bucket(bucketAudit), bucketAudit, key, key, a, 0); err != nil {
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
	at := binary.BigEndian.AppendUint64(appendTime(nil, d.time), w.stamp.Clock)
	if err := w.bucket(bucketDeadID).Put(texts(d.id), at); err != nil {
		return err
	}
	value := d.value
	if d.cut != nil && w.staged.letters(d.tenant)+len(value) > w.staged.index.maxDead {
		value = d.cut
	}
	if err := w.staged.queues.letter(value, 1); err != nil {
		return err
	}
	key := deadKey(d.time, d.id)
	return w.put(w.bucket(bucketDead), bucketDead, key, key, value, 0)
}

func (w *writer) resolve(id string) error {
	ids := w.bucket(bucketDeadID)
	key, ok := findDead(w.tx, id)
	if !ok {
		return nil
	}
	was, err := w.seal.open(bucketDead, key, w.bucket(bucketDead).Get(key), 0)
	if err != nil {
		return err
	}
	if err := w.staged.queues.letter(was, -1); err != nil {
		return err
	}
	if err := w.bucket(bucketDead).Delete(key); err != nil {
		return err
	}
	return ids.Delete(texts(id))
}

// stale removes the due rows that a look found stale. It comes before the
// transitions, which may arm the same key for the same time.
func (w *writer) stale(e *encoded) error { return w.dues(e.disarm, nil) }

func (w *writer) armed(e *encoded) error { return w.dues(nil, e.arm) }

func (w *writer) dues(disarm, arm [][]byte) error {
	bucket := w.bucket(bucketDue)
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
			if err := w.bucket(bucketCount).Delete(key.row()); err != nil {
				return err
			}
			continue
		}
		if err := w.bucket(bucketCount).Put(key.row(), binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
			return err
		}
	}
	return nil
}

// oldest notes the first outbox row. None comes before those there were, so that the
// many that were deleted lately are not passed again.
func (w *writer) oldest() {
	k, _ := w.bucket(bucketOutbox).Cursor().Seek(w.staged.index.front[:])
	w.staged.oldest = ulid.ULID{}
	copy(w.staged.oldest[:], k)
	w.staged.front = w.staged.oldest
	if k == nil {
		w.staged.front = w.ulid() // the next one is behind this
	}
}
