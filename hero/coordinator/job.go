package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

type jobGiven struct {
	ContextID uint32   `json:"context_id"`
	Job       hero.Job `json:"job"`
	callerParams
}

type jobListing struct {
	ContextID uint32         `json:"context_id"`
	Status    hero.JobStatus `json:"status,omitempty"` // only these
	page
	callerParams
}

func (c *Coordinator) jobMethods() []jsonrpc.Method {
	return []jsonrpc.Method{
		define(c, "job.create", "Store a job. Admins may, each in its own name. The server sets times, status and result.", "job",
			[]int{jsonrpc.NotFound, jsonrpc.AlreadyExists}, c.createJob),
		define(c, "job.load", "A job. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.loadJob),
		define(c, "job.list", "The context's jobs, of one status if given. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.listJobs),
		define(c, "job.update", "Say what became of a job: legal steps only. Executors and admins may. A flow that the job belongs to hears of it.", "",
			[]int{jsonrpc.NotFound}, c.updateJob),
		define(c, "job.prerequisite_met", "Say that a prerequisite of a job outside of a flow holds. Executors and admins may.", "", []int{jsonrpc.NotFound}, c.metJob),
		define(c, "job.delete", "Remove a job that no started flow has. Admins may.", "", []int{jsonrpc.NotFound, jsonrpc.AlreadyExists}, c.deleteJob),
	}
}

func (c *Coordinator) createJob(ctx context.Context, p jobGiven) (hero.Job, error) {
	caller, err := c.creator(ctx, p.callerParams, p.Job.CallerID)
	if err != nil {
		return hero.Job{}, err
	}
	p.Job.CallerID = caller
	if p.Job, err = c.checkJob("job", p.Job, p.ContextID); err != nil {
		return hero.Job{}, err
	}
	unlock, err := c.enter(ctx, p.ContextID, callerParams{ActorID: caller}, mayAdmin())
	if err != nil {
		return hero.Job{}, err
	}
	defer unlock()
	stored, err := c.db.Job(ctx, p.ContextID, caller, p.Job.ID)
	fresh := errors.Is(err, redisdb.ErrNotFound)
	switch {
	case fresh:
		p.Job.Status = hero.JobDispatched
	case err != nil:
		return hero.Job{}, err
	case sameJob(stored, p.Job):
		return showJob(stored), nil
	default:
		if err := c.inNoFlow(ctx, stored, "change"); err != nil {
			return hero.Job{}, err
		}
		p.Job.Status, p.Job.Result, p.Job.CreatedAt = stored.Status, stored.Result, stored.CreatedAt
		p.Job.FlowID, p.Job.Attempt, p.Job.MessageKey, p.Job.Met = stored.FlowID, stored.Attempt, stored.MessageKey, stored.Met
	}
	if err := c.db.PutJob(ctx, p.Job); err != nil {
		return hero.Job{}, err
	}
	if fresh {
		c.meter.created(p.Job.ScriptType)
	}
	return c.loadedJob(ctx, p.ContextID, caller, p.Job.ID)
}

// checkJob refuses what no job may be, and fills in what may be left out. What
// the server alone sets is dropped.
func (c *Coordinator) checkJob(field string, j hero.Job, context uint32) (hero.Job, error) {
	if err := c.checkDefinition(field, j); err != nil {
		return j, err
	}
	if err := sameContext(field+".context_id", &j.ContextID, context); err != nil {
		return j, err
	}
	signatures, err := checkSignatures(field+".signatures", j.Signatures)
	if err != nil {
		return j, err
	}
	j.Signatures = signatures
	if j.Priority != hero.PriorityNormal { // however it is written
		j.Priority, _ = hero.ParsePriority(string(j.Priority))
	}
	if j.Executor == "" {
		j.Executor = string(j.ScriptType)
	}
	j.EnvVars, j.Prerequisites, j.Dependends = dict(j.EnvVars), list(j.Prerequisites), list(j.Dependends)
	j.Result, j.Status, j.CreatedAt, j.UpdatedAt = map[string]string{}, "", 0, 0
	j.FlowID, j.Attempt, j.MessageKey, j.OwnEnv, j.Met = 0, 0, "", nil, nil
	return j, nil
}

func (c *Coordinator) checkDefinition(field string, j hero.Job) error {
	if err := CheckJob(field, j); err != nil {
		return err
	}
	if !c.types[j.ScriptType] {
		return invalid(field+".script_type", "is not known here: want one of %s", c.typeNames())
	}
	return nil
}

// CheckJob refuses what no coordinator takes as the definition of a job, which is the
// field of what was sent. The script types depend on the coordinator's configuration.
func CheckJob(field string, j hero.Job) error {
	if err := checkID(field+".id", j.ID); err != nil {
		return err
	}
	if err := checkKnown(field, j.Unknown, "leave it out, or say it by a field that jobs have"); err != nil {
		return err
	}
	if strings.TrimSpace(j.Script) == "" {
		return invalid(field+".script", "is missing: it is what the job runs")
	}
	if j.ScriptType == "" {
		return invalid(field+".script_type", "is missing: want the language of the script, such as python")
	}
	if _, err := hero.ParsePriority(string(j.Priority)); j.Priority != hero.PriorityNormal && err != nil {
		return invalid(field+".priority", "want high or normal")
	}
	if err := checkText(field+".script", j.Script, maxScript); err != nil {
		return err
	}
	if err := checkWord(field+".executor", j.Executor, maxName); err != nil {
		return err
	}
	if err := checkEnv(field+".env_vars", j.EnvVars); err != nil {
		return err
	}
	if err := checkWords(field+".prerequisites", j.Prerequisites, maxName); err != nil {
		return err
	}
	if err := checkIDs(field+".dependends", j.Dependends); err != nil {
		return err
	}
	if slices.Contains(j.Dependends, j.ID) {
		return dag(Detail{Field: field + ".dependends", Why: fmt.Sprintf("job %d depends on itself", j.ID), Cycle: []uint32{j.ID, j.ID}, Do: "leave its own id out"})
	}
	return nil
}

func (c *Coordinator) typeNames() string {
	var names []string
	for t := range c.types {
		names = append(names, string(t))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// sameJob tells whether the definitions are the same.
func sameJob(a, b hero.Job) bool {
	return a.Script == b.Script && a.ScriptType == b.ScriptType && a.Executor == b.Executor && a.Timeout == b.Timeout && a.QueueTimeout == b.QueueTimeout && a.Priority == b.Priority && a.Retries == b.Retries &&
		maps.Equal(ownEnv(a), ownEnv(b)) && slices.Equal(a.Prerequisites, b.Prerequisites) && slices.Equal(a.Dependends, b.Dependends) &&
		bytes.Equal(a.Signatures, b.Signatures)
}

// ownEnv is a job's own variables, without those that a flow added.
func ownEnv(j hero.Job) map[string]string {
	if j.OwnEnv != nil {
		return j.OwnEnv
	}
	return j.EnvVars
}

// inNoFlow refuses to change or delete a job that a flow has which runs or has
// finished.
func (c *Coordinator) inNoFlow(ctx context.Context, j hero.Job, verb string) error {
	flows, err := c.db.Flows(ctx, j.ContextID)
	if err != nil {
		return err
	}
	for _, f := range flows {
		if f.CallerID != j.CallerID || !slices.Contains(f.Jobs, j.ID) {
			continue
		}
		fixed, err := c.fixed(ctx, f)
		if err != nil {
			return err
		}
		if fixed != "" {
			return conflict(j.Key(), fmt.Sprintf("%s, which has this job, %s: it would %s", f.Key(), fixed, verb), "create another job and another flow, or cancel that one first")
		}
	}
	return nil
}

func (c *Coordinator) loadJob(ctx context.Context, p owned) (hero.Job, error) {
	if err := c.seeOwned(ctx, p); err != nil {
		return hero.Job{}, err
	}
	v, err := c.redaction(ctx, p.ContextID, p.caller())
	if err != nil {
		return hero.Job{}, err
	}
	j, err := c.loadedJob(ctx, p.ContextID, p.CallerID, p.ID)
	return v.job(j), err
}

func (c *Coordinator) loadedJob(ctx context.Context, context, caller, id uint32) (hero.Job, error) {
	j, err := c.db.Job(ctx, context, caller, id)
	if errors.Is(err, redisdb.ErrNotFound) {
		return j, notFound(hero.JobKey(caller, id), "look with job.list, or create it with job.create")
	}
	return showJob(j), err
}

func showJob(j hero.Job) hero.Job {
	j.EnvVars, j.Result = dict(j.EnvVars), dict(j.Result)
	j.Prerequisites, j.Dependends = list(j.Prerequisites), list(j.Dependends)
	return j
}

func (c *Coordinator) listJobs(ctx context.Context, p jobListing) ([]hero.Job, error) {
	if err := c.browse(ctx, listing{ContextID: p.ContextID, page: p.page, callerParams: p.callerParams}); err != nil {
		return nil, err
	}
	v, err := c.redaction(ctx, p.ContextID, p.callerParams)
	if err != nil {
		return nil, err
	}
	all, err := c.db.Jobs(ctx, p.ContextID)
	all, err = withUnreadable(c, all, err, func(e *hero.FieldError) hero.Job {
		caller, id := idsOf(e.Key)
		return hero.Job{ID: id, CallerID: caller, ContextID: p.ContextID, Status: hero.JobError, Unreadable: e.Error()}
	}, func(a, b hero.Job) int { return cmp.Or(cmp.Compare(a.CallerID, b.CallerID), cmp.Compare(a.ID, b.ID)) })
	if p.Status != "" {
		all = slices.DeleteFunc(all, func(j hero.Job) bool { return j.Status != p.Status })
	}
	return cut(p.page, all, func(j hero.Job) hero.Job { return v.job(showJob(j)) }), err
}

func (c *Coordinator) deleteJob(ctx context.Context, p owned) (bool, error) {
	if err := p.check(); err != nil {
		return false, err
	}
	unlock, err := c.enter(ctx, p.ContextID, p.caller(), mayAdmin())
	if err != nil {
		return false, err
	}
	defer unlock()
	j, err := c.loadedJob(ctx, p.ContextID, p.CallerID, p.ID)
	if err != nil {
		return false, err
	}
	if err := c.inNoFlow(ctx, j, "lose it"); err != nil {
		return false, err
	}
	return true, c.db.DeleteJob(ctx, p.ContextID, p.CallerID, p.ID)
}
