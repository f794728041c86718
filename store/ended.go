package store

import (
	"time"

	"edda"
)

// The index of ends finds finished instances that are old enough to go: by saga
// and status, since retention is set for these, and then by the time of the
// commit that finished them. That time is the store's own: an event's can be as
// old as the stream it was replayed from.

func endedKey(status edda.Status, clock uint64, k edda.Key) []byte {
	b := appendTime(texts(k.Saga, string(status)), stamp{Clock: clock}.time())
	return appendKey(b, k)
}

// ended is one row of the index.
type ended struct {
	Saga   string
	Status edda.Status
	Time   time.Time
	Key    edda.Key
}

func cutEnded(b []byte) (e ended, err error) {
	var status string
	if e.Saga, b, err = cutText(b); err != nil {
		return e, err
	}
	if status, b, err = cutText(b); err != nil {
		return e, err
	}
	e.Status = edda.Status(status)
	if e.Time, b, err = cutTime(b); err != nil {
		return e, err
	}
	if e.Key, b, err = cutKey(b); err == nil && len(b) > 0 {
		err = errKey
	}
	return e, err
}

// end moves the index of ends along with an instance, and gives an instance
// that is put back after it was removed its row in due back: whoever decided
// that had read it before.
func (w *writer) end(t *encodedTransition, old head, row []byte) error {
	if old.Status == "" {
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
	return w.moveEnd(t.who, old, t.head)
}

// sameEnd tells whether a finished instance changed, and not one that was
// started again and ended at once.
func (w *writer) sameEnd(old head, t *encodedTransition, row []byte) (bool, error) {
	if old.Status != t.head.Status {
		return false, nil
	}
	row, err := w.seal.instance(t.key, row)
	if err != nil {
		return false, err
	}
	_, body, err := cutHead(row)
	if err != nil {
		return false, err
	}
	before, err := decode[instancePart]("instance "+t.who.String(), body)
	return before.Generation == t.generation, err
}

func (w *writer) moveEnd(k edda.Key, old, now head) error {
	if old.Ended == now.Ended && old.Status == now.Status {
		return nil
	}
	if old.Ended != 0 {
		if err := w.bucket(bucketEnded).Delete(endedKey(old.Status, old.Ended, k)); err != nil {
			return err
		}
	}
	if now.Ended == 0 {
		return nil
	}
	return w.bucket(bucketEnded).Put(endedKey(now.Status, now.Ended, k), []byte{})
}
