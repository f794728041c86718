package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Options of a run. The zero value of a field means its default.
type Options struct {
	Edda      string   // the edda binary
	Workloads []string // of [Names]; all when empty
	// Short measures small sizes, in some seconds: it shows that everything
	// works and counts, not how fast it is.
	Short bool
	Sizes
	Dir  string    // holds the data; a folder for temporary files when empty
	Keep bool      // leaves the data behind
	Log  io.Writer // takes the progress
	// Cores limits each Edda of W7 and W8 to so many cores, by a cgroup, and to one processor, so that the machine is not what
	// limits it; 0 does not in W7, and is nodeCores in W8.
	Cores float64
	// Lose makes the effect server forget every how many-th call: such a run fails.
	Lose int
}

// Sizes of the workloads; a zero means the default.
type Sizes struct {
	Instances   int           // orders of W1 and W2 at full load
	Alone       int           // orders one at a time
	Open        time.Duration // how long the open loop goes on
	Timers      int           // of W3
	After       time.Duration // what those timers are set to
	Together    int           // timers of W3 due in one instant
	Events      int           // of W4 and W5
	Others      int           // instances in the file of W5 and W6
	Waiting     int           // timers in the file of W6
	Rows        int           // rows of the outbox in the file of W6
	Concurrency []int         // what is tried for W1; the best is taken
	Probe       int           // orders of each try
	Starts      int           // restarts of W6; the median is told
	Moves       int           // hand-overs of W7
}

// full are the sizes that the figures in docs/PERFORMANCE.md are of.
func full() Sizes {
	return Sizes{Instances: 20_000, Alone: 1000, Open: 15 * time.Second, Timers: 100_000, After: 30 * time.Second, Together: 20_000,
		Events: 50_000, Others: 1_000_000, Waiting: 100_000, Rows: 10_000, Concurrency: []int{32, 128, 512, 2048}, Probe: 8000, Starts: 5, Moves: 50}
}

// short are sizes for some seconds in all.
func short() Sizes {
	return Sizes{Instances: 200, Alone: 10, Open: time.Second, Timers: 200, After: 2 * time.Second, Together: 100,
		Events: 500, Others: 1000, Waiting: 200, Rows: 100, Concurrency: []int{16}, Probe: 50, Starts: 1, Moves: 2}
}

func (o Options) withDefaults() (Options, error) {
	if err := o.Check(); err != nil {
		return o, err
	}
	d := full()
	if o.Short {
		d = short()
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&o.Instances, d.Instances}, {&o.Alone, d.Alone}, {&o.Timers, d.Timers}, {&o.Together, d.Together}, {&o.Events, d.Events}, {&o.Others, d.Others},
		{&o.Waiting, d.Waiting}, {&o.Rows, d.Rows}, {&o.Probe, d.Probe}, {&o.Starts, d.Starts}, {&o.Moves, d.Moves}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if o.Open <= 0 {
		o.Open = d.Open
	}
	if o.After <= 0 {
		o.After = d.After
	}
	if len(o.Concurrency) == 0 {
		o.Concurrency = d.Concurrency
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o, nil
}

// Check tells a workload that there is not, and a size below nothing.
func (o Options) Check() error {
	for _, n := range []int{o.Instances, o.Alone, o.Timers, o.Together, o.Events, o.Others, o.Waiting, o.Rows, o.Probe, o.Starts, o.Moves, o.Lose} {
		if n < 0 {
			return fmt.Errorf("a size of %d: want one above 0", n)
		}
	}
	if o.Cores < 0 || o.Cores > 1 {
		return fmt.Errorf("%g cores: want one at most, or 0 for all", o.Cores)
	}
	for _, n := range o.Concurrency {
		if n <= 0 {
			return fmt.Errorf("%d at once: want one or more", n)
		}
	}
	for _, name := range o.Workloads {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("%s is no workload: want some of %s", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}

// chosen tells whether a workload is to be measured.
func (o Options) chosen(name string) bool {
	return len(o.Workloads) == 0 || slices.Contains(o.Workloads, name)
}

// workload is one kind of work.
type workload struct {
	name, title string
	run         func(*run) error
}

func workloads() []workload {
	return []workload{
		{"W1", "orders of three HTTP effects", (*run).orders},
		{"W2", "orders whose second effect is declined", (*run).declined},
		{"W3", "timers", (*run).timers},
		{"W4", "the engine alone: events of one command each", (*run).alone},
		{"W5", "W4 with other instances in the file", (*run).crowded},
		{"W6", "restart", (*run).restart},
		{"W7", "orders of W1 in one process and in a cluster of two nodes, over three NATS servers", (*run).clustered},
		{"W8", "orders of W1 in a cluster of four shards: one, two and four nodes, each with a share of the machine", (*run).sharded},
	}
}

// Names are the workloads' names.
func Names() []string {
	var out []string
	for _, w := range workloads() {
		out = append(out, w.name)
	}
	return out
}

// Title says what a workload is.
func Title(name string) string {
	for _, w := range workloads() {
		if w.name == name {
			return w.title
		}
	}
	return ""
}

const (
	// startFor bounds how long a process may take to be ready; a file of
	// millions of instances is read meanwhile.
	startFor = 2 * time.Minute
	// idleFor bounds how long no command may be published while some should.
	idleFor = time.Minute
	// settleFor bounds how long the outbox may lag behind the last fact.
	settleFor = time.Minute
	// lookEvery is how often memory and counters are looked at.
	lookEvery = 50 * time.Millisecond
)
