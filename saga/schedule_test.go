package saga

import (
	"slices"
	"testing"
	"time"

	"github.com/adhocore/gronx"
	"pgregory.net/rapid"

	"edda/internal/calendar"
)

// TestACronFiresOnceOnADayWhoseClocksChange: a nightly run is neither left out nor made twice.
func TestACronFiresOnceOnADayWhoseClocksChange(t *testing.T) {
	for _, tt := range []struct{ name, cron, after, want string }{
		{"the skipped hour", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z 2026-03-30T00:30:00Z"},
		{"the hour that comes twice", "30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"within the second of both", "30 2 * * *", "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z 2026-10-27T01:30:00Z"},
		{"two in the skipped hour", "0,30 2 * * *", "2026-03-29T00:59:00Z", "2026-03-29T01:00:00Z 2026-03-29T01:30:00Z"},
		{"each hour in spring", "0 * * * *", "2026-03-28T23:30:00Z", "2026-03-29T00:00:00Z 2026-03-29T01:00:00Z 2026-03-29T02:00:00Z"},
		{"a time that is always there", "0 9 * * *", "2026-03-28T12:00:00Z", "2026-03-29T07:00:00Z 2026-03-30T07:00:00Z"},
	} {
		zone, err := calendar.Zone("Europe/Brussels")
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, tt.after)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for len(got) < len(tt.want) {
			at = nextTick(tt.cron, at, zone)
			got += " " + at.Format(time.RFC3339)
		}
		if got[1:] != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got[1:], tt.want)
		}
	}
}

// TestACronFiresAtEachOfItsTimes compares with all times of three days around a change of clocks.
func TestACronFiresAtEachOfItsTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, err := calendar.Zone(rapid.SampledFrom([]string{"Europe/Brussels", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		cron := rapid.SampledFrom([]string{"30 2 * * *", "0,30 1,2,3 * * *", "*/20 * * * *", "0 0 * * *", "15 */2 * * *", "45 23 * * 6", "7,40 */29 * * * *"}).Draw(t, "cron")
		start := time.Date(rapid.IntRange(2000, 2040).Draw(t, "year"), 1, 1, 0, 0, 0, 0, zone)
		_, change := start.ZoneBounds()
		if _, second := change.ZoneBounds(); rapid.Bool().Draw(t, "the second") && !second.IsZero() {
			change = second
		}
		if change.IsZero() {
			return
		}
		var all []time.Time
		end := calendar.Shown(change, zone).AddDate(0, 0, 5)
		for at := calendar.Shown(change, zone).AddDate(0, 0, -2); at.Before(end); {
			at, err = gronx.NextTickAfter(cron, at, false)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, calendar.Moment(at, zone))
		}
		slices.SortFunc(all, time.Time.Compare)
		after := change.Add(time.Duration(rapid.IntRange(-90_000, 90_000).Draw(t, "from the change")) * time.Second)
		i := slices.IndexFunc(all, func(at time.Time) bool { return at.After(after) })
		if got := nextTick(cron, after, zone); i >= 0 && i < len(all)-1 && !got.Equal(all[i]) {
			t.Fatalf("%s after %v is %v, want %v", cron, after, got, all[i])
		}
	})
}

// TestACronWithSecondsIsCheapWhereTheClocksChange: an hour of ticks that are skipped or come twice
// costs a few steps, and not one for each second.
func TestACronWithSecondsIsCheapWhereTheClocksChange(t *testing.T) {
	zone, err := calendar.Zone("Europe/Brussels")
	if err != nil {
		t.Fatal(err)
	}
	cost := func(after string) float64 {
		at, err := time.Parse(time.RFC3339, after)
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1, func() { nextTick("* * * * * *", at, zone) })
	}
	usual := cost("2026-10-20T01:00:00Z")
	for _, after := range []string{"2026-10-25T01:00:00Z", "2026-03-29T00:59:59Z", "2026-03-29T01:10:00Z"} {
		if got := cost(after); got > 4*usual {
			t.Errorf("after %s it allocates %.0f times, and usually %.0f", after, got, usual)
		}
	}
}

// An empty zone has always been UTC, and a stored text may have one.
func TestAScheduleWithAnEmptyZoneIsInUTC(t *testing.T) {
	set := setOf(t, "saga: s\nkey: event.due\nschedule: {n: {cron: \"0 9 * * *\", zone: \"\"}}\non:\n  schedule.n: {start: true, do: [{done: }]}\n")
	if got, want := set.NextSchedule("s", "n", testStart), testStart.Add(9*time.Hour); !got.Equal(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
