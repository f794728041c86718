package stream

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/kv"
	"edda/stream/wire"
)

// newJetStream starts a server with its streams outside a bubble.
func newJetStream(b *testing.B) jetstream.JetStream {
	b.Helper()
	server, err := kv.StartEmbedded(b.Context(), kv.EmbeddedOptions{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	nc, js, err := kv.Connect(kv.Connection{Server: server.Server()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	if _, err := EnsureStreams(b.Context(), js, StreamOptions{}); err != nil {
		b.Fatal(err)
	}
	return js
}

// factsOfRun returns facts of the size of an order's, each of an instance of its own.
func factsOfRun(run, n int) []edda.Work {
	out := facts(n)
	for i := range out {
		id := fmt.Sprintf("0190f4c2-%04d-7000-8000-%012d", run, i)
		out[i].ID, out[i].From.Correlation = id+"-w", id
		out[i].Payload = []byte(`{"note":"` + strings.Repeat("x", 120) + `"}`)
	}
	return out
}

// BenchmarkDeliver publishes facts and waits for what acknowledges them.
func BenchmarkDeliver(b *testing.B) {
	js := newJetStream(b)
	p := NewPublisher(js, wire.Codec{})
	work := factsOfRun(0, b.N)
	b.ReportAllocs()
	defer reportCPU(b)()
	b.ResetTimer()
	for from := 0; from < b.N; from += 128 {
		if errs := p.Deliver(b.Context(), work[from:min(from+128, b.N)]); errs != nil {
			b.Fatal(errs)
		}
	}
}

// BenchmarkFetch reads facts that lie in their stream.
func BenchmarkFetch(b *testing.B) {
	js := newJetStream(b)
	if errs := NewPublisher(js, wire.Codec{}).Deliver(b.Context(), factsOfRun(0, b.N)); errs != nil {
		b.Fatal(errs)
	}
	b.ReportAllocs()
	done := reportCPU(b)
	b.ResetTimer()
	src, err := OpenSource(b.Context(), js, nil, SourceOptions{From: FromAll})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = src.Run(ctx)
	}()
	for left := b.N; left > 0; {
		got, err := src.Fetch(ctx, 1024, time.Minute)
		if err != nil || len(got.Events) == 0 {
			b.Fatal(left, err)
		}
		left -= len(got.Events)
	}
	b.StopTimer()
	done()
	cancel()
	<-ended
}

// reportCPU reports the CPU time, which depends less on other processes than the clock.
func reportCPU(b *testing.B) (report func()) {
	began := cpu()
	return func() { b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op") }
}

func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
