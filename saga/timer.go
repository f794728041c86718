package saga

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"edda"
	"edda/internal/calendar"
)

// minEvery bounds a repeating timer, because each firing adds a row of history.
const minEvery = time.Millisecond

// armTimer arms a named timer, and replaces an armed one of that name.
func (r *run) armTimer(a *action, sc *scope, _ *member) error {
	t := edda.Timer{Name: a.src.Name.Text, Order: r.ordinal(), Catchup: a.src.Catchup}
	text, err := "", error(nil)
	if length := cmp.Or(a.after, a.every); length == nil {
		text, err = r.timerAt(&t, a, sc)
	} else {
		text, err = r.timerIn(&t, a, length, sc)
	}
	if err != nil {
		return err
	}
	if !r.running() {
		return nil // timers end with the saga
	}
	r.dropTimer(t.Name)
	r.in.Timers = append(r.in.Timers, t)
	r.output(edda.Output{Word: "timer", Name: t.Name, For: text})
	return nil
}

// timerAt sets the due time of a timer with a time. It returns the time as people write it.
func (r *run) timerAt(t *edda.Timer, a *action, sc *scope) (string, error) {
	x, err := a.at.eval(sc)
	if err != nil {
		return "", err
	}
	stamp, _ := x.(string)
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return "", r.poison("timer: at is not an RFC 3339 time: %.60v", x)
	}
	t.Due = clockMillis(at)
	return edda.FormatTime(at), nil
}

// timerIn sets the due time of a timer with a duration or a calendar period. It returns the length.
func (r *run) timerIn(t *edda.Timer, a *action, length *value, sc *scope) (string, error) {
	x, err := length.eval(sc)
	if err != nil {
		return "", err
	}
	text, _ := x.(string)
	if _, ok, err := calendar.ParsePeriod(text); err != nil {
		return "", r.poison("timer: %v", err)
	} else if ok {
		return text, r.timerByCalendar(t, a, text, sc)
	}
	d, err := r.durationOf(x)
	switch {
	case err != nil:
		return "", err
	case a.at != nil || a.zone != nil:
		return "", r.poison("timer: %s is as long in every zone and at any time of day: at and zone belong to days, weeks, months and years, such as 1 day", durationText(d))
	case a.every == nil:
		t.Due = r.now.Add(max(d, 0))
	case d < minEvery:
		return "", r.poison("timer: every %s is shorter than %s", durationText(d), durationText(minEvery))
	default:
		t.Due, t.Every = r.now.Add(d), d
	}
	return durationText(d), nil
}

func (r *run) timerByCalendar(t *edda.Timer, a *action, every string, sc *scope) error {
	c := edda.Calendar{Every: every, Zone: "UTC", Anchor: r.now, N: 1}
	var err error
	if a.zone != nil {
		if c.Zone, err = r.identifier(a.zone, sc, "timer: zone"); err != nil {
			return err
		}
	}
	if _, err := calendar.Zone(c.Zone); err != nil {
		return r.poison("timer: %v", err)
	}
	if a.at != nil {
		if c.At, err = r.identifier(a.at, sc, "timer: at"); err != nil {
			return err
		}
		if _, err := calendar.ParseClock(c.At); err != nil {
			return r.poison("timer: at beside after or every: %v", err)
		}
	}
	t.Due = occurs(c)
	if a.every != nil {
		t.Calendar = &c
	}
	return nil
}

// occurs returns when occurrence N of a calendar is. The fields were checked when it was armed, and
// the zone data of a later build lacks no zone of an older one.
func occurs(c edda.Calendar) time.Time {
	zone, err := calendar.Zone(c.Zone)
	if err != nil {
		zone = time.UTC
	}
	p, _, _ := calendar.ParsePeriod(c.Every)
	at := p.After(calendar.Shown(c.Anchor, zone), c.N, time.UTC) // by the clock, which may skip it that day
	if clock, err := calendar.ParseClock(c.At); err == nil {
		at = calendar.AtTime(at, clock, time.UTC)
	}
	return clockMillis(calendar.Moment(at, zone))
}

func repeats(t *edda.Timer) bool { return t.Every > 0 || t.Calendar != nil }

// latest returns the last occurrence of a repeating timer up to the horizon, with its number in the
// calendar. The horizon is not before the due time. The due time is the stored one, also if the zone
// data has changed since.
func latest(t *edda.Timer, horizon time.Time) (at time.Time, n int) {
	if t.Calendar == nil {
		return t.Due.Add(horizon.Sub(t.Due) / t.Every * t.Every), 0
	}
	c := *t.Calendar
	p, _, _ := calendar.ParsePeriod(c.Every)
	least := max(p.Least(), minEvery) // of a stored period that this build cannot read
	more := sort.Search(int(horizon.Sub(t.Due)/least)+1, func(i int) bool {
		next := c
		next.N += i + 1
		return occurs(next).After(horizon)
	})
	if more == 0 {
		return t.Due, c.N
	}
	c.N += more
	return occurs(c), c.N
}

// moveOn moves a repeating timer to the occurrence after the one that fired at a time.
func moveOn(t *edda.Timer, fired time.Time) {
	if t.Calendar == nil {
		t.Due = fired.Add(t.Every)
		return
	}
	next := *t.Calendar
	_, next.N = latest(t, fired)
	next.N++
	t.Calendar, t.Due = &next, occurs(next)
}

// sameSeries reports whether two timers repeat alike.
func sameSeries(a, b *edda.Timer) bool {
	x, y := a.Calendar, b.Calendar
	if x == nil || y == nil {
		return x == y && a.Every == b.Every
	}
	return x.Every == y.Every && x.Zone == y.Zone && x.At == y.At && x.Anchor.Equal(y.Anchor)
}

func (r *run) dropTimer(name string) bool {
	n := len(r.in.Timers)
	r.in.Timers = slices.DeleteFunc(r.in.Timers, func(t edda.Timer) bool { return t.Name == name && !t.Deadline })
	return len(r.in.Timers) < n
}
