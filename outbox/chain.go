package outbox

import (
	"slices"

	"github.com/oklog/ulid/v2"

	"edda"
)

// chain is the held rows of one instance, in commit order.
type chain []*item

// add puts a row in its place, which is the end but for a lane that catches up.
func (c chain) add(it *item) chain {
	i, _ := slices.BinarySearchFunc(c, it.row.ID, byID)
	return slices.Insert(c, i, it)
}

func (c chain) drop(id ulid.ULID) chain {
	if i, found := slices.BinarySearchFunc(c, id, byID); found {
		return slices.Delete(c, i, i+1)
	}
	return c
}

func (c chain) holds(id ulid.ULID) bool {
	_, found := slices.BinarySearchFunc(c, id, byID)
	return found
}

func byID(it *item, id ulid.ULID) int { return it.row.ID.Compare(id) }

// release queues the rows that no earlier one holds back.
func (c chain) release() {
	for i, it := range c {
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
func (c chain) blocked(i int) bool {
	for _, earlier := range c[:i] {
		if earlier.lane == c[i].lane || earlier.row.Work.Kind == edda.WorkResult || (earlier.fails == 0 && !earlier.lane.down) {
			return true
		}
	}
	return slices.ContainsFunc(c[i+1:], func(later *item) bool {
		return later.lane == c[i].lane && (later.state == ready || later.state == sending)
	})
}
