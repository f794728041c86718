package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"edda/internal/harness"
)

// meter measures what the processes use during a phase.
type meter struct {
	r       *run
	s       *server
	effects *effectServer // nil where there is none
	before  reading
	memory  *peak
	profile string // file
}

// reading holds counters that grow during a phase.
type reading struct {
	at                      time.Time
	server, effects, client usage
	machine                 time.Duration // CPU time of everything that runs there
	counters                harness.Counters
}

// measure begins to measure a phase.
func (r *run) measure(s *server, e *effectServer, phase string) (*meter, error) {
	m := &meter{r: r, s: s, effects: e, profile: filepath.Join(r.dir, strings.ReplaceAll(phase, " ", "-")+".pprof")}
	var err error
	if m.before, err = m.read(); err != nil {
		return nil, err
	}
	m.memory = watchMemory(r.ctx, s.PID())
	return m, s.profile(m.profile)
}

func (m *meter) read() (r reading, err error) {
	r.at, r.machine = time.Now(), machineTime()
	r.server, r.client = usageOf(m.s.PID()), usageOf(os.Getpid())
	if m.effects != nil {
		r.effects = usageOf(m.effects.PID())
	}
	r.counters, err = m.s.Counters(m.r.ctx)
	return r, err
}

// end returns what n operations cost. Call it once all of their work has settled.
func (m *meter) end(n int) (*Costs, error) {
	after, err := m.read()
	memory := m.memory.end()
	if err != nil {
		return nil, err
	}
	if err := m.s.endProfile(m.r.ctx, m.profile); err != nil {
		return nil, err
	}
	nats, stages, err := readProfile(m.profile)
	if err != nil {
		return nil, err
	}
	return cost(n, m.before, after, nats, memory, stages), nil
}

// Costs are what one phase used.
type Costs struct {
	// CPU-seconds per 1,000: of the server process without and of the NATS server
	// in it, as a CPU profile divides it; of the effect server; of the client.
	Engine  float64 `json:"cpu_engine"`
	NATS    float64 `json:"cpu_nats"`
	Effects float64 `json:"cpu_effects"`
	Client  float64 `json:"cpu_client"`
	// Written is bytes that the server process wrote, and StoreBytes those that
	// were put into the store, each per operation.
	Written    float64 `json:"written_bytes"`
	StoreBytes float64 `json:"store_bytes"`
	// Commits of the store per operation, and its fsyncs: one of the WAL for each commit,
	// and those of flushes.
	Commits float64 `json:"commits"`
	Fsyncs  float64 `json:"fsyncs"`
	// Anonymous is the most memory of the server process that is not of files.
	Anonymous int64 `json:"peak_anonymous_bytes"`
	// Besides is how many cores everything else on the machine kept busy.
	Besides float64 `json:"cores_busy_besides"`
	Stages  []Stage `json:"stages,omitempty"`

	commits, bytes int // in all
}

const (
	commits     = "edda_commit_duration_seconds_count"
	commitBytes = "edda_commit_bytes_total"
	syncs       = "edda_store_syncs_total"
)

func cost(n int, before, after reading, nats float64, memory int64, stages []Stage) *Costs {
	cpu := func(a, b usage) float64 { return each((b.cpu-a.cpu).Seconds()*1000, n) }
	server := cpu(before.server, after.server)
	c := &Costs{
		Engine: server * (1 - nats), NATS: server * nats, Effects: cpu(before.effects, after.effects), Client: cpu(before.client, after.client),
		Written:   each(float64(after.server.written-before.server.written), n),
		Anonymous: memory, Stages: stages,
	}
	if took := after.at.Sub(before.at); took > 0 {
		mine := after.server.cpu + after.effects.cpu + after.client.cpu - before.server.cpu - before.effects.cpu - before.client.cpu
		c.Besides = max((after.machine-before.machine-mine).Seconds()/took.Seconds(), 0)
	}
	c.count(n, before.counters, after.counters)
	return c
}

// count sets what the store counted between two readings, for n operations.
func (c *Costs) count(n int, before, after harness.Counters) {
	c.commits, c.bytes = after.Sum(commits)-before.Sum(commits), after.Sum(commitBytes)-before.Sum(commitBytes)
	c.Commits, c.StoreBytes = each(float64(c.commits), n), each(float64(c.bytes), n)
	c.Fsyncs = each(float64(after.Sum(syncs)-before.Sum(syncs)), n)
}

// drop ends a meter whose phase failed.
func (m *meter) drop(err error) error {
	m.memory.end()
	return errors.Join(err, tail(m.s))
}

// tail returns the end of the server's log as an error; nil where it is empty.
func tail(s *server) error {
	if text := s.Tail(); text != "" {
		return fmt.Errorf("the end of edda's log:\n%s", text)
	}
	return nil
}

// timed returns how long a function takes.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}
