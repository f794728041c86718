package engine

import "edda"

const (
	// maxCached bounds the cached instances, in bytes of JSON: more than a thousand orders.
	maxCached = 4 << 20
	// maxCachedCell bounds one of them, so that a few large ones do not evict many small ones.
	maxCachedCell = 64 << 10
	// maxMemos bounds the memos of cached instances, apart from their bytes. The memo of a
	// flow with a thousand jobs has about 400 KiB, which saves a decode with each event.
	maxMemos = 16 << 20
)

// instanceCache holds durable instances as their last transition left them, so that the
// next one need not read and decode them. Only the loop changes it, and never while lanes run.
//
// It always equals the store. Only the loop writes an instance that has not ended, and what
// it writes is in the overlay, not here, until it is durable. Never cached are ended
// instances, which retention removes, and keys with parked or held events. A failed commit
// clears the cache.
//
// It evicts in two generations: when the young one is full, the old one is dropped. So the
// instances that no transition has used for longest go first.
type instanceCache struct{ young, old generation }

type generation struct {
	cells map[edda.Key]cachedCell
	size  int // bytes of the instances
	memos int // bytes of their memos
}

type cachedCell struct {
	instance *edda.Instance
	size     int
	memo     int
}

func newInstanceCache() *instanceCache {
	return &instanceCache{young: newGeneration(), old: newGeneration()}
}

func newGeneration() generation { return generation{cells: map[edda.Key]cachedCell{}} }

// get returns the cell of a key, if it is cached.
func (k *instanceCache) get(key edda.Key) (edda.Cell, bool) {
	c, ok := k.young.cells[key]
	if !ok {
		c, ok = k.old.cells[key]
	}
	return edda.Cell{Key: key, Instance: c.instance}, ok
}

// put caches the cell of a key whose last transition is durable.
func (k *instanceCache) put(key edda.Key, cell edda.Cell) {
	in := cell.Instance
	if in == nil || in.Status.Finished() || in.Held != "" || len(cell.Held)+len(cell.Parked) > 0 {
		return
	}
	size, memo := in.Size(), 0
	if in.Memo != nil {
		memo = in.Memo.Size()
	}
	if size > maxCachedCell || memo > maxMemos/2 || in.Parts > 0 && in.Memo == nil { // its parts would be missing
		return
	}
	k.remove(key)
	if k.young.size+size > maxCached/2 || k.young.memos+memo > maxMemos/2 {
		k.old, k.young = k.young, newGeneration()
	}
	k.young.cells[key] = cachedCell{in, size, memo}
	k.young.size += size
	k.young.memos += memo
}

// remove drops the cell of a key that a new transition changes.
func (k *instanceCache) remove(key edda.Key) {
	k.young.remove(key)
	k.old.remove(key)
}

func (g *generation) remove(key edda.Key) {
	if c, ok := g.cells[key]; ok {
		g.size -= c.size
		g.memos -= c.memo
		delete(g.cells, key)
	}
}

func (k *instanceCache) clear() { *k = *newInstanceCache() }
