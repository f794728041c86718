package scheduler

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/saga"
	"edda/store"
)

const (
	// maxScan bounds the missed due times of one schedule: a day of one every second. With more
	// the scheduler gives all of them up.
	maxScan = 86_400
	// maxCatchup bounds the missed due times that "catchup: all" starts. The newest start.
	maxCatchup = 1000
	// punctual is how late a due time may be without counting as missed: the length of a slow
	// commit or of a paused process, not of a downtime.
	punctual = 10 * time.Second
	// startsAtOnce bounds the concurrent starts. They are concurrent so that the schedules of many
	// tenants share a commit.
	startsAtOnce = 64
)

// schedule names one schedule of one saga for one tenant.
type schedule struct{ tenant, saga, name string }

func (s schedule) row(last time.Time) edda.ScheduleState {
	return edda.ScheduleState{Tenant: s.tenant, Saga: s.saga, Name: s.name, Last: last}
}

// calendar starts the instances that schedules ask for.
type calendar struct {
	*Scheduler
	loaded int                    // swaps when last was read from the store
	last   map[schedule]time.Time // as committed; owned by the loop
}

// plan is what one schedule has to do now.
type plan struct {
	schedule
	starts []time.Time // in order
	// last is recorded when there is nothing to start: the schedule is new, or its missed due
	// times are given up.
	last time.Time
}

// runOnce starts what is due and returns the time of the next schedule.
func (c *calendar) runOnce(ctx context.Context) (time.Time, error) {
	set, swaps := c.set()
	if err := c.load(swaps); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	plans, next := c.plan(set, now)
	if err := c.record(ctx, plans); err != nil {
		return time.Time{}, err
	}
	return next, c.start(ctx, set, plans)
}

// load reads the rows of schedules when there is another set.
func (c *calendar) load(swaps int) error {
	if c.loaded == swaps {
		return nil
	}
	rows, err := c.db.Schedules()
	if err != nil {
		return fmt.Errorf("read the schedules: %w", err)
	}
	for _, r := range rows {
		c.last[schedule{r.Tenant, r.Saga, r.Name}] = r.Last
	}
	c.loaded = swaps
	return nil
}

// plan returns what to do now, and the time of the first schedule after that.
func (c *calendar) plan(set Sagas, now time.Time) ([]plan, time.Time) {
	var plans []plan
	first := now.Add(slowTick)
	for _, spec := range set.Schedules() {
		for _, tenant := range tenants(spec) {
			p, next := c.planOne(set, schedule{tenant, spec.Saga, spec.Name}, spec.Catchup, now)
			if len(p.starts) > 0 || !p.last.IsZero() {
				plans = append(plans, p)
			}
			if !next.IsZero() && next.Before(first) {
				first = next
			}
		}
	}
	return plans, first
}

func tenants(spec saga.ScheduleSpec) []string {
	if len(spec.Tenants) == 0 {
		return []string{""}
	}
	return spec.Tenants
}

func (c *calendar) planOne(set Sagas, s schedule, catchup string, now time.Time) (plan, time.Time) {
	last, seen := c.last[s]
	if !seen { // a new schedule does not start for times before it was loaded
		return plan{schedule: s, last: now}, set.NextSchedule(s.saga, s.name, now)
	}
	due, next := missed(set, s, last, now)
	if len(due) == 0 {
		return plan{}, next
	}
	if len(due) >= maxScan {
		c.log.Warn("a schedule missed too many due times, they are given up", zap.String("tenant", s.tenant),
			zap.String("saga", s.saga), zap.String("schedule", s.name), zap.Int("missed", len(due)))
		return plan{schedule: s, last: due[len(due)-1]}, now
	}
	p := plan{schedule: s, starts: pick(due, catchup, now)}
	if len(p.starts) == 0 {
		p.last = due[len(due)-1]
	}
	return p, next
}

// missed lists the due times after last and up to now, and the first one after now.
func missed(set Sagas, s schedule, last, now time.Time) ([]time.Time, time.Time) {
	var due []time.Time
	next := set.NextSchedule(s.saga, s.name, last)
	for !next.IsZero() && !next.After(now) && len(due) < maxScan {
		due = append(due, next)
		next = set.NextSchedule(s.saga, s.name, next)
	}
	return due, next
}

// pick chooses the due times that start an instance.
func pick(due []time.Time, catchup string, now time.Time) []time.Time {
	newest := due[len(due)-1:]
	switch {
	case catchup == "all":
		return due[max(0, len(due)-maxCatchup):]
	case catchup == "none" && now.Sub(newest[0]) > punctual:
		return nil
	default:
		return newest
	}
}

// record commits the position of the schedules that start nothing.
func (c *calendar) record(ctx context.Context, plans []plan) error {
	var change store.Change
	for _, p := range plans {
		if !p.last.IsZero() {
			change.Schedules = append(change.Schedules, p.row(p.last))
		}
	}
	if len(change.Schedules) == 0 {
		return nil
	}
	if err := c.db.Commit(ctx, change); err != nil {
		return fmt.Errorf("record the schedules: %w", err)
	}
	for _, r := range change.Schedules {
		c.last[schedule{r.Tenant, r.Saga, r.Name}] = r.Last
	}
	return nil
}

// start starts the planned due times: those of one schedule in order, schedules concurrently.
func (c *calendar) start(ctx context.Context, set Sagas, plans []plan) error {
	var g errgroup.Group
	g.SetLimit(startsAtOnce)
	reached := make([]time.Time, len(plans))
	for i, p := range plans {
		g.Go(func() (err error) {
			reached[i], err = c.startOne(ctx, set, p)
			return err
		})
	}
	err := g.Wait()
	for i, p := range plans {
		if !reached[i].IsZero() {
			c.last[p.schedule] = reached[i]
		}
	}
	return err
}

// startOne returns the last due time that is durably started.
func (c *calendar) startOne(ctx context.Context, set Sagas, p plan) (reached time.Time, err error) {
	for _, due := range p.starts {
		ev := set.ScheduleEvent(p.saga, p.name, p.tenant, due)
		if err := c.engine.Start(ctx, ev, p.row(due)); err != nil {
			return reached, fmt.Errorf("start schedule %s of %s: %w", p.name, p.saga, err)
		}
		reached = due
	}
	return reached, nil
}
