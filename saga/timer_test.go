package saga

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda"
	"edda/internal/calendar"
	"edda/manifests"
)

// calendarTimer is a drawn timer that repeats by the calendar.
type calendarTimer struct {
	every, zone, at, catchup string
	start                    time.Time
}

func drawTimer(t *rapid.T) calendarTimer {
	return calendarTimer{
		every:   rapid.SampledFrom([]string{"1 day", "3 days", "1 week", "1 month", "2 months", "1 year"}).Draw(t, "every"),
		zone:    rapid.SampledFrom([]string{"UTC", "Europe/Brussels", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(t, "zone"),
		at:      rapid.SampledFrom([]string{"", "9:00", "2:30", "0:00", "23:59:59"}).Draw(t, "at"),
		catchup: rapid.SampledFrom([]string{"all", "last", "none"}).Draw(t, "catchup"),
		start:   time.UnixMilli(rapid.Int64Range(1_577_836_800_000, 1_900_000_000_000).Draw(t, "start")).UTC(),
	}
}

func (c calendarTimer) text() string {
	at := ""
	if c.at != "" {
		at = fmt.Sprintf(", at: %q", c.at)
	}
	return fmt.Sprintf("saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, every: %s, zone: %s%s, catchup: %s}]}\n  timer.t: {}\n", c.every, c.zone, at, c.catchup)
}

// due returns the due times of the timer up to a time, each counted from the start.
func (c calendarTimer) due(t *rapid.T, until time.Time) []time.Time {
	zone, err := calendar.Zone(c.zone)
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := calendar.ParsePeriod(c.every)
	var out []time.Time
	for n := 1; ; n++ {
		at := p.After(c.start, n, zone)
		if clock, err := calendar.ParseClock(c.at); err == nil {
			at = calendar.AtTime(at, clock, zone)
		}
		if at.After(until) {
			return out
		}
		out = append(out, at)
	}
}

// restarted returns the cell as a store gives it back.
func restarted(t *rapid.T, cell edda.Cell) edda.Cell {
	raw, err := json.Marshal(cell)
	if err != nil {
		t.Fatal(err)
	}
	var out edda.Cell
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestACalendarTimerFiresAtItsTimes: whenever a process looks, after each restart and downtime, it
// fires the times of the series, each at most once and in order. With catchup all, it fires all.
// Rebuilt from its history the instance is the same.
func TestACalendarTimerFiresAtItsTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawTimer(t)
		set, err := NewSet(compiledIn(t, c.text()))
		if err != nil {
			t.Fatal(err)
		}
		first := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", Time: c.start, Payload: json.RawMessage(`{"id":"K"}`)}
		cell, all := set.Apply(edda.Cell{}, set.Route(first)[0], first)
		now, fired := c.start, []time.Time(nil)
		for range rapid.IntRange(1, 12).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 80*24*3600).Draw(t, "pause")) * time.Second)
			cell = restarted(t, cell)
			var trs []edda.Transition
			cell, trs = set.Wake(cell, cell.Instance.Armed, now)
			before := len(fired)
			for _, tr := range trs {
				if tr.Fate == edda.FateHandled {
					fired = append(fired, tr.Event.Time)
				}
			}
			if n := len(fired) - before; n > 1 && c.catchup != "all" {
				t.Fatalf("one look fired %v, want the last missed time at most", fired[before:])
			}
			all = append(all, trs...)
			if next := cell.Instance.Timers[0].Due; !next.After(now) {
				t.Fatalf("at %v the timer is due at %v", now, next)
			}
		}
		want := c.due(t, now)
		if c.catchup == "all" && !slices.EqualFunc(fired, want, time.Time.Equal) {
			t.Fatalf("fired at %v, want %v", fired, want)
		}
		for i, at := range fired {
			if !slices.ContainsFunc(want, at.Equal) || i > 0 && !at.After(fired[i-1]) {
				t.Fatalf("fired at %v, want some of %v in order", fired, want)
			}
		}
		if n := len(want); c.catchup == "last" && n > 0 && (len(fired) == 0 || !fired[len(fired)-1].Equal(want[n-1])) {
			t.Fatalf("fired at %v, want the last of %v among them", fired, want)
		}
		built, err := rebuilderOf(set, Pin{Version: 1}).Rebuild(cell.Key, past(all))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := encoded(t, Adopt(built.Cell, cell, false)), encoded(t, cell); !bytes.Equal(got, want) {
			t.Fatalf("built again it is\n%s\nand was\n%s", got, want)
		}
	})
}

// compiledIn is compiled for a property.
func compiledIn(t *rapid.T, text string) *Program {
	f, problems := manifests.Parse("test.yaml", []byte(text))
	if problems.Failed() {
		t.Fatalf("%v", problems)
	}
	p, problems := Compile(f.Sagas[0], Options{})
	if p == nil {
		t.Fatalf("%v", problems)
	}
	return p
}

