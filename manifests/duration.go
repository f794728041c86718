package manifests

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// day is the length of the unit d.
const day = 24 * time.Hour

// ParseDuration parses Go's durations and those that begin with days: 7d, 1d12h, 1.5d. A day is 24
// hours.
func ParseDuration(s string) (time.Duration, error) {
	unsigned := strings.TrimLeft(s, "+-")
	sign := s[:len(s)-len(unsigned)]
	days, rest, has := strings.Cut(unsigned, "d")
	if !has {
		days, rest = "", unsigned
	}
	if len(sign) > 1 || has && rest != "" && strings.ContainsAny(rest[:1], "+-") {
		return 0, badDuration(s)
	}
	whole, err := parseDays(days, has)
	if err != nil {
		return 0, badDuration(s)
	}
	var part time.Duration
	if rest != "" || !has {
		if part, err = time.ParseDuration(rest); err != nil {
			return 0, badDuration(s)
		}
	}
	if whole > math.MaxInt64-part {
		return 0, badDuration(s)
	}
	if sign == "-" {
		return -(whole + part), nil
	}
	return whole + part, nil
}

func parseDays(text string, has bool) (time.Duration, error) {
	if !has {
		return 0, nil
	}
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f*float64(day) >= math.MaxInt64 {
		return 0, strconv.ErrRange
	}
	return time.Duration(f * float64(day)), nil
}

func badDuration(s string) error {
	return fmt.Errorf("%q is not a duration: write it as 90s, 30m, 36h or 1d12h%s", shorten(s), periodHint(s))
}

// periodHint says how a timer repeats by the calendar, if a text may mean that.
func periodHint(s string) string {
	for _, word := range []string{"day", "daily", "week", "month", "mo", "year", "annual"} {
		if strings.Contains(strings.ToLower(s), word) {
			return "; a timer's period of the calendar is a number and a unit: 1 day, 2 weeks, 1 month, 1 year"
		}
	}
	return ""
}
