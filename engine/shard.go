package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"edda"
	"edda/saga"
)

// Every store of several shards reads all streams, and keeps the keys of its shard. What concerns no key at all, such as an
// event that no saga hears, concerns one of the stores.

// leave removes the targets that the stores of other shards have.
func (b *batch) leave(it *item) {
	if it.about != nil { // the dead letter is in this store
		b.keepLetter(it)
		return
	}
	had := len(it.targets)
	it.targets = slices.DeleteFunc(it.targets, func(t saga.Target) bool { return !b.shard.Has(t.Key) })
	if it.elsewhere = len(it.targets) == 0; had > 0 {
		return
	}
	of := edda.Key{Tenant: it.event.Tenant, Correlation: it.event.ID}
	if it.event.Kind == edda.KindOperator && it.event.Key != (edda.Key{}) { // an act on a dead letter, which is where its key is
		of = it.event.Key
	}
	it.elsewhere = !b.shard.Has(of)
}

// keepLetter keeps a dead letter without a key whose redrive finds a key of another shard: this store cannot hand it over.
// A letter that cannot be read stays as it is.
func (b *batch) keepLetter(it *item) {
	var r edda.Redrive
	kept := it.targets[:0]
	for _, t := range it.targets {
		if !b.shard.Has(t.Key) {
			if json.Unmarshal(it.event.Payload, &r) != nil {
				continue
			}
			d, found, err := b.db.DeadLetter(r.DeadLetter)
			if err != nil || !found {
				continue
			}
			d.Error = fmt.Sprintf("its key %s is in another shard: drop this dead letter, and publish the event again", t.Key)
			r.KeepCut(&d)
			t = saga.Target{Key: d.Key, Dead: &d}
		}
		kept = append(kept, t)
	}
	it.targets = kept
}
