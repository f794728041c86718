package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/internal/harness"
	"edda/internal/testkit"
	"edda/store"
)

// readyEvery is how often a start is looked at.
const readyEvery = 2 * time.Millisecond

// restart is W6.
func (r *run) restart() error {
	dir, err := r.folder("W6")
	if err != nil {
		return err
	}
	s, err := r.newServer(dir, "one.yaml")
	if err != nil {
		return err
	}
	s.Args = []string{"--gateway", "http://127.0.0.1:9"} // nobody answers there: what is queued stays
	file := filepath.Join(s.Data, "store")
	if err := r.fillRestart(file); err != nil {
		return err
	}
	res := &Result{Workload: "W6", Phase: fmt.Sprintf("%d instances, %d timers, %d rows", r.Others+r.Waiting+r.Rows, r.Waiting, r.Rows), Unit: "starts", Count: r.Starts}
	var times []time.Duration
	for i := range r.Starts + 1 {
		took, costs, err := r.startOnce(s)
		if err != nil {
			return errors.Join(err, tail(s))
		}
		if i == 0 {
			r.say("    the first start, with streams to make: %v", took.Round(time.Millisecond))
			continue
		}
		times, res.Costs = append(times, took), costs
	}
	res.Latency = summarize(times)
	if err := r.checkTimers(file); err != nil {
		return err
	}
	if err := r.bareStart(res, filepath.Join(file, store.FileName)); err != nil {
		return err
	}
	r.add(res)
	return nil
}

// fillRestart adds timers and rows of the outbox to the other instances.
func (r *run) fillRestart(dir string) error {
	if err := r.crowd(dir, true); err != nil {
		return err
	}
	set, err := r.one()
	if err != nil {
		return err
	}
	if err := testkit.Fill(r.ctx, dir, r.Waiting, func(i int) []edda.Transition {
		return begun(set, "Noted", otherKey(i)+"T", true)
	}); err != nil {
		return err
	}
	return testkit.Fill(r.ctx, dir, r.Rows, func(i int) []edda.Transition {
		return begun(set, "OrderPlaced", otherKey(i)+"R", true)
	})
}

// startOnce starts the server, checks what it counts, and stops it again.
func (r *run) startOnce(s *server) (took time.Duration, _ *Costs, err error) {
	began := time.Now()
	if err := s.Start(); err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(r.ctx, startFor)
	defer cancel()
	if err := harness.PollEvery(ctx, readyEvery, "a restart", harness.Ready(ctx, s.API+"/ready")); err != nil {
		return 0, nil, errors.Join(err, s.Stop())
	}
	took = time.Since(began)
	defer func() { err = errors.Join(err, s.Stop()) }()
	used := usageOf(s.PID())
	c, err := s.Counters(r.ctx)
	if err != nil {
		return 0, nil, err
	}
	want := r.Others + r.Waiting + r.Rows
	if got, rows := c.Sum("edda_instances", `saga="one"`), c.Sum("edda_outbox_items"); got != want || rows != r.Rows {
		return 0, nil, fmt.Errorf("after a restart there are %d instances and %d rows, want %d and %d", got, rows, want, r.Rows)
	}
	return took, &Costs{Engine: used.cpu.Seconds() * 1000, Anonymous: anonymous(s.PID())}, nil
}

// checkTimers counts the timers in the file, once nobody has it open.
func (r *run) checkTimers(dir string) error {
	db, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	rows, _, err := db.Due(time.Now().AddDate(1, 0, 0), r.Waiting+1)
	if err == nil && len(rows) != r.Waiting {
		err = fmt.Errorf("after the restarts %d timers are in the file, want %d", len(rows), r.Waiting)
	}
	return err
}

// bareStart adds the floor: the binary started for nothing, and the file opened
// by bare bbolt.
func (r *run) bareStart(res *Result, file string) error {
	var times []time.Duration
	for range r.Starts {
		took, err := timed(func() error {
			if err := exec.CommandContext(r.ctx, r.Edda, "version").Run(); err != nil {
				return fmt.Errorf("run %s version: %w", r.Edda, err)
			}
			db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
			if err != nil {
				return err
			}
			return db.Close()
		})
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	res.floorLatency("the binary started, the file opened by bare bbolt", summarize(times))
	if size, err := os.Stat(file); err == nil {
		res.Notes = append(res.Notes, fmt.Sprintf("the file is %d MiB", size.Size()>>20))
	}
	return nil
}
