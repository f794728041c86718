package calendar

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Period is a length of time in a calendar: days, or months.
type Period struct{ Days, Months int }

// maxPeriodYears bounds a period, so that a sum of two is a time that can be written.
const maxPeriodYears = 100

// ParsePeriod parses a number of days, weeks, months or years: 1 month, 2 weeks. ok is false if the
// text has another form, such as that of a duration.
func ParsePeriod(text string) (p Period, ok bool, err error) {
	number, unit, spaced := strings.Cut(text, " ")
	if number == "" || strings.Trim(number, "0123456789") != "" {
		return p, false, nil
	}
	days, months := 0, 0
	switch strings.TrimSuffix(unit, "s") {
	case "day":
		days = 1
	case "week":
		days = 7
	case "month":
		months = 1
	case "year":
		months = 12
	default:
		return p, false, nil
	}
	n, err := strconv.Atoi(number)
	if !spaced || err != nil || n < 1 || n > 366*maxPeriodYears || n*months > 12*maxPeriodYears || n*days > 366*maxPeriodYears {
		return p, true, fmt.Errorf("%.*q is no period from 1 day to %d years", maxShown, text, maxPeriodYears)
	}
	return Period{n * days, n * months}, true, nil
}

// After returns the time n periods after an anchor. Each is counted from the anchor, so that the
// 31st of a month stays the 31st of the months that have it.
func (p Period) After(anchor time.Time, n int, zone *time.Location) time.Time {
	if p.Months > 0 {
		return AddMonths(anchor, n*p.Months, zone)
	}
	return AddDays(anchor, n*p.Days, zone)
}

// Least returns a length that no period of that size falls below.
func (p Period) Least() time.Duration {
	const day = 22 * time.Hour // a day on which the clocks go two hours on
	return time.Duration(p.Days+28*p.Months) * day
}
