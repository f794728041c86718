package saga

import (
	"fmt"

	"edda"
)

// Why describes in a few words what an instance waits for.
func Why(cell edda.Cell) []string {
	var out []string
	if len(cell.Held) > 0 {
		out = append(out, fmt.Sprintf("an operator: dead letter %s holds it since %s, %d events behind it",
			cell.Held[0].DeadLetter, edda.FormatTime(cell.Held[0].Event.Time), len(cell.Held)-1))
	}
	in := cell.Instance
	if in == nil {
		if len(cell.Parked) > 0 {
			out = append(out, fmt.Sprintf("an event that starts it: %d parked", len(cell.Parked)))
		}
		return out
	}
	for _, i := range in.Incidents {
		out = append(out, fmt.Sprintf("an operator: %s (%s): retry or skip %s", i.Step, i.Reason, i.Step))
	}
	if in.Status.Finished() {
		return out
	}
	return append(out, waits(in)...)
}

func waits(in *edda.Instance) []string {
	var out []string
	eachDue(in, func(d dueItem) {
		switch {
		case d.timer != nil:
			out = append(out, fmt.Sprintf("timer %s at %s", d.timer.Name, edda.FormatTime(d.at)))
		case d.at.IsZero():
			out = append(out, "step "+d.step)
		default:
			out = append(out, fmt.Sprintf("step %s until %s", d.step, edda.FormatTime(d.at)))
		}
	})
	if len(out) == 0 && in.Status == edda.StatusRunning {
		out = append(out, "an event")
	}
	return out
}
