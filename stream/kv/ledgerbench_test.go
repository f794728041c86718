package kv

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"edda"
)

// BenchmarkLedger takes commands from nothing to a result, with a read and two writes each and a
// worker's concurrency.
func BenchmarkLedger(b *testing.B) {
	for _, syncs := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", syncs), func(b *testing.B) { benchmarkLedger(b, syncs) })
	}
}

func benchmarkLedger(b *testing.B, syncs bool) {
	js := serve(b, EmbeddedOptions{SyncAlways: syncs})
	l, err := OpenLedger(b.Context(), js, LedgerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	before := heap()
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		all.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := one(b.Context(), l, fmt.Sprintf("0190f4c2-77aa-7000-8000-%012d", n)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(heap()-before)/float64(b.N), "heapB/claim")
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func one(ctx context.Context, l *Ledger, id string) error {
	e, err := l.Find(ctx, "acme", id)
	if err != nil {
		return err
	}
	e.Claim = edda.Claim{Tenant: "acme", CommandID: id, Effect: "pay"}
	if e, err = l.Claim(ctx, e); err != nil {
		return err
	}
	if _, err := l.Since(ctx); err != nil {
		return err
	}
	return l.Finish(ctx, finished(e, `{"id":"P-123456","status":"paid","amount":1234}`))
}
