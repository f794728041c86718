package runner

import (
	"context"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/redisdb/redisdbtest"
	"edda/hero/script"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// BenchmarkQueue measures a job without its script: from its queue to its recorded end and
// its result message.
func BenchmarkQueue(b *testing.B) {
	_, db := redisdbtest.New(b, realservers.RedisOptions{})
	for id := range uint32(b.N) {
		j := hero.Job{ID: id + 1, CallerID: actor, ContextID: tenant, Script: "x", ScriptType: hero.ScriptPython}
		if _, _, err := db.Create(b.Context(), tenant, j.Key(), j, j.ScriptType.Queue()); err != nil {
			b.Fatal(err)
		}
	}
	scripts := stubScripts{run: func(context.Context, script.Script) (script.RunResult, error) {
		return script.RunResult{OK: true, Result: map[string]string{"output": ""}}, nil
	}}
	r, err := New(20, db, scripts, Options{Contexts: []uint32{tenant}, Concurrency: 32})
	testkit.Must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	b.ResetTimer()
	go func() { done <- r.Run(ctx) }()
	for n := int64(0); n < int64(b.N); time.Sleep(time.Millisecond) {
		if n, err = db.Depth(b.Context(), tenant, hero.MsgOut); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	cancel()
	testkit.Must(b, <-done)
}

// BenchmarkScript measures the process of a script.
func BenchmarkScript(b *testing.B) {
	h := newScripts(b, b.TempDir())
	for b.Loop() {
		if out, err := h.Run(b.Context(), script.Script{ID: "x", Type: "bash", Source: "true"}); err != nil || !out.OK {
			b.Fatalf("%+v, %v", out, err)
		}
	}
}
