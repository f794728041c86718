package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"edda/internal/harness"
)

// run is one run of the benchmark.
type run struct {
	Options
	ctx    context.Context // of the whole run
	dir    string
	report *Report
	filled string // a store with the other instances of W5 and W6; empty until one is needed
	best   int    // the concurrency that W1 found; 0 until then

	uncrowded float64 // the rate of W4; 0 until then
}

// Run measures the workloads. The report holds all results, also where the error says
// which counts did not agree.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Edda, err = harness.Binary(o.Edda); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.Dir, "edda-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the data: %w", err)
	}
	r := &run{Options: o, ctx: ctx, dir: dir, report: newReport(o)}
	defer func() { err = errors.Join(err, r.cleanUp()) }()
	var errs []error
	for _, w := range workloads() {
		if !o.chosen(w.name) {
			continue
		}
		r.say("%s  %s", w.name, w.title)
		if err := w.run(r); err != nil {
			err = fmt.Errorf("%s: %w", w.name, err)
			r.report.Failed = append(r.report.Failed, err.Error())
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.report.LoadAfter = load()
	return r.report, errors.Join(errs...)
}

func (r *run) cleanUp() error {
	if r.Keep {
		r.say("data and logs are in %s", r.dir)
		return nil
	}
	return os.RemoveAll(r.dir)
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Log, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// folder makes a folder for one process.
func (r *run) folder(name string) (string, error) {
	dir := filepath.Join(r.dir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// add adds a result to the report.
func (r *run) add(res *Result) {
	r.report.Results = append(r.report.Results, res)
	r.say("    %s: %s", res.Phase, res.line())
}

// load returns the machine's load average over a minute from /proc; empty elsewhere.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func newReport(o Options) *Report {
	return &Report{Began: time.Now().UTC().Truncate(time.Second), Machine: Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), CPU: model(), Go: runtime.Version()},
		Short: o.Short, Sizes: o.Sizes, LoadBefore: load()}
}

// model returns the processor's name from /proc; empty elsewhere.
func model() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere it has no name
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
