package redisdb

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"edda/hero"
	"edda/internal/testkit"
)

func BenchmarkSend(b *testing.B) {
	d, in, c := fresh(b)
	m := hero.Message{CallerID: 12, ContextID: in, MessageType: hero.MessageJob, Job: []hero.Job{job(in)}}
	b.ReportAllocs()
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := d.Send(b.Context(), in, fmt.Sprint(b.N, " ", n.Add(1)), m); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	testkit.Must(b, c.FlushDB(b.Context()).Err())
}

func BenchmarkTakeAndDone(b *testing.B) {
	d, in, c := fresh(b)
	for n := range b.N {
		if n%10000 == 0 { // in pieces that Redis takes at once
			keys := make([]any, 0, 10000)
			for i := range min(10000, b.N-n) {
				keys = append(keys, hero.JobKey(12, uint32(n+i)))
			}
			testkit.Must(b, c.LPush(b.Context(), queue, keys...).Err())
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key, err := d.Take(b.Context(), in, queue, into, time.Second)
			if err == nil {
				err = d.Done(b.Context(), in, into, key)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	testkit.Must(b, c.FlushDB(b.Context()).Err())
}

func BenchmarkMoveJob(b *testing.B) {
	d, in, c := fresh(b)
	j := job(in)
	j.ID = 5
	testkit.Must(b, d.PutJob(b.Context(), j))
	b.ReportAllocs()
	for n := range b.N {
		to := hero.JobWaiting
		if n%2 == 1 {
			to = hero.JobDispatched
		}
		if _, moved, err := d.MoveJob(b.Context(), in, 12, 5, to, nil); err != nil || !moved {
			b.Fatal(moved, err)
		}
	}
	testkit.Must(b, c.FlushDB(b.Context()).Err())
}

func BenchmarkReadJob(b *testing.B) {
	h := hero.Fields(hero.Job{ID: 5, CallerID: 12, ContextID: 7, Script: "print(1)", ScriptType: hero.ScriptPython, EnvVars: map[string]string{"A": "1"}, Dependends: []uint32{1, 2}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := hero.ReadJob("job:12:5", h); err != nil {
			b.Fatal(err)
		}
	}
}
