package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Report is a whole run. Its JSON is for scripts: fields are added, not renamed.
type Report struct {
	Began      time.Time `json:"began"`
	Machine    Machine   `json:"machine"`
	Short      bool      `json:"short"` // says that it shows no speed
	Sizes      Sizes     `json:"sizes"`
	LoadBefore string    `json:"load_before"` // load average over a minute
	LoadAfter  string    `json:"load_after"`
	Results    []*Result `json:"results"`
	Failed     []string  `json:"failed"` // what did not agree
}

// Machine is where it ran.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
	CPU   string `json:"cpu"`
	Go    string `json:"go"`
}

// Result is one phase of a workload.
type Result struct {
	Workload    string   `json:"workload"`
	Phase       string   `json:"phase"`
	Unit        string   `json:"unit"`
	Count       int      `json:"count"`
	Concurrency int      `json:"concurrency,omitempty"`   // of a closed loop
	Offered     float64  `json:"offered_rate,omitempty"`  // of an open loop, a second
	Rate        float64  `json:"rate,omitempty"`          // a second
	Latency     *Latency `json:"latency,omitempty"`       // of timers: how late they were
	SentLate    *Latency `json:"sent_late,omitempty"`     // of an open loop: what of the latency is the generator's own
	Costs       *Costs   `json:"costs_per_1000,omitzero"` // CPU for 1,000; the rest for one
	Floors      []Floor  `json:"floors,omitempty"`
	Notes       []string `json:"notes,omitempty"`

	traffic traffic
}

// Floor is what the same work takes with no engine, in the same run.
type Floor struct {
	Name     string  `json:"name"`
	Rate     float64 `json:"rate,omitempty"`
	P50      float64 `json:"p50_ms,omitempty"`
	P99      float64 `json:"p99_ms,omitempty"`
	CPU      float64 `json:"cpu_per_1000,omitempty"` // seconds
	Fraction float64 `json:"fraction"`               // how much of the floor's speed is reached
	// Problem is why there is no figure.
	Problem string `json:"problem,omitempty"`
}

func (res *Result) line() string {
	var parts []string
	if res.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %s/s", res.Rate, res.Unit))
	}
	if l := res.Latency; l != nil {
		parts = append(parts, fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", l.P50, l.P99))
	}
	if l := res.SentLate; l != nil {
		parts = append(parts, fmt.Sprintf("sent late by p50 %.1f ms, p99 %.1f ms", l.P50, l.P99))
	}
	return strings.Join(parts, ", ")
}

func floorsLine(floors []Floor) string {
	var parts []string
	for _, f := range floors {
		if f.Problem != "" {
			parts = append(parts, f.Name+" could not be measured: "+f.Problem)
			continue
		}
		parts = append(parts, fmt.Sprintf("%.0f%% of %s", 100*f.Fraction, f.Name))
	}
	return strings.Join(parts, ", ")
}

// Print writes the tables: what was measured, how far it is from the floors, and
// where the server's time went.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%s, %d cores, %s/%s, %s; load average %s before, %s after\n", r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Arch, r.Machine.Go, r.LoadBefore, r.LoadAfter)
	if r.Short {
		fmt.Fprintln(w, "A short run: it shows that everything works, not how fast it is.")
	}
	for _, print := range []func(table.Writer){r.speeds, r.costs, r.floors, r.stages} {
		t := table.NewWriter()
		t.SetOutputMirror(w)
		print(t)
		if t.Length() > 0 {
			fmt.Fprintln(w)
			t.Render()
		}
	}
	for _, res := range r.Results {
		for _, note := range res.Notes {
			fmt.Fprintf(w, "\n%s %s: %s\n", res.Workload, res.Phase, note)
		}
	}
	for _, what := range r.Failed {
		fmt.Fprintf(w, "\nFAILED  %s\n", what)
	}
}

