package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"edda/internal/bench"
)

// benchCommand benchmarks this binary.
func (t *terminal) benchCommand() *cobra.Command {
	var o bench.Options
	var file string
	c := &cobra.Command{
		Use:   "bench [WORKLOAD...]",
		Short: "How fast it is here, and how far from the floor",
		Long: `Starts edda dev and a small effect server on free ports, each a process of its own, drives them with a NATS client,
and prints what came of it: rates, latencies, CPU, bytes and fsyncs, and the same work done with no engine at all. Every
effect must have been called once for each order and every instance have ended, else it exits 1. Workloads, all unless
some are named:

` + workloadList() + `
A full run takes about seven minutes, all cores and 10 GB of disk. Progress goes to standard error.`,
		Example: "  edda bench\n  edda bench W1 W4 --json bench.json\n  edda bench --short\n  edda bench W5 --others 5000000 --dir /mnt/disk",
		RunE: func(c *cobra.Command, names []string) (err error) {
			if o.Edda, err = os.Executable(); err != nil {
				return err
			}
			for _, name := range names {
				o.Workloads = append(o.Workloads, strings.ToUpper(name))
			}
			if err := o.Check(); err != nil {
				return usagef("%w", err)
			}
			o.Log = t.err
			report, err := bench.Run(c.Context(), o)
			if report != nil {
				report.Print(t.out)
				if file != "" {
					if failed := report.Save(file); failed != nil {
						return failed
					}
				}
			}
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, named []string, _ string) ([]string, cobra.ShellCompDirective) {
			return bench.Names(), noFiles
		},
	}
	f := c.Flags()
	f.BoolVar(&o.Short, "short", false, "small sizes, some seconds in all: shows that it works, not how fast")
	f.StringVar(&file, "json", "", "write everything that was measured to this file, too")
	f.StringVar(&o.Dir, "dir", "", "folder for the data; one for temporary files unless named")
	f.BoolVar(&o.Keep, "keep", false, "keep the data and logs, and say where they are")
	f.IntVar(&o.Instances, "instances", 0, "orders of W1 and W2 (20000)")
	f.IntVar(&o.Timers, "timers", 0, "timers of W3 (100000)")
	f.IntVar(&o.Events, "events", 0, "events of W4 and W5 (50000)")
	f.IntVar(&o.Others, "others", 0, "other instances in the file of W5 and W6 (1000000)")
	f.IntSliceVar(&o.Concurrency, "concurrency", nil, "orders at once that W1 tries (32,128,512,2048)")
	f.IntVar(&o.Lose, "lose", 0, "have the effect server forget every so many-th call: the run must fail")
	_ = f.MarkHidden("lose") // the flag exists
	c.AddCommand(benchEffectsCommand())
	return c
}

func workloadList() string {
	var b strings.Builder
	for _, name := range bench.Names() {
		b.WriteString("  " + name + "  " + bench.Title(name) + "\n")
	}
	return b.String()
}

// benchEffectsCommand runs the effect server that bench starts.
func benchEffectsCommand() *cobra.Command {
	var addr string
	var lose int
	c := &cobra.Command{Use: "effects", Hidden: true, Short: "The effect server of the benchmark", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return bench.ServeEffects(c.Context(), addr, lose) }}
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "where to listen")
	c.Flags().IntVar(&lose, "lose", 0, "forget every so many-th call")
	return c
}
