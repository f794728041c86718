package herodemo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// books is all that is known of a flow, from everybody who knows something.
type books struct {
	flow     flowState
	jobs     []object
	messages []object // of this flow
	arrived  []string // keys on the caller's msg_in
	queues   []string // lists of jobs in the coordinator's Redis: its runner is not there
	far      []object // the jobs that the supervisor has
	ledger   ledger   // what the scripts wrote down

	coordinator, runner, mycelium counters
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
	return b, errors.Join(b.coordinator.read(ctx, r.ports.coordinator), b.runner.read(ctx, r.ports.runner), b.mycelium.read(ctx, r.ports.myceliumMetrics))
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

// ledger is what the scripts wrote down: "<job> start", "failed" or "done".
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

// counters are a process's metrics.
type counters map[string]float64

func (c *counters) read(ctx context.Context, port int) error {
	text, err := get(ctx, url(port)+"/metrics")
	*c = parseCounters(text)
	return err
}

func parseCounters(text string) counters {
	out := counters{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "} ")
		if found {
			name += "}"
		} else {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

// sum adds what counters of a name, with labels that contain all the words, have
// counted.
func (c counters) sum(name string, words ...string) int {
	n := 0.0
	for key, value := range c {
		labels, found := strings.CutPrefix(key, name)
		if !found || labels != "" && labels[0] != '{' {
			continue
		}
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(labels, w) }) {
			n += value
		}
	}
	return int(n)
}
