package server

import (
	"context"
	"io"

	"edda/replay"
	"edda/retention"
	"edda/store"
)

// The fakes' store has nothing to clean up, and says so.

func (f *fakes) Collect(context.Context, Collect, func(any)) (retention.Report, error) {
	return retention.Report{}, nil
}

func (f *fakes) Backup(_ context.Context, _ Operator, _ string, start func(store.Backup) io.Writer) error {
	_, err := start(store.Backup{Bytes: 5}).Write([]byte("store"))
	return err
}

func (f *fakes) Doctor(context.Context, Operator, func(any)) (Doctor, error) { return Doctor{}, nil }

func (f *fakes) Compact(context.Context, Operator, func(any)) (store.Compaction, error) {
	return store.Compaction{}, nil
}

func (f *fakes) Begin(context.Context, replay.Request) (replay.Report, error) {
	return replay.Report{}, nil
}

func (f *fakes) Reports() ([]replay.Report, error) { return nil, nil }
