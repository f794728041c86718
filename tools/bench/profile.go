package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Stage is a part of the server's CPU time.
type Stage struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"` // of the process's CPU time, 0 to 1
}

const (
	stageNATS    = "NATS server"
	stageGC      = "garbage collection"
	stageRuntime = "Go runtime, waiting and waking"
)

// packages are whose code a sample belongs to: the innermost function of one of
// them decides, so that what encoding/json does for the store is the store's.
var packages = []struct{ prefix, stage string }{
	{"github.com/nats-io/nats-server/", stageNATS},
	{"github.com/nats-io/nats.go", "NATS client"},
	{"github.com/nats-io/nats%2ego", "NATS client"}, // so the linker writes a dot in the last part of a path
	{"go.etcd.io/bbolt", "bbolt"},
	{"github.com/expr-lang/expr", "expressions"},
	{"edda/expression", "expressions"},
	{"edda/saga", "saga"},
	{"edda/store/wal", "store: its log and tables"},
	{"edda/store", "store: encoding and indexes"},
	{"edda/engine", "engine"},
	{"edda/outbox", "outbox relay"},
	{"edda/scheduler", "scheduler"},
	{"edda/effects", "effects: worker and HTTP client"},
	{"edda/stream", "stream adapter: envelopes, ledger, publishing"},
	{"net/http", "effects: worker and HTTP client"},
}

// readProfile reads a CPU profile, and tells the share of NATS and of each stage.
func readProfile(file string) (nats float64, stages []Stage, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return 0, nil, fmt.Errorf("read the profile %s: %w", file, err)
	}
	var samples []sample
	for _, s := range p.Sample {
		samples = append(samples, sample{functions: functions(s), weight: s.Value[len(s.Value)-1]})
	}
	nats, stages = attribute(samples)
	return nats, stages, nil
}

// sample is a stack, innermost function first, and how much was spent there.
type sample struct {
	functions []string
	weight    int64
}

func functions(s *profile.Sample) []string {
	var out []string
	for _, l := range s.Location {
		for _, line := range l.Line {
			out = append(out, line.Function.Name)
		}
	}
	return out
}

// attribute gives every sample to a stage. NATS's share is of those samples that
// belong to anybody: collection and waking are shared out as the rest is.
func attribute(samples []sample) (nats float64, stages []Stage) {
	sums := map[string]int64{}
	var total, server, owned int64
	for _, s := range samples {
		stage := stageOf(s.functions)
		sums[stage] += s.weight
		total += s.weight
		if stage == stageGC || stage == stageRuntime {
			continue
		}
		owned += s.weight
		if slices.ContainsFunc(s.functions, func(f string) bool { return strings.HasPrefix(f, packages[0].prefix) }) {
			server += s.weight
		}
	}
	for name, sum := range sums {
		stages = append(stages, Stage{Name: name, Share: float64(sum) / float64(max(total, 1))})
	}
	slices.SortFunc(stages, func(a, b Stage) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name)) })
	return float64(server) / float64(max(owned, 1)), stages
}

func stageOf(functions []string) string {
	for _, f := range functions {
		for _, p := range packages {
			if strings.HasPrefix(f, p.prefix) {
				return p.stage
			}
		}
	}
	for _, f := range functions {
		if strings.HasPrefix(f, "runtime.gcBgMarkWorker") || strings.HasPrefix(f, "runtime.bgsweep") || strings.HasPrefix(f, "runtime.bgscavenge") {
			return stageGC
		}
	}
	if len(functions) > 0 && strings.HasPrefix(functions[len(functions)-1], "runtime.") {
		return stageRuntime
	}
	return "other"
}
