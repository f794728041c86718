package expression

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"edda"
	"edda/internal/calendar"
)

// maxTimeText is longer than any formatted time or duration.
const maxTimeText = 64

// ParseDuration parses a duration in Go's form, with d for 24 h: "36h", "7d", "1d12h30m".
func ParseDuration(s string) (time.Duration, error) {
	if len(s) > maxTimeText {
		return 0, notDuration(s)
	}
	rest, negative := strings.CutPrefix(s, "-")
	days, rest, found := strings.Cut(rest, "d")
	if !found {
		return parseDuration(s, s)
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || strings.ContainsAny(days, "+-eExXnNiI_") {
		return 0, notDuration(s)
	}
	var more time.Duration
	if rest != "" {
		if more, err = parseDuration(rest, s); err != nil || strings.ContainsAny(rest[:1], "+-") {
			return 0, notDuration(s)
		}
	}
	total := n*float64(24*time.Hour) + float64(more)
	if total >= math.MaxInt64 {
		return 0, notDuration(s)
	}
	d := time.Duration(n*float64(24*time.Hour)) + more
	if negative {
		return -d, nil
	}
	return d, nil
}

func parseDuration(s, whole string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, notDuration(whole)
	}
	return d, nil
}

func notDuration(s string) error {
	if _, ok, _ := calendar.ParsePeriod(s); ok {
		return fmt.Errorf("%.20q is not a duration, whose units are of one length: use addDays, addMonths or addYears", s)
	}
	return fmt.Errorf("%.20q is not a duration: write it like 90s, 36h or 7d", s)
}

// duration returns a duration, a type of its own during the evaluation: it compares, adds and
// scales. The result of an expression has it as a text in Go's form.
func duration(_ *machine, args []any) any {
	return toDuration("duration", args[0])
}

func toDuration(name string, v any) time.Duration {
	if d, ok := v.(time.Duration); ok {
		return d
	}
	d, err := ParseDuration(text(name, v))
	if err != nil {
		fail("%s: %v", name, err)
	}
	return d
}

// layouts are the forms that date parses besides RFC 3339, all in UTC.
var layouts = []string{time.RFC3339Nano, "2006-01-02", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04"}

func toTime(name string, v any) time.Time {
	s := text(name, v)
	for _, layout := range layouts {
		if len(s) > maxTimeText {
			break
		}
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	fail("%s: the text is not a time: it is written like 2026-01-31T10:30:00Z", name)
	return time.Time{}
}

// stamp formats a time like all times in values. Beyond year 9999 it fails, because texts would
// not compare in the order of time.
func stamp(t time.Time) any {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		fail("the time is out of range")
	}
	return edda.FormatTime(t)
}

// date converts a time to UTC with milliseconds, so that it compares as a text.
func date(_ *machine, args []any) any { return stamp(toTime("date", args[0])) }

func addTime(_ *machine, args []any) any {
	return stamp(toTime("addTime", args[0]).Add(toDuration("addTime", args[1])))
}

func shift(at string, by time.Duration) any { return stamp(toTime("+", at).Add(by)) }

// subtractTime is time - duration, and time - time.
func subtractTime(at string, by any) any {
	switch by := by.(type) {
	case time.Duration:
		return stamp(toTime("-", at).Add(-by))
	case string:
		d := toTime("-", at).Sub(toTime("-", by))
		if d == math.MaxInt64 || d == math.MinInt64 {
			overflow("-")
		}
		return d
	}
	mixed("-", at, by)
	return nil
}

func scale(d time.Duration, by any) any {
	if n, ok := by.(int); ok {
		return time.Duration(multiplyInt(int(d), n, "*"))
	}
	if _, ok := by.(time.Duration); ok {
		mixed("*", d, by)
	}
	return nanoseconds(float64(d)*float(by, "*"), "*")
}

// divideDuration by a duration gives a number: duration("90m") / duration("1h") is 1.5.
func divideDuration(d time.Duration, by any) any {
	divisor, ratio := by.(time.Duration)
	f := float64(divisor)
	if !ratio {
		f = float(by, "/")
	}
	if f == 0 {
		fail("/: division by zero")
	}
	if ratio {
		return number(float64(d) / f)
	}
	return nanoseconds(float64(d)/f, "/")
}

func nanoseconds(f float64, operation string) any {
	if math.Abs(f) >= math.MaxInt64 {
		overflow(operation)
	}
	return time.Duration(f)
}

// uuid derives an id from a name. The id is the same in every replay.
func uuid(m *machine, args []any) any {
	name := text("uuid", args[0])
	m.chargeText(len(name))
	if m.env.Source != nil {
		if id, ok := m.env.Source.UUID(name); ok {
			return id
		}
	}
	fail("uuid is not available here")
	return nil
}
