package engine

import (
	"fmt"
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// job is one item for one of its targets.
type job struct {
	it     *item
	target int
}

// lane evaluates the jobs of some of the keys, in their order, and encodes what they
// changed. It reads the overlay and the instance cache, which do not change meanwhile, and
// opens its snapshot at the first key that is in neither: always after the overlay was settled.
type lane struct {
	*batch
	first time.Time // the timer that an event has to wait for; then the batch is evaluated again
	jobs  []job
	// cells are as this batch leaves them; only those that changed.
	cells   map[edda.Key]edda.Cell
	view    *store.View
	encoder *store.Encoder
	encoded []store.Encoded // of all jobs so far, each of which has a part of it
}

func (l *lane) run() error {
	defer l.close()
	room := make([]edda.Transition, len(l.jobs)) // most jobs make one transition
	l.encoded = make([]store.Encoded, 0, 2*len(l.jobs))
	l.cells = make(map[edda.Key]edda.Cell, len(l.jobs))
	for i, j := range l.jobs {
		if err := l.do(j, room[i:i:i+1]); err != nil || !l.first.IsZero() {
			return err
		}
	}
	return nil
}

func (l *lane) close() {
	if l.view != nil {
		l.view.Close()
	}
}

func (l *lane) do(j job, room []edda.Transition) error {
	if h := j.it.handed; h != nil && j.target == 0 {
		l.encoded = append(l.encoded, l.encoder.Result(&h.claim, &h.echo))
		j.it.result = l.last(1)
	}
	target := j.it.targets[j.target]
	if target.Dead != nil {
		return nil // goes nowhere: no cell to load
	}
	target.Room = room
	cell, err := l.cell(target.Key)
	if err != nil {
		return fmt.Errorf("load %s: %w", target.Key, err)
	}
	next, changed := l.decide(cell, target, j.it)
	if len(changed) == 0 {
		return nil
	}
	l.cells[target.Key] = next
	for i := range changed {
		l.encoded = append(l.encoded, l.encoder.Transition(&changed[i]))
	}
	j.it.results[j.target], j.it.encoded[j.target] = changed, l.last(len(changed))
	return nil
}

// last is the part of the last n rows.
func (l *lane) last(n int) []store.Encoded {
	end := len(l.encoded)
	return l.encoded[end-n : end : end]
}

// horizonAt is how far time has come for what is due. What came due while the process
// of a restored store worked was not missed: it fires alone, as it did.
func (l *lane) horizonAt(due time.Time) time.Time {
	if due.After(l.lived) {
		return l.horizon
	}
	return due
}

// cell is the newest record of the key: of this batch, of those not yet
// committed, else that of the instance cache or the store's.
func (l *lane) cell(k edda.Key) (edda.Cell, error) {
	if c, ok := l.cells[k]; ok {
		return c, nil
	}
	if c, ok := l.over[k]; ok {
		return c.cell, nil
	}
	if c, ok := l.kept.find(k); ok {
		return c, nil
	}
	if l.view == nil {
		view, err := l.db.View()
		if err != nil {
			return edda.Cell{}, err
		}
		l.view = view
	}
	return l.view.Cell(k)
}

// decide asks the saga. What panics becomes a dead letter.
func (l *lane) decide(cell edda.Cell, target saga.Target, it *item) (next edda.Cell, changed []edda.Transition) {
	defer func() {
		if cause := recover(); cause != nil {
			next, changed = poisoned(cell, target.Key, it, cause)
		}
	}()
	switch {
	case it.isExchange() && it.spoiled != nil:
		return it.due.exchange.spoilt(it.spoiled)
	case it.isExchange():
		return it.due.exchange.decide(cell)
	case it.isRow():
		return l.sagas.Wake(cell, it.due.time, l.lagging.within(it.due.row.Key, l.horizonAt(it.due.time)))
	case it.past:
		return l.decidePast(cell, target, it)
	case it.due == nil:
		return l.decideLive(cell, target, it)
	}
	return l.sagas.Apply(cell, target, it.event)
}
