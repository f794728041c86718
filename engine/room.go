package engine

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// DefaultMaxOutbox is how many rows of one destination the outbox may hold before it is full,
// with the effects that wait for their result. It is some minutes of work of a busy system. The
// store keeps a few hundred bytes in memory for each such effect.
const DefaultMaxOutbox = 50_000

const (
	// freePart is the part of the bound, one fifth, that must be free before a full destination
	// has room again. Without it a slow destination would stop and start the intake with every row.
	freePart = 5
	// sharesEvery is the least time between two counts of the rows that each saga has at a
	// destination.
	sharesEvery = 20 * time.Millisecond
	// maxShares bounds the listed sagas and tenants of one destination. Those with the most rows
	// are listed. With more of them the destination is soon full for all.
	maxShares = 128
)

// DestinationKinds is where some kinds of the work of sagas go.
type DestinationKinds struct {
	Name  string // a label of metrics
	Kinds []edda.WorkKind
}

// room tells which destinations of the outbox are full, and which sagas have used up their
// share of one. Only the loop calls it.
type room interface {
	// full names the destinations whose bound is reached. Until it omits one again nothing is
	// started that makes more work for it. What removes work, such as results, is still read,
	// and the work that follows from it is written all the same. The bound is a mark and no
	// hard limit: inputs in flight may exceed it.
	full() []string
	// overShare lists the sagas and tenants that have as many rows of a destination as are free
	// there, and the destination. An entry goes when it has less than four fifths of what is
	// free. So one saga whose destination is dead takes half of the room at most, two take a
	// third each. A new saga finds room. The method is Choudhury and Hahne, "Dynamic Queue
	// Length Thresholds for Shared-Memory Packet Switches", 1998.
	overShare() map[SagaTenant]string
}

// share names one saga of a tenant, and a destination.
type share struct {
	SagaTenant
	destination string
}

// outboxRoom implements room with the outbox of a store.
type outboxRoom struct {
	db           records
	max          int
	destinations []DestinationKinds
	isFull       map[string]bool
	shares       map[share]bool
	counted      time.Time // when shares were counted
}

func newOutboxRoom(db records, destinations []DestinationKinds, max int) *outboxRoom {
	return &outboxRoom{db: db, max: max, destinations: destinations, isFull: map[string]bool{}}
}

func (r *outboxRoom) full() (names []string) {
	for _, d := range r.destinations {
		switch rows := r.db.Outboxed(d.Kinds...); {
		case rows >= r.max:
			r.isFull[d.Name] = true
		case rows <= r.max-r.max/freePart-1:
			r.isFull[d.Name] = false
		}
		if r.isFull[d.Name] {
			names = append(names, d.Name)
		}
	}
	return names
}

func (r *outboxRoom) overShare() map[SagaTenant]string {
	if now := time.Now(); now.Sub(r.counted) >= sharesEvery {
		r.counted = now
		next := map[share]bool{}
		for _, d := range r.destinations {
			r.share(d, next)
		}
		r.shares = next
	}
	if len(r.shares) == 0 {
		return nil
	}
	out := make(map[SagaTenant]string, len(r.shares))
	for s := range r.shares {
		if was := out[s.SagaTenant]; s.Tenant != AllTenants && (was == "" || s.destination < was) {
			out[s.SagaTenant] = s.destination
		}
	}
	return out
}

// share adds the entries of one destination. It counts nothing while the destination is less than
// half full, because then no saga has as much as is free.
func (r *outboxRoom) share(d DestinationKinds, to map[share]bool) {
	free := max(r.max-r.db.Outboxed(d.Kinds...), 0)
	again := free - free/freePart
	if len(r.shares) == 0 && free > r.max/2 {
		return
	}
	of := func(o store.Owner) share { return share{SagaTenant{o.Tenant, o.Saga}, d.Name} }
	owners := slices.DeleteFunc(r.db.Owners(min(again+1, free), d.Kinds...), func(o store.Owner) bool {
		return o.Rows < free && !r.shares[of(o)]
	})
	if len(owners) > maxShares {
		slices.SortFunc(owners, func(a, b store.Owner) int { return cmp.Compare(b.Rows, a.Rows) })
		owners = owners[:maxShares]
	}
	for _, o := range owners {
		to[of(o)] = true
	}
}

// DefaultMaxParked bounds the parked events of one tenant. It holds some minutes of events
// that come before their instance. It is small enough that one tenant's mistake costs the
// others neither disk nor time.
const DefaultMaxParked = 100_000

// parkAgainPart is the part of the bound, one tenth, that must be free before the log says
// that a full tenant has room again. So the log does not repeat itself. The room itself is
// there with the first entry that goes.
const parkAgainPart = 10

// parking knows the tenants that may park no more events. The loop owns it; the lanes read it.
type parking struct {
	*Engine
	full map[string]bool // tenants that the log calls full
	room map[string]bool // of the batch's tenants: whether each may park
}

func newParking(e *Engine) *parking { return &parking{Engine: e, full: map[string]bool{}} }

// update asks the store about the tenants of a batch, and about full ones. The batch itself,
// and those in flight, may exceed the bound by their events.
func (p *parking) update(items []*item) {
	p.room = map[string]bool{}
	for _, it := range items {
		if t := it.event.Tenant; !it.isRow() {
			p.check(t)
		}
	}
	for t := range p.full {
		p.check(t)
	}
	p.metrics.parkedFull.Set(float64(len(p.full)))
}

func (p *parking) check(tenant string) {
	if _, checked := p.room[tenant]; checked {
		return
	}
	n, most := p.db.Parked(tenant), p.opts.MaxParked
	p.room[tenant] = n < most
	switch {
	case n >= most && !p.full[tenant]:
		p.full[tenant] = true
		p.log.Warn("a tenant may park no more events: those that come before their instance become dead letters",
			zap.String("tenant", tenant), zap.Int("parked", n), zap.Int("limit", most))
	case n <= most-most/parkAgainPart-1 && p.full[tenant]:
		delete(p.full, tenant)
		p.log.Info("a tenant may park events again", zap.String("tenant", tenant), zap.Int("parked", n))
	}
}
