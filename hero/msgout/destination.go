package msgout

import (
	"context"
	"encoding/json"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/redisdb"
	"edda/outbox"
)

// deliverParallel is how many deliveries are under way at once: each is a few
// round trips, and they are of different instances.
const deliverParallel = 8

// Reports tells flows of jobs that can never be sent. It is [flowsaga.Client]'s.
type Reports interface {
	Report(ctx context.Context, r hero.Report) error
}

// Destination writes to Redis. Its methods may be called concurrently.
type Destination struct {
	db      *redisdb.DB
	reports Reports
}

// New makes the destination; nothing is written yet. Without reports there are
// no flows.
func New(db *redisdb.DB, reports Reports) *Destination {
	return &Destination{db: db, reports: reports}
}

// Lane is the outbox lane of messages and flows.
func (d *Destination) Lane() outbox.Lane {
	return outbox.Lane{Name: "redis", Kinds: []edda.WorkKind{edda.WorkMessage}, Destination: d, Batch: 1, Parallel: deliverParallel}
}

// Deliver writes each item; what Redis refuses for now is Temporary.
func (d *Destination) Deliver(ctx context.Context, batch []edda.Work) []error {
	errs := make([]error, len(batch))
	for i, w := range batch {
		errs[i] = d.deliver(ctx, w)
	}
	return errs
}

func (d *Destination) deliver(ctx context.Context, w edda.Work) error {
	if w.From.Saga != flow.Saga {
		return d.send(ctx, w)
	}
	var b flow.Batch
	if err := json.Unmarshal(w.Payload, &b); err != nil {
		return &outbox.Rejection{Code: "malformed", Message: "acts of a flow: " + err.Error()}
	}
	return d.advance(ctx, b)
}
