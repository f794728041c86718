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
)

// Replay is the plan of a replay and its progress. After a restart a running replay goes on from it.
type Replay struct {
	ID string `json:"id"` // a ULID

	// What is replayed. Without a correlation: every key of the saga. Without a sequence and a time:
	// all that is recorded.
	Tenant      string    `json:"tenant,omitempty"`
	Saga        string    `json:"saga"`
	Correlation string    `json:"correlation,omitempty"`
	Stream      string    `json:"stream,omitempty"` // of the sequence
	FromSeq     uint64    `json:"from_seq,omitempty"`
	FromTime    time.Time `json:"from_time,omitzero"`
	// Emit is none, new or all.
	Emit string `json:"emit"`
	// Version and Hash are those of the manifest to apply; zero: that of each generation.
	Version int    `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"`
	By      string `json:"by,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Shards is the number of shards that a replay of a whole cluster is begun in: this one is a part of it.
	Shards int `json:"shards,omitempty"`

	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended,omitzero"`
	// State is running, done or failed; Error says why it failed.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// Summary is the outcome, in the form of its owner.
	Summary json.RawMessage `json:"summary,omitempty"`
}

// Replays lists the replays that are kept, oldest first.
func (d *DB) Replays() ([]Replay, error) { return list[Replay](d, format.Replay) }

// Keys calls visit with each key of a saga of a tenant that has an instance or a history, in order
// and after a key, until visit returns false.
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

// Known reports whether a key has an instance or a history, and the version of the instance; 0
// without one.
func (v *View) Known(k edda.Key) (version int, known bool, err error) {
	row := v.bucket(format.Saga).Get(format.InstanceKey(k))
	h, _, err := format.CutHead(row)
	if err != nil {
		return 0, false, fmt.Errorf("instance %s: %w", k, err)
	}
	return h.Version, row != nil, nil
}

// HistoryDropped reports whether any history was removed. Then an unknown key may have had one.
func (v *View) HistoryDropped() bool { return droppedHistory(v.tx) != (format.Pointer{}) }

// HistorySize counts the history of a key without decoding it. It is not whole where older history
// was removed.
func (v *View) HistorySize(k edda.Key) (n int, whole bool, err error) {
	whole, err = v.chain(k, func(format.Pointer, []byte) error {
		n++
		return nil
	})
	return n, whole, err
}

// History is the history of a key, oldest first. More than limit rows are an error. It is not whole
// where older history was removed.
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

// chain visits the history of a key, newest row first.
func (v *View) chain(k edda.Key, visit func(format.Pointer, []byte) error) (whole bool, err error) {
	h, _, err := format.CutHead(v.bucket(format.Saga).Get(format.InstanceKey(k)))
	if err != nil {
		return false, fmt.Errorf("instance %s: %w", k, err)
	}
	for at := h.Last; at != (format.Pointer{}); {
		row := historyRow(v.tx, at)
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

// CellBytes encodes a cell as the store does. Equal cells have equal bytes.
func CellBytes(c edda.Cell) ([]byte, error) {
	if len(c.Parked) == 0 {
		c.Parked = nil
	}
	if len(c.Held) == 0 {
		c.Held = nil
	}
	return jsonvalue.Marshal(&c)
}
