package calendar

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zoneOf(t interface{ Fatal(...any) }, name string) *time.Location {
	z, err := Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func parse(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestMonthsKeepTheLastDayAndTheTimeOfDay(t *testing.T) {
	for _, tt := range []struct {
		from string
		n    int
		zone string
		want string
	}{
		{"2026-01-31T10:00:00Z", 1, "UTC", "2026-02-28T10:00:00Z"},
		{"2028-01-31T10:00:00Z", 1, "UTC", "2028-02-29T10:00:00Z"},
		{"2026-01-31T10:00:00Z", 2, "UTC", "2026-03-31T10:00:00Z"},
		{"2026-03-31T10:00:00Z", -1, "UTC", "2026-02-28T10:00:00Z"},
		{"2024-02-29T10:00:00Z", 12, "UTC", "2025-02-28T10:00:00Z"},
		{"2024-02-29T10:00:00Z", 48, "UTC", "2028-02-29T10:00:00Z"},
		{"2026-01-15T10:00:00Z", -13, "UTC", "2024-12-15T10:00:00Z"},
		{"2026-02-28T08:00:00Z", 1, "Europe/Brussels", "2026-03-28T08:00:00Z"}, // both in winter
		{"2026-03-15T08:00:00Z", 1, "Europe/Brussels", "2026-04-15T07:00:00Z"}, // 9:00 there
		{"2026-01-31T23:30:00Z", 1, "Europe/Brussels", "2026-02-28T23:30:00Z"}, // 1 February there
		{"2026-02-28T01:30:00Z", 1, "Europe/Brussels", "2026-03-28T01:30:00Z"}, // 2:30, the day before the change
		{"2026-01-29T01:30:00Z", 2, "Europe/Brussels", "2026-03-29T01:30:00Z"}, // 2:30 is skipped: 3:30
		{"2026-09-25T00:30:00Z", 1, "Europe/Brussels", "2026-10-25T00:30:00Z"}, // 2:30 comes twice: the first
		{"2026-01-31T10:00:00Z", 0, "Europe/Brussels", "2026-01-31T10:00:00Z"},
	} {
		got := AddMonths(parse(t, tt.from), tt.n, zoneOf(t, tt.zone)).Format(time.RFC3339)
		if got != tt.want {
			t.Errorf("%s + %d months in %s is %s, want %s", tt.from, tt.n, tt.zone, got, tt.want)
		}
	}
}

// A day is a date, and has 23 or 25 hours where the clocks change.
func TestDaysKeepTheTimeOfDay(t *testing.T) {
	for _, tt := range []struct {
		from string
		n    int
		zone string
		want string
	}{
		{"2026-03-28T08:00:00Z", 1, "Europe/Brussels", "2026-03-29T07:00:00Z"},
		{"2026-10-24T07:00:00Z", 1, "Europe/Brussels", "2026-10-25T08:00:00Z"},
		{"2026-03-28T01:30:00Z", 1, "Europe/Brussels", "2026-03-29T01:30:00Z"},
		{"2026-10-24T00:30:00Z", 1, "Europe/Brussels", "2026-10-25T00:30:00Z"},
		{"2026-10-26T01:30:00Z", -1, "Europe/Brussels", "2026-10-25T00:30:00Z"}, // the first of the two, also backwards
		{"2026-10-25T01:30:00Z", 0, "Europe/Brussels", "2026-10-25T01:30:00Z"},  // the second stays
		{"2026-03-07T12:00:00Z", 1, "America/New_York", "2026-03-08T11:00:00Z"},
		{"2011-12-29T20:00:00Z", 1, "Pacific/Apia", "2011-12-30T20:00:00Z"},        // the 30th of December was skipped there
		{"2026-04-04T14:30:00Z", 1, "Australia/Lord_Howe", "2026-04-05T15:00:00Z"}, // clocks go back half an hour: 1:30
	} {
		got := AddDays(parse(t, tt.from), tt.n, zoneOf(t, tt.zone)).Format(time.RFC3339)
		if got != tt.want {
			t.Errorf("%s + %d days in %s is %s, want %s", tt.from, tt.n, tt.zone, got, tt.want)
		}
	}
}

func TestBusinessDaysLeaveWeekendsAndHolidaysOut(t *testing.T) {
	holidays := []string{"2026-12-25", "2027-01-01"}
	off := func(date time.Time) bool { return slices.Contains(holidays, date.Format(time.DateOnly)) }
	for _, tt := range []struct {
		from string
		n    int
		want string
	}{
		{"2026-12-24T23:30:00Z", 0, "2026-12-27T23:30:00Z"}, // there it is the 25th already, a holiday: the 28th
		{"2026-12-24T10:00:00Z", 0, "2026-12-24T10:00:00Z"},
		{"2026-12-24T10:00:00Z", 1, "2026-12-28T10:00:00Z"},
		{"2026-12-24T10:00:00Z", 5, "2027-01-04T10:00:00Z"},
		{"2026-12-26T10:00:00Z", 1, "2026-12-28T10:00:00Z"}, // from a Saturday
		{"2026-12-26T10:00:00Z", 0, "2026-12-28T10:00:00Z"},
		{"2026-12-28T10:00:00Z", -1, "2026-12-24T10:00:00Z"},
		{"2026-12-26T10:00:00Z", -1, "2026-12-24T10:00:00Z"},
		{"2026-03-27T08:00:00Z", 1, "2026-03-30T07:00:00Z"}, // the clocks change on the weekend
	} {
		got := AddBusinessDays(parse(t, tt.from), tt.n, zoneOf(t, "Europe/Brussels"), off).Format(time.RFC3339)
		if got != tt.want {
			t.Errorf("%s + %d business days is %s, want %s", tt.from, tt.n, got, tt.want)
		}
	}
}

func TestATimeOfDay(t *testing.T) {
	for _, tt := range []struct{ at, clock, zone, want string }{
		{"2026-06-01T23:00:00Z", "9:00", "Europe/Brussels", "2026-06-02T07:00:00Z"}, // it is the 2nd there
		{"2026-03-29T12:00:00Z", "2:30", "Europe/Brussels", "2026-03-29T01:30:00Z"}, // skipped: 3:30
		{"2026-10-25T12:00:00Z", "2:30", "Europe/Brussels", "2026-10-25T00:30:00Z"}, // twice: the first
		{"2026-10-25T12:00:00Z", "03:00:01", "Europe/Brussels", "2026-10-25T02:00:01Z"},
		{"2018-11-04T12:00:00Z", "0:00", "America/Sao_Paulo", "2018-11-04T03:00:00Z"}, // midnight was skipped
		{"2011-12-30T12:00:00Z", "0:00", "Pacific/Kiritimati", "2011-12-30T10:00:00Z"},
	} {
		clock, err := ParseClock(tt.clock)
		if err != nil {
			t.Fatal(err)
		}
		if got := AtTime(parse(t, tt.at), clock, zoneOf(t, tt.zone)).Format(time.RFC3339); got != tt.want {
			t.Errorf("%s of %s in %s is %s, want %s", tt.clock, tt.at, tt.zone, got, tt.want)
		}
	}
	for _, text := range []string{"", "9", "24:00", "9:60", "9:0", "9.00", " 9:00", "9:00 ", "009:00", "-1:00", "9:00:00.5", "9:00Z"} {
		if clock, err := ParseClock(text); err == nil {
			t.Errorf("%q is %v", text, clock)
		}
	}
}

func TestPeriods(t *testing.T) {
	for text, want := range map[string]Period{"1 day": {Days: 1}, "2 weeks": {Days: 14}, "1 month": {Months: 1}, "2 years": {Months: 24}, "100 years": {Months: 1200}} {
		if got, ok, err := ParsePeriod(text); got != want || !ok || err != nil {
			t.Errorf("%q is %v, %v, %v", text, got, ok, err)
		}
	}
	for _, text := range []string{"", "1d", "30m", "month", "one month", "-1 month", "1.5 months", "1  month", "1 fortnight", "1month", "+1 day"} {
		if _, ok, err := ParsePeriod(text); ok || err != nil {
			t.Errorf("%q is a period (%v)", text, err)
		}
	}
	for _, text := range []string{"0 days", "101 years", "1201 months", "99999999999999999999 days", "36601 days", "1537228672809129302 years", "1317624576693539402 weeks"} {
		if _, ok, err := ParsePeriod(text); !ok || err == nil {
			t.Errorf("%q: %v, %v", text, ok, err)
		}
	}
}

func TestASeriesFromAnAnchorDoesNotDrift(t *testing.T) {
	var got []string
	p := Period{Months: 1}
	for n := range 14 {
		got = append(got, p.After(parse(t, "2027-12-31T08:00:00Z"), n, zoneOf(t, "Europe/Brussels")).Format("01-02 15"))
	}
	want := "12-31 08, 01-31 08, 02-29 08, 03-31 07, 04-30 07, 05-31 07, 06-30 07, 07-31 07, 08-31 07, 09-30 07, 10-31 08, 11-30 08, 12-31 08, 01-31 08"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s, want\n%s", s, want)
	}
}

func TestAZoneIsAnIANAName(t *testing.T) {
	for _, name := range []string{"", "Local", "europe/brussels", "Europe", "../Europe/Brussels", "CEST", "+02:00"} {
		if z, err := Zone(name); err == nil {
			t.Errorf("%q is %v", name, z)
		}
	}
	names := make([]string, 0, len(zones()))
	for name, load := range zones() {
		if _, err := load(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		names = append(names, name)
	}
	if len(names) < 400 {
		t.Errorf("only %d zones", len(names))
	}
}

// drawn draws a time of the years 1970 to 2100 in a zone, often within two days of a change of its clocks.
func drawn(t *rapid.T) (time.Time, *time.Location) {
	zone := zoneOf(t, rapid.SampledFrom([]string{
		"UTC", "Europe/Brussels", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu",
		"Africa/Casablanca", "Antarctica/Troll", "America/St_Johns",
	}).Draw(t, "zone"))
	at := time.UnixMilli(rapid.Int64Range(0, 4_102_444_800_000).Draw(t, "time")).In(zone)
	if _, end := at.ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "at a change") {
		at = end.Add(time.Duration(rapid.Int64Range(-48*3600, 48*3600).Draw(t, "from the change")) * time.Second)
	}
	return at, zone
}

// TestAMomentShowsItsLocalTime compares with the clocks: they show what was asked for, unless they
// skip it; then no moment near shows it, and the result is as long after the change as it would be
// without one.
func TestAMomentShowsItsLocalTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		near, zone := drawn(t)
		shown := dateOf(near).Add(time.Duration(rapid.IntRange(0, 24*3600-1).Draw(t, "second")) * time.Second)
		got := Moment(shown, zone).In(zone)
		if wall := Shown(got, zone); wall.Equal(shown) {
			for _, back := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour, 24 * time.Hour} {
				if other := got.Add(-back); Shown(other, zone).Equal(shown) {
					t.Fatalf("%v is shown at %v already, not first at %v", shown, other, got)
				}
			}
			return
		}
		skipped := Shown(got, zone).Sub(shown)
		change := got.Add(-skipped) // it lies within the last of that time
		if skipped <= 0 || offset(got)-offset(change.Add(-time.Second)) != skipped || !shown.Add(-offset(change.Add(-time.Second))).Equal(got) {
			t.Fatalf("%v is %v, %v later", shown, got, skipped)
		}
	})
}

func TestLaterTimesStayLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, zone := drawn(t)
		n := rapid.IntRange(1, 400).Draw(t, "n")
		if !AddDays(a, n, zone).After(a) || !AddMonths(a, n, zone).After(a) || AddDays(a, n+1, zone).Before(AddDays(a, n, zone)) {
			t.Fatalf("%v, %d", a, n)
		}
		p := Period{Days: rapid.IntRange(0, 40).Draw(t, "days")}
		if p.Days == 0 {
			p.Months = rapid.IntRange(1, 30).Draw(t, "months")
		}
		x, y := p.After(a, n, zone), p.After(a, n+1, zone)
		if !y.After(x) && zone.String() != "Pacific/Apia" { // it had no 30 December 2011
			t.Fatalf("the %dth is %v, the next %v", n, x, y)
		}
		if y.Sub(x) < p.Least() && zone.String() != "Pacific/Apia" {
			t.Fatalf("from %v to %v is shorter than %v", x, y, p.Least())
		}
	})
}

func TestBusinessDaysGoBackToWhereTheyCameFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, zone := drawn(t)
		noon, _ := ParseClock("12:00") // no zone changes its clocks at noon
		at = AtTime(at, noon, zone)
		holidays := map[int]bool{}
		for _, d := range rapid.SliceOfN(rapid.IntRange(0, 30), 0, 10).Draw(t, "holidays") {
			holidays[d] = true
		}
		off := func(date time.Time) bool { return holidays[date.Day()] }
		from := AddBusinessDays(at, 0, zone, off)
		n := rapid.IntRange(0, 60).Draw(t, "n")
		to := AddBusinessDays(from, n, zone, off)
		if n > 0 && !AddBusinessDays(to, -n, zone, off).Equal(from) {
			t.Fatalf("%v + %d is %v", from, n, to)
		}
		if day := to.In(zone); day.Weekday() == time.Saturday || day.Weekday() == time.Sunday || off(day) {
			t.Fatalf("%v is no business day", day)
		}
	})
}
