package outbox

import (
	"slices"

	"github.com/oklog/ulid/v2"

	"edda"
)

// chain is the held rows of one instance, in commit order. Each of them has it at hand:
// its instance is looked up once for each row.
type chain struct {
	items []*item
	first [2]*item // room for them: mostly there are no more
}

// keptChain is how many rows an empty chain has room for, at most, that is kept for
// another instance.
const keptChain = 16

// add puts a row in its place, which is the end but for a lane that catches up.
func (c *chain) add(it *item) {
	i, _ := slices.BinarySearchFunc(c.items, it.row.ID, byID)
	c.items = slices.Insert(c.items, i, it)
}

// drop tells whether it had the row.
func (c *chain) drop(id ulid.ULID) bool {
	i, found := slices.BinarySearchFunc(c.items, id, byID)
	if found {
		c.items = slices.Delete(c.items, i, i+1)
	}
	return found
}

// holds is false of no chain, too.
func (c *chain) holds(id ulid.ULID) bool {
	if c == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(c.items, id, byID)
	return found
}

// chain is that of an instance, of which a row comes.
func (r *Relay) chain(k edda.Key) *chain {
	c := r.chains[k]
	if c != nil {
		return c
	}
	if n := len(r.empty); n > 0 {
		c, r.empty = r.empty[n-1], r.empty[:n-1]
	} else {
		c = new(chain)
		c.items = c.first[:0]
	}
	r.chains[k] = c
	return c
}

// unchain takes a row out of its chain, which goes with its last one.
func (r *Relay) unchain(it *item) {
	if !it.chain.drop(it.row.ID) || len(it.chain.items) > 0 {
		return
	}
	delete(r.chains, it.row.Work.From)
	if len(r.empty) < maxSpare && cap(it.chain.items) <= keptChain {
		r.empty = append(r.empty, it.chain)
	}
}

func byID(it *item, id ulid.ULID) int { return it.row.ID.Compare(id) }

// release queues the rows that no earlier one holds back.
func (c *chain) release() {
	for i, it := range c.items {
		if it.state == waiting && !c.blocked(i) {
			it.lane.push(it)
		}
	}
}

// blocked tells whether another row must go first: always an earlier one for
// the same destination, one for another only while that destination answers; but
// the copy of a result goes before all that the result set off, however long that
// waits. Whoever restores the store from a backup finds the result by its copy alone.
// An effect that is published again is earlier than rows that may be on their
// way already; then it waits for them.
func (c *chain) blocked(i int) bool {
	for _, earlier := range c.items[:i] {
		if earlier.lane == c.items[i].lane || earlier.row.Work.Kind == edda.WorkResult || (earlier.fails == 0 && !earlier.lane.down) {
			return true
		}
	}
	return slices.ContainsFunc(c.items[i+1:], func(later *item) bool {
		return later.lane == c.items[i].lane && (later.state == ready || later.state == sending)
	})
}
