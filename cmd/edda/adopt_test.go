package main

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/zap"

	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// versionOf is what a folder with one version of one saga holds.
func versionOf(t *testing.T, n int) loaded {
	t.Helper()
	text := fmt.Sprintf("saga: order\nversion: %d\nkey: event.id\non: {Placed: {start: true}}\n", n)
	file, problems := manifests.Parse("order.yaml", []byte(text))
	if problems.Failed() {
		t.Fatal(problems)
	}
	program, problems := saga.Compile(file.Sagas[0], saga.Options{})
	if problems.Failed() {
		t.Fatal(problems)
	}
	return loaded{programs: []*saga.Program{program}}
}

// stored is a process with nothing but a store.
func stored(t *testing.T) *process {
	t.Helper()
	db, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- db.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &process{settings: settings{config: config{Role: roleSaga}}, log: zap.NewNop(), db: db}
}

// TestAnInstanceThatStartedDuringAReloadHadNoVersion: it was not yet in the
// store when the reload looked which versions are needed.
func TestAnInstanceThatStartedDuringAReloadHadNoVersion(t *testing.T) {
	p := stored(t)
	if err := p.adopt(t.Context(), versionOf(t, 1)); err != nil {
		t.Fatal(err)
	}
	set, problems, err := p.prepare(t.Context(), versionOf(t, 2))
	if err != nil || problems.Failed() {
		t.Fatal(err, problems)
	}
	var has []int
	for _, program := range set.Programs() {
		has = append(has, program.Version())
	}
	if fmt.Sprint(has) != "[2 1]" {
		t.Errorf("the new set has the versions %v, want 2 and, until the next reload, 1", has)
	}
	if got := set.Starts("order").Version(); got != 2 {
		t.Errorf("instances start on version %d", got)
	}
}
