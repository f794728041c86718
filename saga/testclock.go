package saga

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"edda"
)

// maxDueShown bounds the due times that a failure lists.
const maxDueShown = 5

// upcoming is what comes due in a test.
type upcoming struct {
	at   time.Time
	what string
}

// clock says for the failure of a test what time it is there, and what comes due next. A timer that
// did not fire is then found: it is due later, or not armed.
func (w *tester) clock() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  the clock of the test is at %s, %s after its start", edda.FormatTime(w.now), durationText(w.now.Sub(testStart)))
	due := w.upcoming()
	if len(due) == 0 {
		b.WriteString("; nothing comes due")
	}
	for i, d := range due {
		if i == maxDueShown {
			fmt.Fprintf(&b, "\n    and %d more", len(due)-i)
			break
		}
		fmt.Fprintf(&b, "\n    due in %s, at %s: %s", durationText(d.at.Sub(w.now)), edda.FormatTime(d.at), d.what)
	}
	return b.String()
}

// upcoming lists what comes due after the clock, by time.
func (w *tester) upcoming() (out []upcoming) {
	for _, k := range w.order {
		cell, of := w.cells[k], ""
		if k != w.first {
			of = " of " + k.String()
		}
		if len(cell.Held) > 0 {
			continue // it fires nothing
		}
		for _, e := range cell.Parked {
			out = append(out, upcoming{e.Expires, "the parked " + nameOf(e.Event) + of + " expires"})
		}
		if cell.Instance == nil || cell.Instance.Status.Finished() {
			continue
		}
		eachDue(cell.Instance, func(d dueItem) {
			what := "step " + d.step + of
			switch {
			case d.kind == edda.TimerDeadline:
				what = "the deadline" + of
			case d.timer != nil:
				what = "timer " + d.timer.Name + of
			}
			if !d.at.IsZero() {
				out = append(out, upcoming{d.at, what})
			}
		})
	}
	for _, spec := range w.set.Schedules() {
		if at := w.set.NextSchedule(spec.Saga, spec.Name, w.now); !at.IsZero() {
			out = append(out, upcoming{at, "schedule " + spec.Name})
		}
	}
	slices.SortStableFunc(out, func(a, b upcoming) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.what, b.what)) })
	return out
}
