package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"edda/internal/natsservers"
)

// effectsCommand is the first argument of the effect server, which is this program too.
const effectsCommand = "effects"

const help = `Usage: go run ./bench [WORKLOAD...] [flags]

Starts edda dev of a binary and a small effect server on free ports, drives them with a NATS client, and prints rates,
latencies, CPU, bytes and fsyncs, and the same work done with no engine at all. It exits 1 unless every effect was
called once for each order and every instance ended. All workloads run unless some are named:

%s
A full run takes about nine minutes, all cores and 10 GB of disk. Progress goes to standard error. The binary must
have the store format of this tool's source for W5 and W6.

Flags:
%s`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	natsservers.Main()
	var err error
	if args := os.Args[1:]; len(args) == 3 && args[0] == effectsCommand {
		err = serveEffects(ctx, args[1], args[2])
	} else {
		err = measure(ctx, args)
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs the workloads that the arguments name, and prints the report.
func measure(ctx context.Context, args []string) error {
	o := Options{Log: os.Stderr}
	var file string
	f := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	f.StringVar(&o.Edda, "edda", "../bin/edda", "the binary under test")
	f.BoolVar(&o.Short, "short", false, "small sizes, some seconds in all: shows that it works, not how fast")
	f.StringVar(&file, "json", "", "write everything that was measured to this file, too")
	f.StringVar(&o.Dir, "dir", "", "folder for the data; one for temporary files unless named")
	f.BoolVar(&o.Keep, "keep", false, "keep the data and logs, and say where they are")
	f.IntVar(&o.Instances, "instances", 0, "orders of W1, W2 and W7 (20000)")
	f.IntVar(&o.Timers, "timers", 0, "timers of W3 (100000)")
	f.IntVar(&o.Events, "events", 0, "events of W4 and W5 (50000)")
	f.IntVar(&o.Others, "others", 0, "other instances in the file of W5 and W6 (1000000)")
	f.IntSliceVar(&o.Concurrency, "concurrency", nil, "orders at once that W1 tries (32,128,512,2048)")
	f.IntVar(&o.Moves, "moves", 0, "hand-overs of W7 (50)")
	f.Float64Var(&o.Cores, "cores", 0, "cores that each Edda of W7 and W8 may use, by a cgroup; 0 is all in W7, and 0.2 in W8")
	f.IntVar(&o.Lose, "lose", 0, "have the effect server forget every so many-th call: the run must fail")
	f.Usage = func() {
		var list strings.Builder
		for _, w := range workloads() {
			fmt.Fprintf(&list, "  %s  %s\n", w.name, w.title)
		}
		fmt.Fprintf(os.Stderr, help, &list, f.FlagUsages())
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	for _, name := range f.Args() {
		o.Workloads = append(o.Workloads, strings.ToUpper(name))
	}
	report, err := Run(ctx, o)
	if report == nil {
		return err
	}
	report.Print(os.Stdout)
	if file != "" {
		err = errors.Join(err, report.Save(file))
	}
	return err
}

func serveEffects(ctx context.Context, addr, lose string) error {
	n, err := strconv.Atoi(lose)
	if err != nil {
		return err
	}
	return ServeEffects(ctx, addr, n)
}
