package outbox

import (
	"slices"

	"github.com/oklog/ulid/v2"

	"edda"
)

// chain is the held rows of one instance in commit order. Every item points to its chain, so the
// relay looks an instance up once a row.
type chain struct {
	items []*item
	first [2]*item // initial storage, because most instances have no more rows
}

// add inserts a row in commit order. That is at the end, except in a route that catches up.
func (c *chain) add(it *item) {
	i, _ := slices.BinarySearchFunc(c.items, it.row.ID, byID)
	c.items = slices.Insert(c.items, i, it)
}

// drop removes a row and reports whether the chain had it.
func (c *chain) drop(id ulid.ULID) bool {
	i, found := slices.BinarySearchFunc(c.items, id, byID)
	if found {
		c.items = slices.Delete(c.items, i, i+1)
	}
	return found
}

// holds reports whether the chain has the row. A nil chain has none.
func (c *chain) holds(id ulid.ULID) bool {
	if c == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(c.items, id, byID)
	return found
}

// chainOf returns the chain of an instance, and creates it for the first row.
func (r *Relay) chainOf(k edda.Key) *chain {
	c := r.chains[k]
	if c != nil {
		return c
	}
	c = new(chain)
	c.items = c.first[:0]
	r.chains[k] = c
	return c
}

// unchain removes a row from its chain, and removes the chain with its last row.
func (r *Relay) unchain(it *item) {
	if !it.chain.drop(it.row.ID) || len(it.chain.items) > 0 {
		return
	}
	delete(r.chains, it.row.Work.From)
}

func byID(it *item, id ulid.ULID) int { return it.row.ID.Compare(id) }

// release queues the waiting rows that no other row blocks.
func (c *chain) release() {
	for i, it := range c.items {
		if it.state == waiting && !c.blocked(i) {
			it.route.push(it)
		}
	}
}

// blocked reports whether another row of the instance must go before row i:
//
//   - An earlier row for the same destination always does.
//   - An earlier row for another destination does while that destination answers.
//   - The echo of a result goes before all work that follows from the result, also while its
//     destination is down, because a store restored from a backup knows the result only by its echo.
//   - A later row for the same destination does when it is queued or in flight. An effect that
//     is published again is earlier than such rows.
func (c *chain) blocked(i int) bool {
	for _, earlier := range c.items[:i] {
		if earlier.route == c.items[i].route || earlier.row.Work.Kind == edda.WorkResult || (earlier.fails == 0 && !earlier.route.down) {
			return true
		}
	}
	return slices.ContainsFunc(c.items[i+1:], func(later *item) bool {
		return later.route == c.items[i].route && (later.state == ready || later.state == sending)
	})
}
