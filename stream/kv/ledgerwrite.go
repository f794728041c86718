package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/internal/backoff"
)

const (
	// ledgerTries share the time of one write, which is two thirds of a lease:
	// after that, the claim is as good as lost.
	ledgerTries = 4
	// ledgerPause lies between two tries.
	ledgerPause = 50 * time.Millisecond
)

// entryWrite is one write on its way. Without an answer nobody knows whether it
// came about: it is tried again, and what stands in its way then may be itself.
type entryWrite struct {
	l      *Ledger
	record record
	key    string
	value  []byte
	over   uint64 // the revision it replaces; 0 is none
}

// encode leaves '<' and '&' as they are: a result of the size that is allowed
// must not grow beyond what a message carries.
func (w *entryWrite) encode() error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(w.record)
	w.key, w.value = ledgerKey(w.record.Tenant, w.record.CommandID), b.Bytes()
	return err
}

// run tries until the write stands, another worker's does, or ctx ends.
func (w *entryWrite) run(ctx context.Context) (uint64, error) {
	for {
		revision, err := w.try(ctx)
		if overtaken(err) {
			revision, err = w.resolve(ctx)
		}
		switch {
		case revision > 0, errors.Is(err, effects.ErrTaken):
			return revision, err
		case errors.Is(err, nats.ErrMaxPayload):
			return 0, edda.Classify(edda.Permanent, "write to the ledger: %w", err)
		}
		if backoff.Wait(ctx, ledgerPause) != nil {
			return 0, fmt.Errorf("write to the ledger: %w", errors.Join(err, ctx.Err()))
		}
	}
}

func (w *entryWrite) try(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, w.l.o.Lease*2/3/ledgerTries)
	defer cancel()
	return put(ctx, w.l.kv, w.key, w.value, w.over)
}

// resolve finds out what stands in the way. It returns the revision where it is
// this write, ErrTaken where it is another worker's, and else what the next try
// must replace: an earlier write of the same claim, or nothing any more. Where
// the read is behind the refusal, the next try tells.
func (w *entryWrite) resolve(ctx context.Context) (uint64, error) {
	e, err := w.l.kv.Get(ctx, w.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		w.over = 0
		return 0, nil
	}
	if err != nil || e.Revision() <= w.over {
		return 0, err
	}
	var r record
	switch err := json.Unmarshal(e.Value(), &r); {
	case err != nil || r.Owner != w.record.Owner || r.Done && !w.record.Done:
		return 0, effects.ErrTaken
	case r.Write == w.record.Write || r.Done && bytes.Equal(r.Result, w.record.Result) && r.Outcome == w.record.Outcome:
		return e.Revision(), nil
	}
	w.over = e.Revision()
	return 0, nil
}
