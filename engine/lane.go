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

// lane evaluates the jobs of its keys in order, and encodes what they changed. It reads the
// overlay and the instance cache, which do not change while lanes run. It opens its snapshot
// at the first key that is in neither, which is always after the overlay was complete.
type lane struct {
	*batch
	waitFor time.Time // due time of a timer that an event must wait for; it voids the batch
	jobs    []job
	cells   map[edda.Key]edda.Cell // as this batch leaves them; only changed ones
	view    *store.View
	encoder *store.Encoder
	encoded []store.Encoded // rows of all jobs so far
}

func (l *lane) run() error {
	defer func() {
		if l.view != nil {
			l.view.Close()
		}
	}()
	room := make([]edda.Transition, len(l.jobs)) // most jobs make one transition
	l.encoded = make([]store.Encoded, 0, 2*len(l.jobs))
	l.cells = make(map[edda.Key]edda.Cell, len(l.jobs))
	for i, j := range l.jobs {
		if err := l.do(j, room[i:i:i+1]); err != nil || !l.waitFor.IsZero() {
			return err
		}
	}
	return nil
}

func (l *lane) do(j job, room []edda.Transition) error {
	if h := j.it.handed; h != nil && j.target == 0 {
		l.encoded = append(l.encoded, l.encoder.Result(&h.claim, &h.echo))
		j.it.result = l.last(1)
	}
	target := j.it.targets[j.target]
	if target.Dead != nil {
		return nil // a dead letter has no cell
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

// last is the slice of the last n rows.
func (l *lane) last(n int) []store.Encoded {
	end := len(l.encoded)
	return l.encoded[end-n : end : end]
}

// firesUpTo is the time up to which timers fire together with a due row. Timers that came
// due while the process of a restored store was alive fire one by one, as they did then.
func (l *lane) firesUpTo(due time.Time) time.Time {
	if due.After(l.livedUntil) {
		return l.watermark
	}
	return due
}

// cell is the newest version of the key's cell: from this batch, the overlay, the instance
// cache or the store.
func (l *lane) cell(k edda.Key) (edda.Cell, error) {
	if c, ok := l.cells[k]; ok {
		return c, nil
	}
	if c, ok := l.overlay[k]; ok {
		return c.cell, nil
	}
	if c, ok := l.cache.get(k); ok {
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

// decide asks the saga what the item does to the cell. A panic becomes a dead letter.
func (l *lane) decide(cell edda.Cell, target saga.Target, it *item) (next edda.Cell, changed []edda.Transition) {
	defer func() {
		if cause := recover(); cause != nil {
			next, changed = poisoned(cell, target.Key, it, cause)
		}
	}()
	switch {
	case it.isExchange() && it.spoiled != nil:
		it.due.exchange.failed = it.spoiled
		return edda.Cell{}, nil
	case it.isExchange():
		return it.due.exchange.decide(cell)
	case it.isRow():
		return l.sagas.Wake(cell, it.due.time, l.laggards.within(it.due.row.Key, l.firesUpTo(it.due.time)))
	case it.past:
		return l.decidePast(cell, target, it)
	case it.due == nil:
		return l.decideLive(cell, target, it)
	}
	return l.sagas.Apply(cell, target, it.event)
}

// Apply applies one event to a cell as the engine does: a panic becomes a dead letter that
// holds the key.
func Apply(s Sagas, cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	l := lane{batch: &batch{sagas: s}}
	return l.decide(cell, t, &item{event: ev})
}
