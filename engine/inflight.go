package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"edda"
	"edda/store"
)

// pipelineDepth is how many batches may be in flight: one that commits, and one evaluated
// meanwhile. A third would only wait longer.
const pipelineDepth = 2

// inFlight is what the loop has submitted and the store has not yet made durable.
type inFlight struct {
	sets      []*set           // without an answer, in order of submission
	batches   int              // whose last set has no answer
	lastSet   uint64           // number of the newest set
	overlay   overlay          // cells as the sets leave them
	encoders  []*store.Encoder // for the next batch: no batch in flight uses them
	submitter submitter        // nil before the first set and after a failure
	refused   error            // why the submitter accepts no more sets
	answers   *answers
}

func newInFlight() inFlight {
	return inFlight{overlay: overlay{}, answers: &answers{ready: make(chan struct{}, 1)}}
}

// free takes back encoders whose rows are committed or discarded.
func (f *inFlight) free(all []*store.Encoder) {
	for _, e := range all {
		e.Reset()
	}
	f.encoders = append(f.encoders, all...)
}

// submit puts the cells of the batch into the overlay and submits its sets to the store.
// A batch of nil changed no cell. The sets build on those before them: when one fails, all
// later ones fail, until the loop starts over. The store answers each set, also when it
// stops, so a submission has no context: the loop must know whether a set became durable.
func (v *loop) submit(sets []*set, b *batch) {
	f := &v.inFlight
	for _, s := range sets {
		f.lastSet = s.n
		for _, t := range s.transitions() {
			f.overlay[t.Key] = overlaid{b.cell(t.Key), s.n}
			v.cache.remove(t.Key)
		}
		for _, c := range s.change.Checkpoints {
			v.positions.applied[c.Stream] = c
		}
		for _, p := range s.change.Positions {
			if l := v.catchUp.laggards[SagaTenant{p.Tenant, p.Saga}]; l != nil {
				l.applied[p.Stream] = p.Checkpoint
			}
		}
	}
	if len(sets) == 1 && sets[0].onlyMoves() && !slices.ContainsFunc(f.sets, func(s *set) bool { return s.deferred }) {
		sets[0].deferred, sets[0].last = true, false // it takes no place in the pipeline
	} else {
		f.batches++
	}
	f.sets = append(f.sets, sets...)
	v.showInFlight()
	for _, s := range sets {
		if f.refused != nil {
			f.answers.add(answer{set: s, err: f.refused, behind: true})
			continue
		}
		if f.submitter == nil {
			f.submitter = v.db.submitter()
		}
		s.submitted = time.Now()
		f.refused = f.submitter.SubmitWithin(context.Background(), s.change, s.within(), func(err error) { f.answers.add(answer{set: s, err: err}) })
		// gofail: var engineSubmitted struct{}
		if f.refused != nil {
			f.answers.add(answer{set: s, err: f.refused})
		}
	}
}

// showInFlight shows in the metrics and the status how many inputs are in flight.
func (v *loop) showInFlight() {
	n := 0
	for _, s := range v.inFlight.sets {
		s.ended(func(*item) { n++ })
	}
	v.metrics.inFlight.Set(float64(n))
	v.status.setInFlight(n)
}

// takeAnswers handles the store's answers, in the order of the sets.
func (v *loop) takeAnswers() {
	f := &v.inFlight
	for _, a := range f.answers.take() {
		f.sets = slices.DeleteFunc(f.sets, func(s *set) bool { return s == a.set })
		if a.set.last {
			f.batches--
		}
		if a.err != nil {
			v.notCommitted(a)
			continue
		}
		v.metrics.commit.Observe(time.Since(a.set.submitted).Seconds())
		v.committed(a.set)
	}
	v.showInFlight()
	v.startOver()
}

// committed follows the commit of a set: it moves the durable positions, drops the set's
// cells from the overlay, and announces what the set changed.
func (v *loop) committed(s *set) {
	for _, c := range s.change.Checkpoints {
		v.positions.durable[c.Stream] = c
	}
	v.inFlight.overlay.release(s, v.cache)
	v.status.setPositions(s.change.Checkpoints)
	if len(s.change.Positions)+len(s.change.DropPositions) > 0 {
		v.committedBehind(s)
	}
	// gofail: var engineCommitted struct{}
	v.announce(s)
	v.inFlight.free(s.encoders)
	v.recovered()
}

// answers are the store's answers to change sets, until the loop takes them. There are no
// more than sets in flight.
type answers struct {
	ready chan struct{} // capacity 1

	mu  sync.Mutex // guards all
	all []answer
}

// answer is the store's answer to one set.
type answer struct {
	set    *set
	err    error
	behind bool // not tried, because a set before it failed
}

// add never blocks, because the store's committer calls it.
func (a *answers) add(one answer) {
	a.mu.Lock()
	a.all = append(a.all, one)
	a.mu.Unlock()
	signal(a.ready)
}

func (a *answers) take() []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// overlay holds the cells that are evaluated and not yet durable. Only the loop changes
// it, and never while lanes run.
type overlay map[edda.Key]overlaid

// overlaid is a cell, and the number of the last set that writes it.
type overlaid struct {
	cell edda.Cell
	set  uint64
}

// release drops the cells that the set wrote last, because the store has them now. A cell
// goes to the cache if it still has the very instance that the set wrote.
func (o overlay) release(s *set, to *instanceCache) {
	for _, t := range s.transitions() {
		if c, ok := o[t.Key]; ok && c.set <= s.n && t.Instance != nil && t.Instance == c.cell.Instance {
			to.put(t.Key, c.cell)
		}
	}
	for _, t := range s.transitions() {
		if c, ok := o[t.Key]; ok && c.set <= s.n {
			delete(o, t.Key)
		}
	}
}
