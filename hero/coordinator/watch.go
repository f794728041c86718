package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/redisdb"
	"edda/internal/complaint"
)

const (
	// lookEvery is how often the jobs of running flows are looked at. Results come
	// by messages; this finds those of runners that write nothing but the hash.
	lookEvery = time.Second
	// maxLooked bounds the jobs of one look, which is a round trip each.
	maxLooked = 2000
)

// Running lists the flows that are under way. It stops at visit's error.
type Running interface {
	Running(ctx context.Context, visit func(flow.State) error) error
}

// Reports takes what a look has found. See Flows.
type Reports interface {
	Report(ctx context.Context, r hero.Report) error
}

// Watch looks at the jobs that flows wait for, and tells the flows what the
// hashes say.
type Watch struct {
	db      *redisdb.DB
	running Running
	flows   Reports
	log     *zap.Logger

	looked int // jobs of this look
}

// NewWatch makes a watch; it looks at nothing before Run.
func NewWatch(db *redisdb.DB, running Running, flows Reports, log *zap.Logger) *Watch {
	if log == nil {
		log = zap.NewNop()
	}
	return &Watch{db: db, running: running, flows: flows, log: log}
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	looking := complaint.New(w.log, "look at the jobs of flows")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := w.runOnce(ctx); ctx.Err() == nil {
				looking.Note(err)
			}
		}
	}
}

// errEnough ends a look that has seen enough.
var errEnough = errors.New("enough for one look")

func (w *Watch) runOnce(ctx context.Context) error {
	w.looked = 0
	err := w.running.Running(ctx, func(s flow.State) error { return w.flow(ctx, s) })
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (w *Watch) flow(ctx context.Context, s flow.State) error {
	for i, n := range s.Nodes {
		if n.Status != hero.NodeDispatched && n.Status != hero.NodeRunning {
			continue
		}
		if w.looked++; w.looked > maxLooked {
			return errEnough
		}
		if err := w.job(ctx, s.Definition, s.Definition.Nodes[i], n); err != nil {
			return err
		}
	}
	return nil
}

// job reports what a hash says of the attempt that the flow waits for.
func (w *Watch) job(ctx context.Context, d flow.Definition, n flow.Node, at flow.NodeState) error {
	j, err := w.db.Job(ctx, d.ContextID, n.CallerID, n.ID)
	broken := (*hero.FieldError)(nil)
	if errors.Is(err, redisdb.ErrNotFound) || errors.As(err, &broken) {
		return nil // the node's timeout settles it
	}
	if err != nil {
		return err
	}
	status, news := said(j, at)
	if !news || j.FlowID != d.FlowID || j.Attempt != at.Attempt {
		return nil
	}
	err = w.flows.Report(ctx, hero.Report{
		ID: fmt.Sprintf("look/%d/%d/%s", n.ID, at.Attempt, status), ContextID: d.ContextID, FlowID: d.FlowID,
		Node: n.ID, Attempt: at.Attempt, Status: status, Result: j.Result,
	})
	if errors.Is(err, edda.Permanent) {
		return nil // the flow is gone
	}
	return err
}

// said is what a job's hash says that its flow does not know.
func said(j hero.Job, at flow.NodeState) (hero.NodeStatus, bool) {
	switch {
	case j.Status == hero.JobFinished:
		return hero.NodeCompleted, true
	case j.Status == hero.JobError:
		return hero.NodeFailed, true
	case j.Status == hero.JobStarted && at.Status == hero.NodeDispatched:
		return hero.NodeRunning, true
	}
	return "", false
}
