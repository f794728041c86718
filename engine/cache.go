package engine

import "edda"

const (
	// maxKept bounds the instances that are kept beside the store, in bytes as JSON
	// would have them: those of over a thousand orders under way.
	maxKept = 4 << 20
	// keptMost is the most that one of them takes: a few large ones are not worth the
	// many small ones that they would push out.
	keptMost = 64 << 10
	// maxMemos bounds the memos among them, which are kept apart: a flow of a thousand
	// jobs has some 400 KiB, and is worth that with each of its thousands of events.
	maxMemos = 16 << 20
)

// instanceCache holds durable instances, as their last transition left them: the next
// one need not read and decode them again. the loop alone changes it, and never
// while lanes run.
//
// It is always as the store is. Instances that have not ended are written by nobody but
// the loop, and what it writes is in the overlay, not here, from then on until that is
// durable. Ended ones, which retention removes, and keys at which events wait are not
// cached; nor is anything once a commit failed.
//
// It forgets by halves: what no transition has taken out while the newer half was
// filled is what waits longest.
type instanceCache struct{ newer, older half }

type half struct {
	cells map[edda.Key]keptCell
	size  int
	memos int // bytes of the cells' memos
}

type keptCell struct {
	instance *edda.Instance
	size     int
	memo     int
}

func newInstanceCache() *instanceCache { return &instanceCache{newer: newHalf(), older: newHalf()} }

func newHalf() half { return half{cells: map[edda.Key]keptCell{}} }

// find is the cell of a key, if it is here.
func (k *instanceCache) find(key edda.Key) (edda.Cell, bool) {
	c, ok := k.newer.cells[key]
	if !ok {
		c, ok = k.older.cells[key]
	}
	return edda.Cell{Key: key, Instance: c.instance}, ok
}

// keep takes the cell of a key whose last transition is durable.
func (k *instanceCache) keep(key edda.Key, cell edda.Cell) {
	in := cell.Instance
	if in == nil || in.Status.Finished() || in.Held != "" || len(cell.Held)+len(cell.Parked) > 0 {
		return
	}
	size, memo := in.Size(), 0
	if in.Memo != nil {
		memo = in.Memo.Size()
	}
	if size > keptMost || memo > maxMemos/2 || in.Parts > 0 && in.Memo == nil { // its parts would be missing
		return
	}
	k.drop(key)
	if k.newer.size+size > maxKept/2 || k.newer.memos+memo > maxMemos/2 {
		k.older, k.newer = k.newer, newHalf()
	}
	k.newer.cells[key] = keptCell{in, size, memo}
	k.newer.size += size
	k.newer.memos += memo
}

// drop takes out a cell that is written anew.
func (k *instanceCache) drop(key edda.Key) {
	k.newer.drop(key)
	k.older.drop(key)
}

func (h *half) drop(key edda.Key) {
	if c, ok := h.cells[key]; ok {
		h.size -= c.size
		h.memos -= c.memo
		delete(h.cells, key)
	}
}

func (k *instanceCache) clear() { *k = *newInstanceCache() }