func (r *Report) speeds(t table.Writer) {
	t.AppendHeader(table.Row{"", "phase", "count", "at once", "rate /s", "p50 ms", "p99 ms", "p999 ms", "max ms"})
	for _, res := range r.Results {
		row := table.Row{res.Workload, res.Phase, res.Count, some(float64(res.Concurrency), "%.0f"), some(res.Rate, "%.0f")}
		l := res.Latency
		if l == nil {
			l = &Latency{}
		}
		t.AppendRow(append(row, some(l.P50, "%.1f"), some(l.P99, "%.1f"), some(l.P999, "%.1f"), some(l.Max, "%.1f")))
	}
}

func (r *Report) costs(t table.Writer) {
	t.AppendHeader(table.Row{"", "phase", "engine", "NATS", "effects", "client", "KiB written", "KiB in store", "commits", "fsyncs", "peak MiB", "besides"})
	for _, res := range r.Results {
		c := res.Costs
		if c == nil {
			continue
		}
		t.AppendRow(table.Row{res.Workload, res.Phase, some(c.Engine, "%.2f"), some(c.NATS, "%.2f"), some(c.Effects, "%.2f"), some(c.Client, "%.2f"),
			some(c.Written/1024, "%.1f"), some(c.StoreBytes/1024, "%.1f"), some(c.Commits, "%.3f"), some(c.Fsyncs, "%.3f"), some(float64(c.Anonymous)/(1<<20), "%.0f"), some(c.Besides, "%.1f")})
	}
	t.SetCaption("engine to client: CPU-seconds for 1,000 (of W6: for 1,000 starts); the server process is divided by a CPU profile.\n" +
		"KiB, commits and fsyncs: for one, of the server process; fsyncs are those of the store.\nThe embedded NATS syncs its files every five seconds, which is not counted.\n" +
		"besides: how many cores everything else on the machine kept busy meanwhile; where that is much, measure again.")
}

func (r *Report) floors(t table.Writer) {
	t.AppendHeader(table.Row{"", "phase", "floor", "rate /s", "p50 ms", "p99 ms", "CPU s/1,000", "reached"})
	for _, res := range r.Results {
		for _, f := range res.Floors {
			t.AppendRow(table.Row{res.Workload, res.Phase, f.Name, some(f.Rate, "%.0f"), some(f.P50, "%.2f"), some(f.P99, "%.2f"), some(f.CPU, "%.2f"), f.reached()})
		}
	}
}

// reached is how much of the floor's speed is reached, where that is known.
func (f Floor) reached() string {
	if f.Problem != "" {
		return "not measured"
	}
	return fmt.Sprintf("%.1f%%", 100*f.Fraction)
}

// leastShare is the share of a stage that is shown; stageWidth is in letters.
const (
	leastShare = 0.01
	stageWidth = 12
)

// stages are a row for each stage and a column for each phase.
func (r *Report) stages(t table.Writer) {
	header := table.Row{"of the server's CPU"}
	shares := map[string]map[*Result]float64{}
	var profiled []*Result
	for _, res := range r.Results {
		if res.Costs == nil || len(res.Costs.Stages) == 0 {
			continue
		}
		profiled, header = append(profiled, res), append(header, text.WrapSoft(res.Workload+" "+res.Phase, stageWidth))
		for _, s := range res.Costs.Stages {
			if shares[s.Name] == nil {
				shares[s.Name] = map[*Result]float64{}
			}
			shares[s.Name][res] = s.Share
		}
	}
	t.AppendHeader(header)
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		row := table.Row{name}
		for _, res := range profiled {
			if shares[name][res] < leastShare {
				row = append(row, "-")
			} else {
				row = append(row, fmt.Sprintf("%.0f%%", 100*shares[name][res]))
			}
		}
		t.AppendRow(row)
	}
}

// some shows a number, or a hyphen where there is none.
func some(n float64, format string) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf(format, n)
}

// Save writes the report as JSON.
func (r *Report) Save(file string) error {
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(out, '\n'), 0o644)
}
