package testkit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"edda"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// fillChange is the number of instances of one change set of Fill.
const fillChange = 200

// Fill writes n instances into the store in a directory, as the engine would. It is fast if the keys
// of the transitions ascend.
func Fill(ctx context.Context, dir string, n int, transitions func(i int) []edda.Transition) (err error) {
	db, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- db.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended, db.Close())
	}()
	changes := (n + fillChange - 1) / fillChange
	committed := make(chan error, changes)
	for from := 0; from < n; from += fillChange {
		var change store.Change
		for i := from; i < min(from+fillChange, n); i++ {
			change.Transitions = append(change.Transitions, transitions(i)...)
		}
		if err := db.Submit(ctx, change, func(err error) { committed <- err }); err != nil {
			return err
		}
	}
	for range changes {
		if err := <-committed; err != nil {
			return err
		}
	}
	return nil
}

// Compile returns the set of all sagas of a manifest.
func Compile(text string) (*saga.Set, error) {
	file, problems := manifests.Parse("test.yaml", []byte(text))
	if problems.Failed() {
		return nil, fmt.Errorf("%v", problems)
	}
	var programs []*saga.Program
	for _, m := range file.Sagas {
		program, problems := saga.Compile(m, saga.Options{})
		if problems.Failed() {
			return nil, fmt.Errorf("%v", problems)
		}
		programs = append(programs, program)
	}
	return saga.NewSet(programs...)
}

// Set is Compile for a test.
func Set(t testing.TB, text string) *saga.Set {
	t.Helper()
	set, err := Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