// TestADueTimeStaysWhenTheZoneDataChanges: the stored time fires, and the series goes on from it. A
// later build may compute it an hour earlier or later.
func TestADueTimeStaysWhenTheZoneDataChanges(t *testing.T) {
	for _, moved := range []time.Duration{time.Hour, -time.Hour} {
		l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, every: 1 month, at: \"9:00\", zone: Europe/Brussels}]}\n  timer.t: {}\n", Options{})
		l.event("Go", `{"id":"K"}`)
		timer := &l.cell.Instance.Timers[0]
		timer.Due = timer.Due.Add(moved) // as other data had it
		stored := timer.Due
		l.want(l.wake(stored.Add(-time.Second)), "")
		trs := l.wake(stored.Add(30 * time.Minute))
		l.want(trs, "fired t")
		if at := trs[0].Event.Time; !at.Equal(stored) {
			t.Errorf("moved by %v it fired at %v, want %v", moved, at, stored)
		}
		l.want(l.wake(stored.Add(2*time.Hour)), "")
		if next, want := l.cell.Instance.Timers[0].Due, time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC); !next.Equal(want) {
			t.Errorf("moved by %v it is due next at %v, want %v", moved, next, want)
		}
	}
}

// A country moves its clocks, and a release with the new rules rebuilds what an older one did. The
// recorded firings stay: none is lost, none comes twice, and the round that waits keeps its time.
// The older rules are those of another zone here.
func TestAReplayWithNewZoneDataKeepsTheRecordedFirings(t *testing.T) {
	const text = "saga: s\nkey: event.id\nstate: {n: 0}\non:\n" +
		"  Go: {start: true, do: [{timer: t, every: 1 day, at: \"9:00\", zone: Europe/Brussels, catchup: CATCHUP},\n" +
		"    {timer: once, after: 2 days, at: \"9:00\", zone: Europe/Brussels}]}\n" +
		"  timer.t: {set: {n: =state.n + 1}}\n  timer.once: {set: {n: =state.n + 100}, do: [{event: Billed}]}\n  Done: {do: [{done: }]}\n"
	for _, catchup := range []string{"all", "last", "none"} {
		for _, older := range []string{"Europe/London", "Europe/Athens", "Asia/Tokyo"} {
			manifest := strings.ReplaceAll(text, "CATCHUP", catchup)
			l := limited(t, strings.ReplaceAll(manifest, "Europe/Brussels", older), Options{})
			all := l.event("Go", `{"id":"K"}`)
			for _, days := range []int{1, 3, 4} {
				all = append(all, l.wake(testStart.Add(time.Duration(days)*24*time.Hour).Add(9*time.Hour))...)
			}
			set, want := setOf(t, manifest), l.cell
			want.Instance = clone(want.Instance)
			want.Instance.Hash = set.Newest("s").Hash()
			timer := &want.Instance.Timers[0]
			c := *timer.Calendar
			c.Zone, timer.Calendar = "Europe/Brussels", &c
			for _, repin := range []Pin{{}, {Version: 1}} {
				b := rebuilderOf(set, Pin{Version: 1})
				b.Repin = repin
				built, err := b.Rebuild(want.Key, past(all))
				if err != nil {
					t.Fatal(err)
				}
				got := encoded(t, Adopt(built.Cell, want, false))
				if !bytes.Equal(got, encoded(t, want)) {
					t.Errorf("rules of %s, catchup %s, version %d: built again it is\n%s\nand was\n%s", older, catchup, repin.Version, got, encoded(t, want))
				}
			}
		}
	}
}

// In Nuuk the clocks skip over midnight: the timer fired at nine on the 29th twice, and never on the 28th.
func TestACalendarTimerKeepsItsDayWhereTheClocksSkipOverMidnight(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, every: 1 day, at: \"9:00\", zone: America/Nuuk, catchup: all}]}\n  timer.t: {}\n", Options{})
	l.now = time.Date(2026, 3, 27, 1, 30, 0, 0, time.UTC) // 23:30 of the 26th there
	l.event("Go", `{"id":"K"}`)
	for _, want := range []string{"2026-03-27T11:00:00Z", "2026-03-28T11:00:00Z", "2026-03-29T10:00:00Z", "2026-03-30T10:00:00Z"} {
		due := l.cell.Instance.Timers[0].Due
		if got := due.Format(time.RFC3339); got != want {
			t.Fatalf("it is due at %s, want %s", got, want)
		}
		l.want(l.wake(due), "fired t")
	}
}

func TestArmingACalendarTimerAgainBeginsItsSeriesAnew(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, every: 1 month}]}\n  timer.t: {}\n", Options{})
	l.now = time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	l.event("Go", `{"id":"K"}`)
	l.want(l.wake(l.now.AddDate(0, 0, 28)), "fired t")
	l.now = time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)
	l.event("Go", `{"id":"K"}`)
	if timers := l.cell.Instance.Timers; len(timers) != 1 || !timers[0].Due.Equal(time.Date(2026, 4, 5, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", timers)
	}
}
