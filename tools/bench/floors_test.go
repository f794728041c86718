package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// slowConsumer gives nothing for a while, and then all there is.
type slowConsumer struct {
	jetstream.Consumer
	from  time.Time
	there int
}

func (c *slowConsumer) Fetch(n int, opts ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	b := &batch{out: make(chan jetstream.Msg, n)}
	if time.Now().Before(c.from) {
		time.Sleep(fetchWait) // virtual
	} else {
		for range min(n, c.there) {
			b.out <- acked{}
			c.there--
		}
		if len(b.out) == 0 {
			time.Sleep(fetchWait)
		}
	}
	close(b.out)
	return b, nil
}

type batch struct {
	out chan jetstream.Msg
}

func (b *batch) Messages() <-chan jetstream.Msg { return b.out }
func (b *batch) Error() error                   { return nil }

type acked struct{ jetstream.Msg }

func (acked) Ack() error { return nil }

// TestTheBenchFailsWhereItsOwnFloorComesShort: on a busy machine the server stored
// nothing for some seconds, and edda bench exited 1 after good results.
func TestTheBenchFailsWhereItsOwnFloorComesShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := drain(t.Context(), &slowConsumer{from: time.Now().Add(40 * time.Second), there: 1000}, 1000, floorPatience); err != nil {
			t.Errorf("a server that was busy for 40 s: %v", err)
		}
		err := drain(t.Context(), &slowConsumer{there: 700}, 1000, floorPatience)
		if err == nil || !strings.Contains(err.Error(), "only 700 of 1000 messages came, and no more within 1m0s") {
			t.Fatalf("700 of 1000: %v", err)
		}
		res := &Result{Rate: 100}
		res.unmeasured(bareJetStream, err)
		res.floor("the bytes into bare bbolt", 200, nil)
		if line := floorsLine(res.Floors); !strings.Contains(line, bareJetStream+" could not be measured: only 700 of 1000") || !strings.Contains(line, "50% of the bytes") {
			t.Error(line)
		}
		var page strings.Builder
		(&Report{Results: []*Result{res}}).Print(&page)
		if !strings.Contains(page.String(), "not measured") {
			t.Error(page.String())
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := drain(ended, &slowConsumer{there: 700}, 1000, floorPatience); err == nil {
			t.Error("it goes on although the bench was stopped")
		}
	})
}

// What was measured stands where the disk or the server refused its floors.
func TestAFloorThatFailsIsAFloorWithoutAFigure(t *testing.T) {
	occupied := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(occupied, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &run{ctx: ctx, dir: occupied}
	r.Log = io.Discard
	res := &Result{Workload: "W1", Phase: "full", Count: 10, Rate: 100, Costs: &Costs{commits: 10, bytes: 100}}
	res.traffic = traffic{Messages: 10}
	if err := errors.Join(r.writing(res), r.syncing(res)); err != nil {
		t.Fatal(err)
	}
	want := []string{bareBolt, bareJetStream, bareFile}
	if len(res.Floors) != len(want) {
		t.Fatalf("the floors are %+v", res.Floors)
	}
	for i, f := range res.Floors {
		if f.Name != want[i] || f.Problem == "" || f.Rate != 0 {
			t.Errorf("the floor is %+v, want %s without a figure", f, want[i])
		}
	}
	cancel()
	if err := r.writing(res); err == nil {
		t.Error("it goes on although the bench was stopped")
	}
}
