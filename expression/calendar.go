package expression

import (
	"time"

	"edda/internal/calendar"
)

// maxBusinessDays bounds the days that addBusinessDays walks, one by one.
const maxBusinessDays = 10_000

// addMonths, addYears and addDays keep the time of day of a zone, UTC unless one is given.
func addMonths(_ *machine, args []any) any { return monthsLater("addMonths", args, 1) }

func addYears(_ *machine, args []any) any { return monthsLater("addYears", args, 12) }

func monthsLater(name string, args []any, months int) any {
	t, zone := toTime(name, args[0]), zoneOf(name, args, 2)
	n := within(name, args[1], calendar.MaxMonths/months)
	return stamp(calendar.AddMonths(t, n*months, zone))
}

func addDays(_ *machine, args []any) any {
	t, zone := toTime("addDays", args[0]), zoneOf("addDays", args, 2)
	return stamp(calendar.AddDays(t, within("addDays", args[1], calendar.MaxDays), zone))
}

// addBusinessDays takes the holidays as a list of dates.
func addBusinessDays(m *machine, args []any) any {
	const name = "addBusinessDays"
	t, zone, n := toTime(name, args[0]), zoneOf(name, args, 2), within(name, args[1], maxBusinessDays)
	var list []any
	if len(args) == 4 {
		list = asList(name, args[3])
	}
	m.charge(4*max(n, -n) + 8*len(list))
	holidays := make(map[time.Time]bool, len(list))
	for _, item := range list {
		day, err := calendar.ParseDate(text(name, item))
		if err != nil {
			fail("%s: a holiday: %v", name, err)
		}
		holidays[day] = true
	}
	return stamp(calendar.AddBusinessDays(t, n, zone, func(date time.Time) bool { return holidays[date] }))
}

// atTime returns a time of day on the day of a time.
func atTime(_ *machine, args []any) any {
	t, zone := toTime("atTime", args[0]), zoneOf("atTime", args, 2)
	clock, err := calendar.ParseClock(text("atTime", args[1]))
	if err != nil {
		fail("atTime: %v", err)
	}
	return stamp(calendar.AtTime(t, clock, zone))
}

// zoneOf returns the zone of an argument, UTC without it.
func zoneOf(name string, args []any, at int) *time.Location {
	if len(args) <= at {
		return time.UTC
	}
	zone, err := calendar.Zone(text(name, args[at]))
	if err != nil {
		fail("%s: %v", name, err)
	}
	return zone
}

// within returns an integer that is not beyond a bound in either direction.
func within(name string, v any, bound int) int {
	n := integer(name, v)
	if n > bound || n < -bound {
		fail("%s: a number from -%d to %d is needed", name, bound, bound)
	}
	return n
}
