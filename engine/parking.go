package engine

import "go.uber.org/zap"

// DefaultMaxParked is how many events of one tenant may wait for their instance:
// some minutes of events that come before what starts their sagas, and yet few
// enough that one tenant's mistake costs the others neither disk nor time.
const DefaultMaxParked = 100_000

// roomAgain is how much of the bound must be free until a tenant that had no
// room is said to have some again: one tenth, so that the log does not repeat
// itself. Room itself is there with the first entry that goes.
const roomAgain = 10

// parking knows the tenants that may park no more. The loop owns it; the
// lanes read it.
type parking struct {
	*Engine
	full map[string]bool // those that were said to be full
	room map[string]bool // of the batch: false where there is none
}

func newParking(e *Engine) *parking { return &parking{Engine: e, full: map[string]bool{}} }

// look asks the store about the tenants of a batch, and about those that were
// full. What the batch itself parks passes the bound: at most its events, and
// those of the batches not yet durable.
func (p *parking) look(items []*item) {
	p.room = map[string]bool{}
	for _, it := range items {
		if t := it.event.Tenant; !it.isRow() {
			p.ask(t)
		}
	}
	for t := range p.full {
		p.ask(t)
	}
	p.metrics.parkedFull.Set(float64(len(p.full)))
}

func (p *parking) ask(tenant string) {
	if _, asked := p.room[tenant]; asked {
		return
	}
	n, most := p.db.Parked(tenant), p.opts.MaxParked
	p.room[tenant] = n < most
	switch {
	case n >= most && !p.full[tenant]:
		p.full[tenant] = true
		p.log.Warn("a tenant may park no more events: those that come before their instance become dead letters",
			zap.String("tenant", tenant), zap.Int("parked", n), zap.Int("limit", most))
	case n <= most-most/roomAgain-1 && p.full[tenant]:
		delete(p.full, tenant)
		p.log.Info("a tenant may park events again", zap.String("tenant", tenant), zap.Int("parked", n))
	}
}
