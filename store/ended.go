package store

import (
	"edda"
	"edda/store/format"
)

// The index of ends finds finished instances that are old enough to go: by saga
// and status, since retention is set for these, and then by the time of the
// commit that finished them. That time is the store's own: an event's can be as
// old as the stream it was replayed from.

// end moves the index of ends along with an instance, and gives an instance
// that is put back after it was removed its row in due back: whoever decided
// that had read it before.
func (w *writer) end(t *encodedTransition, old format.Head, row []byte) error {
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
