// Package calendar computes with days, months, years and times of day in time zones. It is pure,
// and has the time zone database in it, so that every machine computes the same.
//
// A local time that the clocks of a zone skip or show twice has one rule, that of RFC 5545. A
// skipped one counts by the offset before the change: where clocks go from 2:00 to 3:00, 2:30 is
// 3:30. Of two the first counts.
package calendar

import (
	"fmt"
	"time"
)

// Bounds of what is added at once. They reach over all years that a time may have.
const (
	MaxYears  = 10_000
	MaxMonths = 12 * MaxYears
	MaxDays   = 366 * MaxYears
)

// AddMonths adds months in a zone, at the same time of day. A day that the month lacks is its last
// day: 31 January and 1 month is 28 or 29 February. n is at most MaxMonths in either direction.
func AddMonths(t time.Time, n int, zone *time.Location) time.Time {
	if n == 0 {
		return t
	}
	local := t.In(zone)
	first := time.Date(local.Year(), local.Month()+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return Moment(first.AddDate(0, 0, min(local.Day(), last)-1).Add(clockOf(local)), zone)
}

// AddDays adds days in a zone, at the same time of day. n is at most MaxDays in either direction.
func AddDays(t time.Time, n int, zone *time.Location) time.Time {
	if n == 0 {
		return t
	}
	local := t.In(zone)
	return Moment(dateOf(local).AddDate(0, 0, n).Add(clockOf(local)), zone)
}

// AddBusinessDays goes n business days on, or back if n is negative, at the same time of day in a
// zone. With 0 it goes on to the next business day, if the day is none. A business day is a day from
// Monday to Friday for which off is false; off gets the date, as midnight in UTC. n is at most
// MaxDays in either direction, and off is called for each weekday passed.
func AddBusinessDays(t time.Time, n int, zone *time.Location, off func(date time.Time) bool) time.Time {
	local := t.In(zone)
	date, passed := dateOf(local), 0
	step, left := 1, n
	if n < 0 {
		step, left = -1, -n
	}
	open := func() bool {
		day := date.Weekday()
		return day != time.Saturday && day != time.Sunday && !off(date)
	}
	for n == 0 && !open() || left > 0 {
		date = date.AddDate(0, 0, step)
		passed++
		if left > 0 && open() {
			left--
		}
	}
	if passed == 0 {
		return t
	}
	return Moment(date.Add(clockOf(local)), zone)
}

// AtTime returns the time of day on the day that a time has in a zone.
func AtTime(t time.Time, clock Clock, zone *time.Location) time.Time {
	return Moment(dateOf(t.In(zone)).Add(time.Duration(clock)), zone)
}

// Shown returns what the clocks of a zone show at a time, as a time in UTC.
func Shown(t time.Time, zone *time.Location) time.Time {
	local := t.In(zone)
	return dateOf(local).Add(clockOf(local))
}

// dateOf returns the date that a clock shows, as midnight in UTC.
func dateOf(local time.Time) time.Time {
	return time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC)
}

// clockOf returns the time of day that a clock shows.
func clockOf(local time.Time) time.Duration {
	return time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute +
		time.Duration(local.Second())*time.Second + time.Duration(local.Nanosecond())
}

// maxOffset is more than any zone is or was from UTC. No zone changes its clocks twice within two of
// it.
const maxOffset = 16 * time.Hour

// Moment returns when the clocks of a zone show what shown shows in UTC, by the package's rule.
func Moment(shown time.Time, zone *time.Location) time.Time {
	before := offset(shown.Add(-maxOffset).In(zone))
	after := offset(shown.Add(maxOffset).In(zone))
	for _, o := range []time.Duration{before, after} {
		if t := shown.Add(-o).In(zone); offset(t) == o {
			return t.UTC()
		}
	}
	return shown.Add(-before).UTC() // the clocks skip it
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// Clock is a time of day, as the time since midnight on a day without changes.
type Clock time.Duration

// ParseClock parses 9:00, 09:00 or 23:59:59.
func ParseClock(text string) (Clock, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil && len(text) <= len(layout) {
			return Clock(clockOf(t)), nil
		}
	}
	return 0, fmt.Errorf("%.*q is no time of day: write it as in 9:00", maxShown, text)
}

// ParseDate parses a date such as 2026-12-25, as midnight in UTC.
func ParseDate(text string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, fmt.Errorf("%.*q is no date: write it as in 2026-12-25", maxShown, text)
	}
	return t, nil
}
