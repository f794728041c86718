package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edda/internal/harness"
)

// books holds the records about a flow from all systems and scripts.
type books struct {
	flow     flowState
	jobs     []object
	messages []object // of this flow
	arrived  []string // keys on the caller's msg_in
	queues   []string // lists of jobs in the coordinator's Redis; it has no runner there
	far      []object // the jobs that the supervisor has
	ledger   ledger   // what the scripts wrote down

	coordinator, runner, mycelium harness.Counters
}

// read opens all books of a flow.
func (r *run) read(ctx context.Context, p plan) (b books, err error) {
	if b.flow, err = r.call.flow(p.id); err != nil {
		return b, err
	}
	if b.jobs, err = r.call.list("job.list"); err != nil {
		return b, err
	}
	all, err := r.call.list("message.list")
	if err != nil {
		return b, err
	}
	b.messages = slices.DeleteFunc(all, func(m object) bool { return m.FlowID != p.id })
	if b.arrived, err = r.near.client.LRange(ctx, "msg_in", 0, -1).Result(); err != nil {
		return b, err
	}
	if b.queues, err = r.near.client.Keys(ctx, "queue:*").Result(); err != nil {
		return b, err
	}
	if b.far, err = r.supervised(ctx, p); err != nil {
		return b, err
	}
	if b.ledger, err = readLedger(r.work(p)); err != nil {
		return b, err
	}
	return b, b.scrape(ctx, r.ports)
}

// supervised reads the hashes of the plan's jobs in the supervisor's Redis.
func (r *run) supervised(ctx context.Context, p plan) (out []object, err error) {
	for _, t := range p.jobs {
		status, err := r.far.client.HGet(ctx, fmt.Sprintf("job:%d:%d", actorID, t.id), "status").Result()
		if err != nil {
			return nil, fmt.Errorf("job %d in the supervisor's redis: %w", t.id, err)
		}
		out = append(out, object{ID: t.id, Status: status})
	}
	return out, nil
}

// ledger is what the scripts recorded: "<job> start", "failed" or "done".
type ledger []string

func readLedger(work string) (ledger, error) {
	text, err := os.ReadFile(filepath.Join(work, "ledger"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no script has run
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}

func entry(job uint32, word string) string { return fmt.Sprintf("%d %s", job, word) }

func (l ledger) count(job uint32, word string) int {
	n := 0
	for _, line := range l {
		if line == entry(job, word) {
			n++
		}
	}
	return n
}

// before tells whether the first job was done when the second began.
func (l ledger) before(first, second uint32) bool {
	done, began := slices.Index(l, entry(first, "done")), slices.Index(l, entry(second, "start"))
	return done >= 0 && began > done
}

// scrape reads the counters of the processes.
func (b *books) scrape(ctx context.Context, p ports) error {
	var errs []error
	for port, into := range map[int]*harness.Counters{p.coordinator: &b.coordinator, p.runner: &b.runner, p.myceliumMetrics: &b.mycelium} {
		var err error
		*into, err = harness.Scrape(ctx, url(port)+"/metrics")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
