package main

import (
	"slices"
	"testing"
	"time"
)

func TestQuantilesAreByTheNearestRank(t *testing.T) {
	var times []time.Duration
	for i := range 1000 {
		times = append(times, time.Duration(1000-i)*time.Millisecond) // sorted by summarize
	}
	got := summarize(times)
	if want := (Latency{N: 1000, P50: 500, P99: 990, P999: 999, Max: 1000}); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
	if got := summarize([]time.Duration{3 * time.Microsecond}); *got != (Latency{N: 1, P50: 0.003, P99: 0.003, P999: 0.003, Max: 0.003}) {
		t.Errorf("of one: %+v", *got)
	}
	if got := summarize([]time.Duration{time.Second, 3 * time.Second}); got.P50 != 1000 || got.P99 != 3000 {
		t.Errorf("of two: %+v", *got)
	}
	if summarize(nil) != nil {
		t.Error("of none there are quantiles")
	}
}

func TestRates(t *testing.T) {
	if got := perSecond(500, 250*time.Millisecond); got != 2000 {
		t.Errorf("%v a second", got)
	}
	if perSecond(5, 0) != 0 || each(5, 0) != 0 {
		t.Error("nothing is divided by nothing")
	}
	if got := each(10, 4); got != 2.5 {
		t.Errorf("%v each", got)
	}
}

func TestFloorsAreFractionsOfTheFloor(t *testing.T) {
	res := &Result{Rate: 250, Latency: &Latency{P50: 4}}
	res.floor("a rate", 1000, &Costs{Effects: 0.1, Client: 0.2})
	res.floorLatency("a median", &Latency{P50: 1, P99: 3})
	res.floor("nothing", 0, nil)
	if f := res.Floors; f[0].Fraction != 0.25 || f[0].CPU < 0.299 || f[0].CPU > 0.301 || f[1].Fraction != 0.25 || f[1].P99 != 3 || f[2].Fraction != 0 {
		t.Errorf("%+v", f)
	}
}

func TestCostsAreForEachAndForAThousand(t *testing.T) {
	at := time.Now()
	before := reading{at: at, server: usage{time.Second, 1000}, effects: usage{cpu: time.Second}, counters: map[string]float64{commits: 10, commitBytes: 100, syncs: 20}}
	after := reading{at: at.Add(2 * time.Second), machine: 8 * time.Second, server: usage{5 * time.Second, 5000}, effects: usage{cpu: 2 * time.Second}, client: usage{cpu: 500 * time.Millisecond}, counters: map[string]float64{commits: 30, commitBytes: 500, syncs: 60}}
	c := cost(2000, before, after, 0.25, 7, nil)
	if c.Engine != 1.5 || c.NATS != 0.5 || c.Effects != 0.5 || c.Client != 0.25 || c.Written != 2 || c.StoreBytes != 0.2 || c.Commits != 0.01 || c.Fsyncs != 0.02 || c.Anonymous != 7 || c.Besides != 1.25 {
		t.Errorf("%+v", *c)
	}
}

func TestTheTimeOfAProcessWhoseNameHasSpaces(t *testing.T) {
	stat := "42 (edda) dev (x) S 1 42 42 0 -1 4194560 900 0 0 0 123 45 6 7 20 0 9 0 100 1 2"
	if got := cpuOf(stat); got != 1680*time.Millisecond {
		t.Errorf("%v", got)
	}
	if cpuOf("") != 0 || cpuOf("1 (x) S") != 0 {
		t.Error("a line that is cut off has a time")
	}
}

func TestTheTimeOfTheMachine(t *testing.T) {
	if got := busyOf("cpu  100 10 50 9999 999 5 6 7 70 0\ncpu0 1 1 1 1\n"); got != 1780*time.Millisecond {
		t.Errorf("%v", got)
	}
}

func TestSamplesBelongToTheInnermostRoom(t *testing.T) {
	const nats = "github.com/nats-io/nats-server/v2/server.(*client).readLoop"
	share, stages := attribute([]sample{
		{[]string{"runtime.mallocgc", "encoding/json.Marshal", "edda/store.encode", "edda/engine.run"}, 30},
		{[]string{"go.etcd.io/bbolt.(*Tx).write", "edda/store.(*DB).commit"}, 20},
		{[]string{"syscall.write", nats}, 10},
		{[]string{"runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker"}, 30},
		{[]string{"runtime.futex", "runtime.schedule", "runtime.mcall"}, 10},
		{[]string{"strings.Cut", "github.com/nats-io/nats%2ego.(*Conn).parse", "edda/stream.(*Publisher).window"}, 15},
		{[]string{"github.com/nats-io/nats.go/jetstream.(*pullConsumer).Consume"}, 5},
	})
	if share != 10.0/80 {
		t.Errorf("NATS has %v of what belongs to anybody", share)
	}
	want := []Stage{{stageGC, 0.25}, {"store: encoding and indexes", 0.25}, {"bbolt", 2.0 / 12}, {stageRuntime, 1.0 / 12}, {stageNATS, 1.0 / 12}, {"NATS client", 2.0 / 12}}
	for _, w := range want {
		if !slices.Contains(stages, w) {
			t.Errorf("%v, want %v among them", stages, w)
		}
	}
}

func TestNoMoreAtOnceThanHelps(t *testing.T) {
	if got := enough([]float64{700, 990, 1000, 980}); got != 1 {
		t.Errorf("the %dth is taken", got)
	}
	if got := enough([]float64{700, 900, 1000}); got != 2 {
		t.Errorf("the %dth is taken", got)
	}
}

// TestALateGeneratorIsSeen: what is sent after it was due is late by that.
func TestALateGeneratorIsSeen(t *testing.T) {
	res := Result{Unit: "instances", Rate: 5, Latency: &Latency{P50: 1, P99: 2}, SentLate: summarize([]time.Duration{time.Millisecond, 3 * time.Millisecond})}
	if got, want := res.line(), "5 instances/s, p50 1.0 ms, p99 2.0 ms, sent late by p50 1.0 ms, p99 3.0 ms"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
