package store

import (
	"strings"

	"edda"
	"edda/store/format"
)

// keptOwners is how many sagas of tenants without rows in the outbox are remembered, so
// that counting those that come and go takes no memory each time.
const keptOwners = 4096

// kindsOfWork are the kinds that outbox rows are counted by; others are counted together.
var kindsOfWork = [...]edda.WorkKind{
	edda.WorkEffect, edda.WorkRevoke, edda.WorkCommand, edda.WorkFact, edda.WorkStart, edda.WorkCancel, edda.WorkEnd, edda.WorkMessage, edda.WorkResult, "",
}

func kindNumber(kind edda.WorkKind) int {
	for i, k := range kindsOfWork {
		if k == kind {
			return i
		}
	}
	return len(kindsOfWork) - 1
}

// ownerKey is a saga of a tenant.
type ownerKey struct{ Tenant, Saga string }

// owner is how many outbox rows a saga of a tenant has, by kind.
type owner struct {
	ownerKey
	rows [len(kindsOfWork)]int
}

func (o *owner) none() bool { return o.rows == [len(kindsOfWork)]int{} }

// owned is a row that a transaction adds, or removes.
type owned struct {
	by   *owner
	kind int
	n    int
}

// owner finds the counts of a saga of a tenant. Only the committer, or who loads, asks.
func (x *index) owner(tenant, saga string) *owner {
	if o := x.owners[ownerKey{tenant, saga}]; o != nil {
		return o
	}
	return x.newOwner(strings.Clone(tenant), strings.Clone(saga)) // they may be part of much more
}

func (x *index) newOwner(tenant, saga string) *owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := &owner{ownerKey: ownerKey{tenant, saga}}
	x.owners[o.ownerKey] = o
	return o
}

// ownerOf finds those of the work in an outbox row, without decoding the rest of it.
func (x *index) ownerOf(row []byte) (*owner, error) {
	tenant, saga, ok := format.OwnerIn(row)
	if !ok {
		w, err := format.Decode[edda.Work]("outbox row", row)
		return x.owner(w.From.Tenant, w.From.Saga), err
	}
	if o := x.owners[ownerKey{string(tenant), string(saga)}]; o != nil {
		return o, nil
	}
	return x.newOwner(string(tenant), string(saga)), nil
}

// disown forgets those without rows where they are too many. Its caller holds the lock.
func (x *index) disown() {
	if len(x.owners) <= 2*keptOwners {
		return
	}
	for k, o := range x.owners {
		if o.none() {
			delete(x.owners, k)
		}
	}
}

// Owner is how many outbox rows of some kinds a saga of a tenant has.
type Owner struct {
	Tenant, Saga string
	Rows         int
}

// Owners lists the sagas that have at least so many outbox rows of some kinds, in no order.
// It looks at every saga and tenant that has any.
func (d *DB) Owners(least int, kinds ...edda.WorkKind) (out []Owner) {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	for k, o := range d.index.owners {
		n := 0
		for _, kind := range kinds {
			n += o.rows[kindNumber(kind)]
		}
		if n >= max(least, 1) {
			out = append(out, Owner{k.Tenant, k.Saga, n})
		}
	}
	return out
}
