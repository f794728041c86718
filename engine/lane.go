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

// lane evaluates the jobs of some of the keys, in their order. It reads the
// overlay and what is kept, which do not change meanwhile, and opens its snapshot at
// the first key that is in neither: always after the overlay was settled.
type lane struct {
	sagas   Sagas
	over    overlay
	kept    *instanceCache
	open    func() (*store.View, error)
	horizon time.Time
	lived   time.Time // until then nothing that was due was missed
	now     time.Time
	patient bool      // an event may wait for what is due before it
	lagging lagging   // what is due in the keys of these waits for their events
	first   time.Time // what one waits for; the batch is evaluated again
	jobs    []job
	room    []edda.Transition // one for each job, until the batch is cut
	// cells are as this batch leaves them; only those that changed.
	cells map[edda.Key]edda.Cell
	grown int // the most jobs since the map was made
	view  *store.View
}

func (l *lane) run() error {
	defer l.close()
	if len(l.room) < len(l.jobs) {
		l.room = make([]edda.Transition, ample(len(l.jobs)))
	}
	for i, j := range l.jobs {
		if err := l.do(j, l.room[i:i:i+1]); err != nil || !l.first.IsZero() {
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

// rest lets go of the batch. What it took is for the next one, unless that was more than
// one batch should need.
func (l *lane) rest() {
	n := len(l.jobs)
	clear(l.jobs)
	clear(l.room[:min(n, len(l.room))])
	if l.grown = max(l.grown, n); l.grown > muchRoom*n {
		l.cells, l.grown = map[edda.Key]edda.Cell{}, n // to clear it takes as long as it is large
	}
	clear(l.cells)
	if *l = (lane{cells: l.cells, grown: l.grown, jobs: l.jobs[:0], room: l.room}); cap(l.jobs) > maxBatch {
		*l = lane{cells: map[edda.Key]edda.Cell{}}
	}
}

// muchRoom is how many times as many cells as a batch has its map may have had.
const muchRoom = 16

func (l *lane) do(j job, room []edda.Transition) error {
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
	j.it.results[j.target] = changed
	if len(changed) > 0 {
		l.cells[target.Key] = next
	}
	return nil
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
// committed, else what is kept of the store or the store's.
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
		view, err := l.open()
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
