package store

import (
	"bytes"
	"encoding/json"
	"fmt"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Query selects instances. Empty fields select all.
type Query struct {
	Tenant, Saga string
	Status       edda.Status
	After        edda.Key // exclusive; the zero key starts
	Limit        int      // 100 when zero, at most 1000
}

const (
	defaultLimit = 100
	maxLimit     = 1000 // of decoded instances in one answer
)

func (q Query) limit() int {
	if q.Limit <= 0 {
		return defaultLimit
	}
	return min(q.Limit, maxLimit)
}

// start is the first key that may match.
func (q Query) start() []byte {
	var first, next []byte
	if q.Tenant != "" {
		first = format.Texts(q.Tenant)
		if q.Saga != "" {
			first = format.Texts(q.Tenant, q.Saga)
		}
	}
	if q.After != (edda.Key{}) {
		next = append(format.InstanceKey(q.After), 0)
	}
	if bytes.Compare(next, first) > 0 {
		return next
	}
	return first
}

// skip is the next key that may match after one that does not; done says that there is none.
func (q Query) skip(k edda.Key) (to []byte, done bool) {
	switch {
	case q.Tenant != "" && k.Tenant != q.Tenant:
		return nil, true
	case q.Saga == "" || k.Saga == q.Saga:
		return nil, false
	case k.Saga < q.Saga:
		return format.Texts(k.Tenant, q.Saga), false
	default:
		return format.PrefixEnd(format.Texts(k.Tenant)), q.Tenant != ""
	}
}

// Instances lists instances in key order, up to the limit, and fewer if they are large: the next
// query shows whether there are more. It seeks to a tenant and a saga. For a status it reads the
// heads of all instances.
func (d *DB) Instances(q Query) (out []edda.Instance, err error) {
	err = d.read(format.Saga, func(b *wal.Bucket) error {
		c, size := b.Cursor(), 0
		for k, row := c.Seek(q.start()); k != nil && len(out) < q.limit() && size < maxRead; {
			key, _, err := format.CutKey(k)
			if err != nil {
				return fmt.Errorf("instance: %w", err)
			}
			to, done := q.skip(key)
			if done {
				return nil
			}
			if to != nil {
				k, row = c.Seek(to)
				continue
			}
			n := len(out)
			if out, err = q.take(d.seal, out, key, row); err != nil {
				return err
			}
			size += (len(out) - n) * len(row)
			k, row = c.Next()
		}
		return nil
	})
	return out, err
}

func (q Query) take(s format.Seal, out []edda.Instance, key edda.Key, row []byte) ([]edda.Instance, error) {
	h, _, err := format.CutHead(row)
	if err != nil {
		return out, fmt.Errorf("instance %s: %w", key, err)
	}
	if h.Status == "" || q.Status != "" && q.Status != h.Status {
		return out, nil
	}
	if row, err = s.Instance(format.InstanceKey(key), row); err != nil {
		return out, fmt.Errorf("instance %s: %w", key, err)
	}
	in, err := format.CutInstance(key, row)
	if err != nil {
		return out, err
	}
	return append(out, *in), nil
}

// Record is a row of the history: one transition of an instance.
type Record struct {
	Key    edda.Key `json:"key"`
	Commit uint64   `json:"commit"`
	N      int      `json:"n"`
	// Generation, Version, Revision, Status and State are those of the instance after the transition.
	// They are zero if the transition did not change it.
	Generation int             `json:"generation"`
	Version    int             `json:"version"`
	Revision   uint64          `json:"revision"`
	Event      edda.Event      `json:"event"`
	Fate       edda.Fate       `json:"fate"`
	Handlers   []string        `json:"handlers,omitempty"`
	Outputs    []edda.Output   `json:"outputs,omitempty"`
	Status     edda.Status     `json:"status,omitempty"`
	Work       []string        `json:"work,omitempty"` // ids of what went out
	State      json.RawMessage `json:"state,omitempty"`
}

// History lists the transitions of a key, newest first: at most limit, and fewer if they are large.
// It ends where older history was removed.
func (d *DB) History(k edda.Key, limit int) ([]Record, error) {
	out, _, err := d.HistoryFrom(k, "", limit)
	return out, err
}

// HistoryFrom is [DB.History] from a place, the next of an earlier call; an empty place begins with
// the newest row. The next place is empty at the end. A place that is not in the key's history is
// a Permanent error.
func (d *DB) HistoryFrom(k edda.Key, place string, limit int) (out []Record, next string, err error) {
	err = d.view(func(tx *wal.Tx) error {
		at, err := begin(tx, k, place)
		if err != nil {
			return err
		}
		for size := 0; at != (format.Pointer{}); {
			row := historyRow(tx, at)
			if row == nil {
				return nil
			}
			if len(out) >= limit || size >= maxRead {
				next = at.Place()
				return nil
			}
			if row, err = d.seal.Record(at, row); err != nil {
				return fmt.Errorf("history of %s: %w", k, err)
			}
			r, previous, err := format.CutRecord(at, row)
			if err != nil {
				return fmt.Errorf("history of %s: %w", k, err)
			}
			if r.Key != k {
				return edda.Classify(edda.Permanent, "the place %q is not in the history of %s", place, k)
			}
			out, size, at = append(out, Record(r)), size+len(row), previous
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return out, next, nil
}

// begin is the row to begin with.
func begin(tx *wal.Tx, k edda.Key, place string) (format.Pointer, error) {
	if place != "" {
		return format.CutPlace(place)
	}
	h, _, err := format.CutHead(tx.Bucket([]byte(format.Saga)).Get(format.InstanceKey(k)))
	if err != nil {
		return format.Pointer{}, fmt.Errorf("instance %s: %w", k, err)
	}
	return h.Last, nil
}

// historyRow is nil if the row was removed.
func historyRow(tx *wal.Tx, at format.Pointer) []byte {
	day := tx.Bucket([]byte(format.History)).Bucket(format.DayKey(at.Day))
	if day == nil {
		return nil
	}
	return day.Get(at.Key())
}
