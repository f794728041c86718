package saga

import (
	"sort"
	"strings"
	"time"

	"github.com/adhocore/gronx"

	"edda"
	"edda/internal/calendar"
	"edda/internal/jsonvalue"
	"edda/manifests"
)

// ScheduleSpec is one schedule of one saga's newest version.
type ScheduleSpec struct {
	Saga, Name string
	Tenants    []string // one empty tenant if the manifest names none
	Catchup    string   // last, all or none
}

// Schedules lists every schedule of the set.
func (s *Set) Schedules() []ScheduleSpec {
	var out []ScheduleSpec
	for _, name := range s.names {
		p := s.Starts(name)
		if p == nil {
			continue
		}
		for _, sc := range p.m.Schedule {
			spec := ScheduleSpec{Saga: name, Name: sc.Name.Text, Tenants: sc.Tenants, Catchup: sc.Catchup}
			if len(spec.Tenants) == 0 {
				spec.Tenants = []string{""}
			}
			out = append(out, spec)
		}
	}
	return out
}

func (s *Set) schedule(saga, name string) (manifests.Schedule, *Program) {
	if p := s.Newest(saga); p != nil {
		for _, sc := range p.m.Schedule {
			if sc.Name.Text == name {
				return sc, p
			}
		}
	}
	return manifests.Schedule{}, nil
}

// NextSchedule is the first due time after t; zero when there is none.
func (s *Set) NextSchedule(saga, name string, t time.Time) time.Time {
	sc, p := s.schedule(saga, name)
	if p == nil {
		return time.Time{}
	}
	if sc.Every != nil {
		return t.UTC().Truncate(sc.Every.D).Add(sc.Every.D)
	}
	zone, err := calendar.Zone(sc.Zone)
	if err != nil {
		return time.Time{}
	}
	return nextTick(sc.Cron, t, zone)
}

// nextTick returns the first time after t at which a cron expression fires by the clocks of a zone;
// zero if there is none. Times that the clocks skip or show twice have the calendar's rule.
func nextTick(cron string, t time.Time, zone *time.Location) time.Time {
	from := calendar.Shown(t, zone)
	before := t.Add(-24 * time.Hour)
	if skipped := from.Sub(t) - calendar.Shown(before, zone).Sub(before); skipped > 0 {
		if earlier := t.Add(-skipped); calendar.Shown(earlier, zone).Sub(earlier) != from.Sub(t) {
			from = from.Add(-skipped) // what was skipped may fire only now
		}
	}
	var next time.Time
	for {
		tick, err := gronx.NextTickAfter(cron, from, false)
		if err != nil {
			return next
		}
		at := calendar.Moment(tick, zone)
		if at.After(t) && (next.IsZero() || at.Before(next)) {
			next = at
		}
		inOrder := func(shown time.Time) bool { // from here on ticks are in order
			at := calendar.Moment(shown, zone)
			return at.After(t) && calendar.Shown(at, zone).Equal(shown)
		}
		if inOrder(tick) {
			return next
		}
		// The clocks show the tick for the second time, or skip it. An expression with seconds has
		// thousands of such ticks, and none of them is earlier.
		from = tick.Add(time.Duration(sort.Search(secondsOfDay, func(s int) bool {
			return inOrder(tick.Add(time.Duration(s+1) * time.Second))
		})) * time.Second)
	}
}

// secondsOfDay is more than the seconds that the clocks of a zone skip or show twice at once.
const secondsOfDay = 24*60*60 + 1

// ScheduleEvent makes the event of a due schedule. Its id is derived, so that a restart starts
// nothing twice.
func (s *Set) ScheduleEvent(saga, name, tenant string, due time.Time) edda.Event {
	payload := map[string]any{}
	if sc, _ := s.schedule(saga, name); sc.With != nil {
		with, _ := sc.With.Const() // a new value each time
		if fields, ok := with.(map[string]any); ok {
			payload = fields
		}
	}
	payload["name"], payload["due"] = name, edda.FormatTime(due)
	raw, _ := jsonvalue.Encode(payload)
	id := strings.Join([]string{"schedule", tenant, saga, name, edda.FormatTime(due)}, "/")
	return edda.Event{
		Kind: edda.KindSchedule, ID: id, Tenant: tenant, Key: edda.Key{Tenant: tenant, Saga: saga}, Type: name,
		Time: due, Timestamp: due, Payload: raw, Correlation: name + "@" + edda.FormatTime(due),
	}
}

func (c *compiler) schedule(sc manifests.Schedule) {
	if sc.Cron != "" && !c.p.o.Kept {
		if _, err := gronx.NextTickAfter(sc.Cron, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), false); err != nil && gronx.New().IsValid(sc.Cron) {
			c.errorf(sc.CronPos, "schedule %s: %q never comes", sc.Name.Text, sc.Cron)
		}
	}
	if sc.Cron != "" && !gronx.New().IsValid(sc.Cron) {
		c.errorf(sc.CronPos, "schedule %s: %q is no cron expression: minute hour day month weekday, such as \"0 2 * * *\"", sc.Name.Text, sc.Cron)
	}
	if sc.Every != nil && sc.Every.D < time.Second {
		c.errorf(sc.Every.Pos, "schedule %s: every %s is shorter than a second", sc.Name.Text, sc.Every.Text)
	}
	if sc.With != nil {
		if _, ok := sc.With.Const(); !ok {
			c.errorf(sc.With.Pos, "schedule %s: with holds an expression; a schedule's with is literal", sc.Name.Text)
		}
	}
	h := c.p.plain["schedule."+sc.Name.Text]
	switch {
	case h == nil:
		c.errorf(sc.Name.Pos, "schedule %s has no handler: add on: schedule.%s: {start: true, …}", sc.Name.Text, sc.Name.Text)
	case !h.src.Start:
		c.errorf(h.src.Pos, "schedule.%s must start instances: add start: true", sc.Name.Text)
	}
}
