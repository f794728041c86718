package costbudget

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edda"
	"edda/store"
)

// books are what a store wrote between begin and end.
type books struct {
	commits, bytes atomic.Int64 // as the store tells of each commit
	written        int64        // by the process, to files
	before         [2]int64
	syncs          int64
	db             *store.DB
}

// observe is told by the committer.
func (b *books) observe(_ int, bytes int, _ time.Duration) {
	b.commits.Add(1)
	b.bytes.Add(int64(bytes))
}

func (b *books) begin(tb testing.TB) {
	folded(tb, b.db)
	b.before = [2]int64{b.commits.Load(), b.bytes.Load()}
	b.syncs = -int64(b.db.Written().Syncs)
	b.written = -written(tb)
}

func (b *books) end(tb testing.TB) {
	folded(tb, b.db)
	b.written += written(tb)
	b.syncs += int64(b.db.Written().Syncs)
	b.commits.Add(-b.before[0])
	b.bytes.Add(-b.before[1])
}

// per is what one of n operations costs.
func (b *books) per(n int) map[string]float64 {
	if b == nil {
		return nil
	}
	commits := float64(b.commits.Load())
	out := map[string]float64{
		"change-B/op": float64(b.bytes.Load()) / float64(n),
		"fsyncs/op":   float64(b.syncs) / float64(n),
	}
	if commits >= leastCommits {
		out["pages/commit"] = float64(b.written) / float64(os.Getpagesize()) / commits
	}
	return out
}

// leastCommits are needed to count their pages: go test itself may write a page
// to a log of its own meanwhile.
const leastCommits = 16

// written is how many bytes this process has handed to the kernel to write.
func written(tb testing.TB) (n int64) {
	tb.Helper()
	page, err := os.ReadFile("/proc/self/io")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if count, ok := strings.CutPrefix(line, "wchar: "); ok {
			if _, err := fmt.Sscan(count, &n); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return n
}

// opened is a store with a committer, until the test ends.
func opened(tb testing.TB) (*store.DB, *books) {
	tb.Helper()
	b := &books{}
	db, err := store.Open(tb.TempDir(), store.Options{Observe: b.observe})
	if err != nil {
		tb.Fatal(err)
	}
	b.db = db
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, db.Close()); err != nil {
			tb.Error(err)
		}
	})
	return db, b
}

// folded waits until no table is left to be folded: so it is counted whole, or not at all.
func folded(tb testing.TB, db *store.DB) {
	tb.Helper()
	late := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for db.Written().Folding {
		select {
		case <-tick.C:
		case <-late:
			tb.Fatal("the log is not folded")
		}
	}
}

func commit(tb testing.TB, db *store.DB, c store.Change) {
	tb.Helper()
	if err := db.Commit(context.Background(), c); err != nil {
		tb.Fatal(err)
	}
}

// batch is how many first transitions of orders are committed at once: as many
// as one change may hold, to a power of two.
const batch = 128

// filled are orders that the file holds before anything is measured: its trees
// have a second level, and pages that split.
const filled = 2048

// changes are n of size first transitions each, of orders from a number on.
func changes(tb testing.TB, from, n, size int) []store.Change {
	set := program(tb)
	all := make([]store.Change, n)
	for i := range all {
		for range size {
			tr := first(tb, set, orderID(from))
			all[i].Transitions = append(all[i].Transitions, tr)
			from++
		}
		all[i].Checkpoints = []edda.Checkpoint{{Stream: "AGGREGATE_EVENTS", Seq: uint64(from), Time: noon, Created: noon}}
	}
	return all
}

func commits(size int) func(testing.TB, int) (func(), *books) {
	return func(tb testing.TB, n int) (func(), *books) {
		db, b := opened(tb)
		for _, c := range changes(tb, 0, filled/batch, batch) {
			commit(tb, db, c)
		}
		all := changes(tb, filled, n, size)
		var enc store.Encoder // as the engine has one for each lane
		return func() {
			b.begin(tb)
			for _, c := range all {
				encoded := make([]store.Encoded, len(c.Transitions))
				for i := range c.Transitions {
					encoded[i] = enc.Transition(&c.Transitions[i])
				}
				c.Transitions, c.Encoded = nil, encoded
				commit(tb, db, c)
				enc.Reset()
			}
			b.end(tb)
		}, b
	}
}

func loadCell(tb testing.TB, n int) (func(), *books) {
	db, _ := opened(tb)
	s := tell(tb, program(tb), orderID(0))
	commit(tb, db, store.Change{Transitions: s.made[:3]})
	view, err := db.View()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(view.Close)
	return repeat(n, func() {
		if cell, err := view.Cell(s.last.Key); err != nil || len(cell.Instance.Steps) != 3 {
			tb.Fatal(cell, err)
		}
	})
}
