package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// report prints the medians. It is an error where ours run fewer jobs a second than
// asynq; that adding one is slower is said: ours makes the job's whole hash, as the
// documents have it, and knows a command that comes again.
func report(w io.Writer, s settings, systems []system, results map[string]*result) error {
	base := results["asynq"]
	fmt.Fprintf(w, "%d jobs that do nothing, %d producers, %d at once, %d rounds in turns on one redis-server; medians\n\n", s.jobs, s.producers, s.concurrency, s.rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tadded/s\tratio\trun/s\tratio\tcommands a job\tRedis's µs a job\t")
	slower := false
	var adds []string
	for _, sys := range systems {
		r := results[sys.name()]
		add, run := median(r.add)/median(base.add), median(r.run)/median(base.run)
		slower = slower || run < 1
		if add < 1 {
			adds = append(adds, fmt.Sprintf("adding to %s is slower than asynq's: %.2f", sys.name(), add))
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.0f\t%.2f\t%.1f\t%.1f\t\n", sys.name(), median(r.add), add, median(r.run), run, median(r.commands), median(r.busy))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range adds {
		fmt.Fprintln(w, line)
	}
	if slower {
		return fmt.Errorf("ours run fewer jobs a second than asynq")
	}
	return nil
}
