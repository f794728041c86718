package store

import (
	"time"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// Beginning is where a saga began to read the streams.
type Beginning struct {
	Saga string `json:"saga"`
	// From is "now" or "all", or empty where it had begun before this was noted.
	From string    `json:"from,omitempty"`
	Time time.Time `json:"time"`
	// At are the positions that it began behind, where it was caught up.
	At []edda.Checkpoint `json:"at,omitempty"`
}

// Begun lists the sagas that have begun; known is false where the store does not say.
func (d *DB) Begun() (list []Beginning, known bool, err error) {
	err = d.view(func(tx *wal.Tx) error {
		row := tx.Bucket([]byte(format.Meta)).Get(format.MetaBegun)
		if row == nil {
			return nil
		}
		known = true
		list, err = format.Decode[[]Beginning]("the sagas that have begun", row)
		return err
	})
	return list, known, err
}

func (e *encoder) begun(c Change) error {
	if c.Begun == nil {
		return nil
	}
	list := *c.Begun
	if list == nil {
		list = []Beginning{}
	}
	return e.put(format.Meta, format.MetaBegun, list)
}
