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

type jobParams struct {
	ContextID uint32   `json:"context_id"`
	Job       hero.Job `json:"job"`
	callerParams
}

type jobList struct {
	contextList
	Status hero.JobStatus `json:"status,omitempty"` // lists only jobs of this status
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

func (c *Coordinator) createJob(ctx context.Context, p jobParams) (hero.Job, error) {
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
		return stored, nil
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

// checkJob refuses an invalid job, fills in what may be left out, and clears the fields that
// only the server sets.
func (c *Coordinator) checkJob(field string, j hero.Job, context uint32) (hero.Job, error) {
	if err := CheckJob(field, j); err != nil {
		return j, err
	}
	if !c.types[j.ScriptType] {
		var names []string
		for t := range c.types {
			names = append(names, string(t))
		}
		slices.Sort(names)
		return j, invalid(field+".script_type", "is not known here: want one of %s", strings.Join(names, ", "))
	}
	if err := sameContext(field+".context_id", &j.ContextID, context); err != nil {
		return j, err
	}
	signatures, err := checkSignatures(field+".signatures", j.Signatures)
	if err != nil {
		return j, err
	}
	j.Signatures = signatures
	if j.Priority != hero.PriorityNormal { // in any spelling
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

// CheckJob refuses a definition of a job that every coordinator refuses. field is the job's
// place in the parameters. The script types depend on a coordinator's configuration.
func CheckJob(field string, j hero.Job) error {
	err := cmp.Or(checkID(field+".id", j.ID), checkKnown(field, j.Unknown, "leave it out, or say it by a field that jobs have"))
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(j.Script) == "":
		return invalid(field+".script", "is missing: it is what the job runs")
	case j.ScriptType == "":
		return invalid(field+".script_type", "is missing: want the language of the script, such as python")
	}
	if _, err := hero.ParsePriority(string(j.Priority)); j.Priority != hero.PriorityNormal && err != nil {
		return invalid(field+".priority", "want high or normal")
	}
	err = cmp.Or(
		checkText(field+".script", j.Script, maxScript),
		checkWord(field+".executor", j.Executor, maxName),
		checkEnv(field+".env_vars", j.EnvVars),
		checkWords(field+".prerequisites", j.Prerequisites, maxName),
		checkIDs(field+".dependends", j.Dependends),
	)
	if err == nil && slices.Contains(j.Dependends, j.ID) {
		err = dag(Detail{Field: field + ".dependends", Why: fmt.Sprintf("job %d depends on itself", j.ID), Cycle: []uint32{j.ID, j.ID}, Do: "leave its own id out"})
	}
	return err
}

// sameJob reports whether two jobs have the same definition.
func sameJob(a, b hero.Job) bool {
	return a.Script == b.Script && a.ScriptType == b.ScriptType && a.Executor == b.Executor && a.Timeout == b.Timeout && a.QueueTimeout == b.QueueTimeout && a.Priority == b.Priority && a.Retries == b.Retries &&
		maps.Equal(ownEnv(a), ownEnv(b)) && slices.Equal(a.Prerequisites, b.Prerequisites) && slices.Equal(a.Dependends, b.Dependends) &&
		bytes.Equal(a.Signatures, b.Signatures)
}

// ownEnv returns a job's own variables, without those that a flow added.
func ownEnv(j hero.Job) map[string]string {
	if j.OwnEnv != nil {
		return j.OwnEnv
	}
	return j.EnvVars
}

// inNoFlow refuses to change or delete a job of a flow that runs or has finished.
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
	return loadOwned(ctx, c, p, c.loadedJob, redaction.job)
}

func (c *Coordinator) loadedJob(ctx context.Context, context, caller, id uint32) (hero.Job, error) {
	j, err := c.db.Job(ctx, context, caller, id)
	return j, orNotFound(err, hero.JobKey(caller, id), "look with job.list, or create it with job.create")
}

func (c *Coordinator) listJobs(ctx context.Context, p jobList) ([]hero.Job, error) {
	v, err := c.browse(ctx, p.contextList)
	if err != nil {
		return nil, err
	}
	all, err := c.db.Jobs(ctx, p.ContextID)
	all, err = withUnreadable(c, p.ContextID, all, err, hero.ReadJob, func(j *hero.Job) *string { return &j.Unreadable })
	if p.Status != "" {
		all = slices.DeleteFunc(all, func(j hero.Job) bool { return j.Status != p.Status })
	}
	return cut(p.page, all, v.job), err
}

func (c *Coordinator) deleteJob(ctx context.Context, p owned) (bool, error) {
	return c.remove(ctx, p.ContextID, p.caller(), p.check(), func() error {
		j, err := c.loadedJob(ctx, p.ContextID, p.CallerID, p.ID)
		if err != nil {
			return err
		}
		if err := c.inNoFlow(ctx, j, "lose it"); err != nil {
			return err
		}
		return c.db.DeleteJob(ctx, p.ContextID, p.CallerID, p.ID)
	})
}
