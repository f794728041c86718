// Package testkit has helpers for tests and tools: stores with a committer, loops that end with the
// test, compiled sagas, metrics and conditions. It works in a synctest bubble and in real time. No
// code of the product imports it.
package testkit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda"
	"edda/store"
)

// Main runs the tests of a package. The property tests have the same seed in every run; -rapid.seed
// on the command line changes it.
func Main(m *testing.M) {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Must fails the test at once on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Run runs a loop until stop, at the latest until the end of the test. The test fails
// unless the loop returns nil.
func Run(t testing.TB, loop func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- loop(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// OpenStore opens a store and runs its committer until stop or the end of the test.
func OpenStore(t testing.TB, dir string, o store.Options) (db *store.DB, stop func()) {
	t.Helper()
	db, err := store.Open(dir, o)
	Must(t, err)
	stop = Run(t, func(ctx context.Context) error {
		return errors.Join(db.Run(ctx), db.Close())
	})
	return db, stop
}

// Commit commits a change.
func Commit(t testing.TB, db *store.DB, c store.Change) {
	t.Helper()
	Must(t, db.Commit(context.Background(), c))
}

// Cell reads the committed cell of a key.
func Cell(t testing.TB, db *store.DB, k edda.Key) edda.Cell {
	t.Helper()
	v, err := db.View()
	Must(t, err)
	defer v.Close()
	cell, err := v.Cell(k)
	Must(t, err)
	return cell
}

// Value fails the test on an error, and else returns the value.
func Value[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// WantError fails the test unless err is of the class and contains the words. A nil class is any.
func WantError(t testing.TB, err error, class error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if class != nil && !errors.Is(err, class) {
		t.Errorf("%v is not %v", err, class)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q lacks %q", err, word)
		}
	}
}

// Closed reports whether a channel is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Until polls a condition in real time until it holds. The test fails after the duration within.
func Until(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(within); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// Metric sums the samples of a metric whose labels have exactly these values, in the order of the
// label names. For a histogram it counts the observations.
func Metric(t testing.TB, r prometheus.Gatherer, name string, values ...string) float64 {
	t.Helper()
	families, err := r.Gather()
	Must(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if slices.Equal(labels, values) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
