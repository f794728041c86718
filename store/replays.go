package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"edda"
	"edda/internal/jsonvalue"
	"edda/store/format"
	"edda/store/wal"
)

// Replay is the plan of one replay and how far it has come. While it is running
// it is gone on with after a restart: the plan says all there is to know.
type Replay struct {
	ID string `json:"id"` // a ULID

	// What is replayed. Without a correlation it is every key of the saga; without
	// a sequence and a time it is all that is recorded.
	Tenant      string    `json:"tenant,omitempty"`
	Saga        string    `json:"saga"`
	Correlation string    `json:"correlation,omitempty"`
	Stream      string    `json:"stream,omitempty"` // of the sequence
	FromSeq     uint64    `json:"from_seq,omitempty"`
	FromTime    time.Time `json:"from_time,omitzero"`
	// Emit is none, new or all.
	Emit string `json:"emit"`
	// Version and Hash are of the manifest to apply; zero keeps each generation's own.
	Version int    `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"`
	By      string `json:"by,omitempty"`
	Reason  string `json:"reason,omitempty"`

	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended,omitzero"`
	// State is running, done or failed; Error says why it failed.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// Summary is what came of it, as its owner writes it.
	Summary json.RawMessage `json:"summary,omitempty"`
}

func (e *encoder) replays(c Change) error {
	for _, r := range c.Replays {
		if err := e.put(format.Replay, format.Texts(r.ID), r); err != nil {
			return err
		}
	}
	for _, id := range c.DropReplays {
		e.out.puts = append(e.out.puts, row{bucket: format.Replay, key: format.Texts(id)})
	}
	return nil
}

// Replays lists the replays that are kept, oldest first.
func (d *DB) Replays() ([]Replay, error) { return list[Replay](d, format.Replay) }

// Keys calls visit with every key of one saga of one tenant that has an instance
// or a history, in order and behind after, until it returns false.
func (v *View) Keys(tenant, saga string, after edda.Key, visit func(edda.Key) bool) error {
	prefix := format.Texts(tenant, saga)
	start := prefix
	if after != (edda.Key{}) {
		start = append(format.InstanceKey(after), 0)
	}
	c := v.bucket(format.Saga).Cursor()
	for k, _ := c.Seek(start); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		key, _, err := format.CutKey(k)
		if err != nil {
			return fmt.Errorf("instance: %w", err)
		}
		if !visit(key) {
			return nil
		}
	}
	return nil
}

// Known tells whether anything is recorded of a key, and the version of its
// instance, 0 where it has none.
func (v *View) Known(k edda.Key) (version int, known bool, err error) {
	row := v.bucket(format.Saga).Get(format.InstanceKey(k))
	h, _, err := format.CutHead(row)
	if err != nil {
		return 0, false, fmt.Errorf("instance %s: %w", k, err)
	}
	return h.Version, row != nil, nil
}

// HistoryDropped tells whether any history was removed: then a key of which
// nothing is recorded may be one that was forgotten.
func (v *View) HistoryDropped() bool { return droppedHistory(v.tx) != (format.Pointer{}) }

// HistorySize counts the rows of one key without decoding them; whole is false
// where older days were dropped.
func (v *View) HistorySize(k edda.Key) (n int, whole bool, err error) {
	whole, err = v.chain(k, func(format.Pointer, []byte) error {
		n++
		return nil
	})
	return n, whole, err
}

// History is everything that is recorded of one key, oldest first, at most limit
// rows; more are an error. Whole is false where older days were dropped.
func (v *View) History(k edda.Key, limit int) (rows []Record, whole bool, err error) {
	whole, err = v.chain(k, func(at format.Pointer, row []byte) error {
		if len(rows) >= limit {
			return edda.Classify(edda.Permanent, "%s has more than %d rows of history", k, limit)
		}
		row, err := v.seal.Record(at, row)
		if err != nil {
			return err
		}
		r, _, err := format.CutRecord(at, row)
		rows = append(rows, Record(r))
		return err
	})
	slices.Reverse(rows)
	return rows, whole, err
}

// chain follows the pointers of one key's history back, newest row first.
func (v *View) chain(k edda.Key, visit func(format.Pointer, []byte) error) (whole bool, err error) {
	h, _, err := format.CutHead(v.bucket(format.Saga).Get(format.InstanceKey(k)))
	if err != nil {
		return false, fmt.Errorf("instance %s: %w", k, err)
	}
	days := map[uint32]*wal.Bucket{}
	for at := h.Last; at != (format.Pointer{}); {
		row := v.historyRow(days, at)
		if row == nil {
			return false, nil
		}
		if len(row) < format.PointerSize {
			return false, fmt.Errorf("history of %s: %w", k, format.ErrRow)
		}
		if err := visit(at, row); err != nil {
			return false, fmt.Errorf("history of %s: %w", k, err)
		}
		at = format.CutPointer(row)
	}
	return true, nil
}

// historyRow is nil when its day was dropped; days keeps the buckets at hand.
func (v *View) historyRow(days map[uint32]*wal.Bucket, at format.Pointer) []byte {
	day, ok := days[at.Day]
	if !ok {
		day = v.bucket(format.History).Bucket(format.DayKey(at.Day))
		days[at.Day] = day
	}
	if day == nil {
		return nil
	}
	return day.Get(at.Key())
}

// CellBytes is a cell as the store writes it: two cells are the same when these are.
func CellBytes(c edda.Cell) ([]byte, error) {
	if len(c.Parked) == 0 {
		c.Parked = nil
	}
	if len(c.Held) == 0 {
		c.Held = nil
	}
	return jsonvalue.Marshal(&c)
}
