package effecttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"edda/effects"
	"edda/store"
)

// Desk hands commands to a worker, and keeps what it publishes.
type Desk struct {
	in  chan effects.Command
	out chan effects.Result
}

// results are kept until somebody takes them.
const results = 100

// Work runs a worker of one effect with a real store until the test ends.
// Every secret is "s3cret".
func Work(t testing.TB, e *effects.Effect, p effects.Provider) *Desk {
	t.Helper()
	d := &Desk{make(chan effects.Command), make(chan effects.Result, results)}
	Hire(t, effects.Options{
		Source: d, Publisher: d, Providers: map[string]effects.Provider{e.Provider(): p},
		Secrets: effects.Secrets{Environ: func(string) (string, bool) { return "s3cret", true }},
	}, e)
	return d
}

// Hire runs a worker of the effects with a real store until the test ends.
func Hire(t testing.TB, o effects.Options, all ...*effects.Effect) {
	t.Helper()
	db, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := effects.New(db, o, all...)
	if err != nil {
		t.Fatal(errors.Join(err, db.Close()))
	}
	storing, endStore := context.WithCancel(context.Background())
	working, endWork := context.WithCancel(context.Background())
	stored, worked := make(chan error, 1), make(chan error, 1)
	go func() { stored <- db.Run(storing) }()
	go func() { worked <- w.Run(working) }()
	t.Cleanup(func() {
		endWork()
		err := <-worked
		endStore()
		if err := errors.Join(err, <-stored, db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// Do has one command done and gives its result.
func (d *Desk) Do(c effects.Command) effects.Result {
	d.in <- c
	return <-d.out
}

// Fetch is for the worker.
func (d *Desk) Fetch(ctx context.Context, _ string, _ int, _ time.Duration) ([]effects.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c := <-d.in:
		return []effects.Delivery{&Letter{c}}, nil
	}
}

// PublishResult is for the worker.
func (d *Desk) PublishResult(_ context.Context, r effects.Result) error {
	d.out <- r
	return nil
}

// Letter is a delivery that nobody delivers again.
type Letter struct{ Is effects.Command }

// Command, and the rest, are as of effects.Delivery.
func (l *Letter) Command() *effects.Command              { return &l.Is }
func (*Letter) InProgress(context.Context) error         { return nil }
func (*Letter) Ack(context.Context) error                { return nil }
func (*Letter) Nak(context.Context, time.Duration) error { return nil }
