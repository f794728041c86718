package kv

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/internal/testkit"
)

// faultyKV injects network faults between a worker and the bucket.
type faultyKV struct {
	jetstream.KeyValue
	lost   int                     // number of the next writes whose acks are lost
	never  int                     // number of the next writes that are lost
	fails  error                   // the error of every write
	behind jetstream.KeyValueEntry // the answer to the next read
	blank  bool                    // the next read finds nothing
	writes int                     // stored ones
}

func faulty(l *Ledger) *faultyKV {
	kv := &faultyKV{KeyValue: l.kv}
	l.kv = kv
	return kv
}

func (f *faultyKV) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	old, blank := f.behind, f.blank
	f.behind, f.blank = nil, false
	switch {
	case blank:
		return nil, jetstream.ErrKeyNotFound
	case old != nil:
		return old, nil
	}
	return f.KeyValue.Get(ctx, key)
}

func (f *faultyKV) Create(ctx context.Context, key string, value []byte, o ...jetstream.KVCreateOpt) (uint64, error) {
	return f.write(func() (uint64, error) { return f.KeyValue.Create(ctx, key, value, o...) })
}

func (f *faultyKV) Update(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	return f.write(func() (uint64, error) { return f.KeyValue.Update(ctx, key, value, over) })
}

func (f *faultyKV) write(do func() (uint64, error)) (uint64, error) {
	if f.fails != nil {
		return 0, f.fails
	}
	if f.never > 0 {
		f.never--
		return 0, nats.ErrTimeout
	}
	revision, err := do()
	if err != nil {
		return 0, err
	}
	f.writes++
	if f.lost > 0 {
		f.lost--
		return 0, nats.ErrTimeout
	}
	return revision, nil
}

func TestAWriteWithALostAckIsOurs(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		kv := faulty(l)
		kv.lost, kv.behind = 1, nil
		mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
		kv.lost = 1
		mine = testkit.Value[effects.Entry](t)(l.Renew(ctx, mine))
		kv.lost = 1
		if err := l.Finish(ctx, finished(mine, `1`)); err != nil {
			t.Fatal(err)
		}
		if e := find(t, l); !e.Claim.Done || kv.writes != 3 {
			t.Errorf("%d writes: %+v", kv.writes, e)
		}
	})
}

func TestALostWriteIsRetried(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		faulty(l).never = 3
		testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
		if e := find(t, l); !e.Held {
			t.Errorf("it is %+v", e)
		}
	})
}

// TestALostRenewalDoesNotPassForTheNext: otherwise the holder would count its lease from too late.
func TestALostRenewalDoesNotPassForTheNext(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		kv := faulty(l)
		mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
		gone, cancel := context.WithCancel(ctx)
		cancel()
		kv.lost = 1
		old := json.RawMessage(nil)
		if _, err := kv.write(func() (uint64, error) { // as an abandoned Renew does
			e := testkit.Value[jetstream.KeyValueEntry](t)(kv.KeyValue.Get(ctx, ledgerKey("acme", "c1")))
			old = e.Value()
			return kv.KeyValue.Update(ctx, e.Key(), old, e.Revision())
		}); !errors.Is(err, nats.ErrTimeout) {
			t.Fatal(err)
		}
		if _, err := l.Renew(gone, mine); !errors.Is(err, context.Canceled) {
			t.Errorf("a renewal that was cut: %v", err)
		}
		before := find(t, l).Revision
		renewed := testkit.Value[effects.Entry](t)(l.Renew(ctx, mine))
		if renewed.Revision <= before {
			t.Errorf("revision %d is that of an earlier write", renewed.Revision)
		}
		if err := l.Finish(ctx, finished(mine, `1`)); err != nil { // over the first revision, because the renewals are its own
			t.Error(err)
		}
	})
}

func TestFinishIsIdempotent(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		kv := faulty(l)
		mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
		done := finished(mine, `1`)
		if err := l.Finish(ctx, done); err != nil {
			t.Fatal(err)
		}
		if err := l.Finish(ctx, done); err != nil || kv.writes != 2 {
			t.Errorf("the same result again: %v, %d writes", err, kv.writes)
		}
		if err := l.Finish(ctx, finished(mine, `2`)); err != nil { // as after a result that could not be published
			t.Error(err)
		}
		if e := find(t, l); string(e.Claim.Result) != `2` {
			t.Errorf("it is %+v", e)
		}
	})
}

// TestStaleReadsNeverAllowAClaim: they may delay a worker.
func TestStaleReadsNeverAllowAClaim(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		kv := faulty(b)
		mine := testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		kv.blank = true
		e := find(t, b)
		if e.Found {
			t.Fatal("the read is not behind")
		}
		e.Claim = command1().Claim
		kv.blank = true // also in resolve
		_, err := b.Claim(ctx, e)
		wantTaken(t, "a claim over nothing", err)

		claimed := testkit.Value[jetstream.KeyValueEntry](t)(kv.KeyValue.Get(ctx, ledgerKey("acme", "c1")))
		held := find(t, b)
		if err := a.Finish(ctx, finished(mine, `1`)); err != nil {
			t.Fatal(err)
		}
		lapsed := held
		lapsed.Held = false // as after Await with stale reads
		kv.behind = claimed
		_, err = b.Claim(ctx, lapsed)
		wantTaken(t, "a claim over an old revision", err)
		wantTaken(t, "an unknown outcome over an old revision", b.Finish(ctx, finished(lapsed, `2`)))
		if e := find(t, b); string(e.Claim.Result) != `1` {
			t.Errorf("it is %+v", e)
		}
	})
}

func TestAWriteIsBoundedInTime(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		kv := faulty(l)
		kv.fails = nats.ErrTimeout
		from := time.Now()
		_, err := l.Claim(ctx, command1())
		if took := time.Since(from); !errors.Is(err, nats.ErrTimeout) || errors.Is(err, effects.ErrTaken) || took > l.Lease() {
			t.Errorf("after %v: %v", took, err)
		}
		kv.fails = nats.ErrMaxPayload
		from = time.Now()
		_, err = l.Claim(ctx, command1())
		testkit.WantError(t, err, edda.Permanent, "maximum payload")
		if took := time.Since(from); took > 0 {
			t.Errorf("what cannot be is tried for %v", took)
		}
	})
}

func TestAClaimSurvivesAnOutage(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		mine := testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		held := find(t, b)
		waited := make(chan effects.Entry, 1)
		go func() {
			e, err := b.Await(ctx, held)
			if err != nil {
				t.Error(err)
			}
			waited <- e
		}()
		w.Restart(func() { time.Sleep(a.Lease() / 3) })
		mine = testkit.Value[effects.Entry](t)(a.Renew(ctx, mine))
		time.Sleep(a.Lease() * 3 / 4)
		if err := a.Finish(ctx, finished(mine, `1`)); err != nil {
			t.Error(err)
		}
		if e := <-waited; string(e.Claim.Result) != `1` {
			t.Errorf("it is %+v", e)
		}
	})
}

func TestOvertakenKnowsBothErrorCodes(t *testing.T) {
	for _, code := range []jetstream.ErrorCode{jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant} {
		if !Overtaken(&jetstream.APIError{Code: 400, ErrorCode: code}) {
			t.Errorf("%d", code)
		}
	}
	if Overtaken(nil) || Overtaken(nats.ErrTimeout) || Overtaken(&jetstream.APIError{Code: 503, ErrorCode: 10077}) {
		t.Error("it sees rivals everywhere")
	}
}
