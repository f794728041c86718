// Package testkit is what tests and the tools build their worlds of. No code of the
// product imports it.
package testkit

import (
	"context"
	"errors"
	"fmt"

	"edda"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// fillChange is the number of instances of one change set of Fill.
const fillChange = 200

// Fill writes n instances into the store in a folder, as the engine would. It is fast
// if the keys of the transitions ascend.
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

// Compile returns the set of the first saga of a manifest.
func Compile(name, text string) (*saga.Set, error) {
	file, problems := manifests.Parse(name, []byte(text))
	if problems.Failed() {
		return nil, fmt.Errorf("%v", problems)
	}
	program, problems := saga.Compile(file.Sagas[0], saga.Options{})
	if problems.Failed() {
		return nil, fmt.Errorf("%v", problems)
	}
	return saga.NewSet(program)
}
