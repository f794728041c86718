package effecttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"edda/effects"
	"edda/store"
)

// Queue is the source and publisher of a worker: it passes commands to it and keeps the results.
type Queue struct {
	in  chan effects.Command
	out chan effects.Result
}

// maxResults bounds the results that wait for Do.
const maxResults = 100

// Work runs a worker for one effect with a real store until the test ends. Every secret is
// "s3cret".
func Work(t testing.TB, e *effects.Effect, p effects.Provider) *Queue {
	t.Helper()
	q := &Queue{make(chan effects.Command), make(chan effects.Result, maxResults)}
	StartWorker(t, effects.Options{
		Source: q, Publisher: q, Providers: map[string]effects.Provider{e.Provider(): p},
		Secrets: effects.Secrets{Environ: func(string) (string, bool) { return "s3cret", true }},
	}, e)
	return q
}

// StartWorker runs a worker for effects with a real store until the test ends.
func StartWorker(t testing.TB, o effects.Options, all ...*effects.Effect) {
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

// Do passes a command to the worker and returns its result.
func (q *Queue) Do(c effects.Command) effects.Result {
	q.in <- c
	return <-q.out
}

// Fetch implements effects.Source.
func (q *Queue) Fetch(ctx context.Context, _ string, _ int, _ time.Duration) ([]effects.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c := <-q.in:
		return []effects.Delivery{&FakeDelivery{c}}, nil
	}
}

// PublishResult implements effects.Publisher.
func (q *Queue) PublishResult(_ context.Context, r effects.Result) error {
	q.out <- r
	return nil
}

// FakeDelivery is a delivery that is never redelivered.
type FakeDelivery struct{ C effects.Command }

// Command implements effects.Delivery.
func (d *FakeDelivery) Command() *effects.Command              { return &d.C }
func (*FakeDelivery) InProgress(context.Context) error         { return nil }
func (*FakeDelivery) Ack(context.Context) error                { return nil }
func (*FakeDelivery) Nak(context.Context, time.Duration) error { return nil }
