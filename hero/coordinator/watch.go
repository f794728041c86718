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
	"edda/internal/logthrottle"
)

const (
	// lookEvery is the interval of looks at the jobs of running flows. Results come by
	// messages; a look finds those of runners that only write the hash.
	lookEvery = time.Second
	// maxLooked bounds the jobs of one look, so that a wide flow costs no more than a small
	// one. The next look continues after them.
	maxLooked = 256
)

// RunningFlows visits the states of running flows. It stops at visit's error.
type RunningFlows interface {
	Running(ctx context.Context, visit func(flow.State) error) error
}

// Reports takes the reports that a look makes. See Flows.
type Reports interface {
	Report(ctx context.Context, r hero.Report) error
}

// JobWatch reads the hashes of the jobs that flows wait for, and reports news to the flows.
type JobWatch struct {
	db      *redisdb.DB
	running RunningFlows
	flows   Reports
	log     *zap.Logger

	next int // the index of the next look among all jobs in flight
}

// NewWatch makes a watch, to be run by Run.
func NewWatch(db *redisdb.DB, running RunningFlows, flows Reports, log *zap.Logger) *JobWatch {
	if log == nil {
		log = zap.NewNop()
	}
	return &JobWatch{db: db, running: running, flows: flows, log: log}
}

// Run looks until ctx ends.
func (w *JobWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	looking := logthrottle.New(w.log, "look at the jobs of flows")
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

// waitedFor is a job that a flow waits for.
type waitedFor struct {
	d    flow.Definition
	node flow.Node
	at   flow.NodeState
}

func (w *JobWatch) runOnce(ctx context.Context) error {
	var all []waitedFor
	err := w.running.Running(ctx, func(s flow.State) error {
		for i, n := range s.Nodes {
			if n.Status == hero.NodeDispatched || n.Status == hero.NodeRunning {
				all = append(all, waitedFor{s.Definition, s.Definition.Nodes[i], n})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	byContext := map[uint32][]waitedFor{}
	for i := range min(len(all), maxLooked) {
		a := all[(w.next+i)%len(all)]
		byContext[a.d.ContextID] = append(byContext[a.d.ContextID], a)
	}
	if w.next += maxLooked; w.next >= len(all) {
		w.next = 0
	}
	for in, jobs := range byContext {
		if err := w.look(ctx, in, jobs); err != nil {
			return err
		}
	}
	return nil
}

// look reads the statuses of some jobs of one context, and a whole job if its status is news.
func (w *JobWatch) look(ctx context.Context, in uint32, jobs []waitedFor) error {
	keys := make([]string, len(jobs))
	for i, a := range jobs {
		keys[i] = hero.JobKey(a.node.CallerID, a.node.ID)
	}
	seen, err := w.db.PeekJobs(ctx, in, keys)
	if err != nil {
		return err
	}
	for i, a := range jobs {
		p := seen[i]
		if _, news := newsOf(p.Status, a.at); !news || p.FlowID != a.d.FlowID || p.Attempt != a.at.Attempt {
			continue
		}
		if err := w.job(ctx, a.d, a.node, a.at); err != nil {
			return err
		}
	}
	return nil
}

// job reports the status in a job's hash, if it is news of the attempt in flight.
func (w *JobWatch) job(ctx context.Context, d flow.Definition, n flow.Node, at flow.NodeState) error {
	j, err := w.db.Job(ctx, d.ContextID, n.CallerID, n.ID)
	broken := (*hero.FieldError)(nil)
	if errors.Is(err, redisdb.ErrNotFound) || errors.As(err, &broken) {
		return nil // the node's timeout ends it
	}
	if err != nil {
		return err
	}
	status, news := newsOf(j.Status, at)
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

// newsOf returns the status of a job's hash as the node's, if its flow does not know it yet.
func newsOf(now hero.JobStatus, at flow.NodeState) (hero.NodeStatus, bool) {
	switch {
	case now == hero.JobFinished:
		return hero.NodeCompleted, true
	case now == hero.JobError:
		return hero.NodeFailed, true
	case now == hero.JobStarted && at.Status == hero.NodeDispatched:
		return hero.NodeRunning, true
	}
	return "", false
}
