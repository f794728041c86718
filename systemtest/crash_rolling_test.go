//go:build !race

package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects/effecttest"
	"edda/saga"
	"edda/server"
)

// The sizes of the restarts under load: a short one for every run of the tests,
// and where EDDA_CRASH_KILLS is set the rate that is promised.
const (
	rollingRate      = 1000 // events a second
	rollingRateLong  = 5000
	rollingTimes     = 2 // restarts
	rollingTimesLong = 12
	rollingBetween   = 1500 * time.Millisecond
	meters           = 200 // keys that the events go round
	trips            = 20  // instances that live through a restart or a reload
	// drainWithin is what all stages of a stop may take together.
	drainWithin = 29 * time.Second
)

// rollingSagas count events, and have instances that live through a reload. The
// number is the version of the trips.
const rollingSagas = `saga: meter
version: 1
key: event.order_id
from: all
state: {n: 0}
on:
  Ticked: {start: true, set: {n: "=state.n + 1"}, do: [{command: Meter.Note, to: =key, with: {n: =state.n}}]}
---
saga: trip
version: %[1]d
key: event.order_id
from: all
on:
  TripAsked: {start: true, do: [{timer: wait, after: 3s}]}
  timer.wait: {do: [{command: Trip.End, to: =key, with: {version: %[1]d}}, {done: {version: %[1]d}}]}
`

func rollingManifest(version int) func(string) string {
	return func(string) string { return fmt.Sprintf(rollingSagas, version) }
}

// rolling is one run under a steady load.
type rolling struct {
	*torture
	js     jetstream.JetStream
	rate   int
	stop   chan struct{}
	ending sync.Once // closes stop
	ended  chan struct{}
	sent   int // ticks; read after ended
	took   time.Duration
	queued []jetstream.PubAckFuture
	asked  map[string]int // trips, and the version that they are to meet
	drains []time.Duration
}

func newRolling(t *testing.T) (r *rolling, long bool) {
	beside(t)
	long = longRound()
	r = &rolling{torture: newTorture(t, crashSeed(t), &tortured, rollingManifest(1)), rate: rollingRate,
		stop: make(chan struct{}), ended: make(chan struct{}), asked: map[string]int{}}
	if long {
		r.rate = rollingRateLong
	}
	conn, _ := client(t, r.nats.url())
	var err error
	if r.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1<<16)); err != nil {
		t.Fatal(err)
	}
	return r, long
}

// begin lets events flow until they are stilled, or the test is given up.
func (r *rolling) begin() {
	go r.flow()
	r.t.Cleanup(r.end)
}

// end waits until no more are sent.
func (r *rolling) end() {
	r.ending.Do(func() { close(r.stop) })
	<-r.ended
}

// flow sends events at the rate until it is stopped.
func (r *rolling) flow() {
	defer close(r.ended)
	begin := time.Now()
	beat := time.NewTicker(10 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case <-r.stop:
			r.took = time.Since(begin)
			return
		case <-beat.C:
			r.tick(int(time.Since(begin).Seconds()*float64(r.rate)) - r.sent)
		}
	}
}

// tick sends n events.
func (r *rolling) tick(n int) {
	for range n {
		id := fmt.Sprintf("meter-%d", r.sent%meters)
		m := messageOf(0, id, fmt.Sprintf("tick-%d", r.sent), "Ticked", fmt.Sprintf(`{"order_id":%q}`, id))
		ack, err := r.js.PublishMsgAsync(m)
		if err != nil {
			r.t.Error(err)
			return
		}
		r.queued = append(r.queued, ack)
		r.sent++
	}
}

// still ends the load, and fails where the stream did not take all of it.
func (r *rolling) still() {
	r.t.Helper()
	r.end()
	select {
	case <-r.js.PublishAsyncComplete():
	case <-time.After(soon):
		r.t.Fatal("the stream does not take the events")
	}
	for _, ack := range r.queued {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			r.t.Fatalf("an event was not stored: %v", err)
		}
	}
}

// ask begins trips that are to meet a version, and waits until they have begun.
func (r *rolling) ask(version int) {
	r.t.Helper()
	var fresh []string
	for range trips {
		id := fmt.Sprintf("trip-%d", len(r.asked))
		if err := publishSurely(r.js, messageOf(0, id, id, "TripAsked", fmt.Sprintf(`{"order_id":%q}`, id))); err != nil {
			r.t.Fatal(err)
		}
		r.asked[id] = version
		fresh = append(fresh, id)
	}
	until(r.t, "the trips begin", func() bool {
		return !slices.ContainsFunc(fresh, func(id string) bool {
			_, status := r.child.fetch("/v1/instances/trip/" + id)
			return status != http.StatusOK
		})
	})
}

// restart stops the process in order, one way or the other, and starts the next.
func (r *rolling) restart(i int) {
	r.t.Helper()
	begin := time.Now()
	if i%2 == 0 {
		r.post("/admin/drain", http.StatusOK, http.StatusAccepted)
	} else {
		r.signal(syscall.SIGTERM)
	}
	r.goneWithin(begin)
	if code, said := r.child.code(), r.child.err.String(); code != 0 || strings.Contains(said, "stays in the outbox") {
		r.t.Errorf("the drain ended with %d although nothing was wrong: %s", code, said)
	}
	r.start()
}

func (r *rolling) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.child.Cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// goneWithin waits for the end of the process, which has a deadline.
func (r *rolling) goneWithin(begin time.Time) {
	r.t.Helper()
	select {
	case <-r.child.Ended():
	case <-time.After(drainWithin):
		r.t.Fatalf("the drain has not ended within %v: %s", drainWithin, r.child.err)
	}
	r.drains = append(r.drains, time.Since(begin).Round(time.Millisecond))
}

// post calls an admin verb and returns what it says.
func (r *rolling) post(path string, want ...int) string {
	r.t.Helper()
	resp, err := http.Post("http://"+r.addr+path, "application/json", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body json.RawMessage
	_ = json.NewDecoder(resp.Body).Decode(&body) // it may be empty
	if !slices.Contains(want, resp.StatusCode) {
		r.t.Fatalf("%s: %d %s, want %v", path, resp.StatusCode, body, want)
	}
	return string(body)
}

// TestRestartsAndReloadsUnderLoadLoseAndDoubleNothing: restarts, a reload with a
// new version and reloads with errors, while events flow.
func TestRestartsAndReloadsUnderLoadLoseAndDoubleNothing(t *testing.T) {
	r, long := newRolling(t)
	times := rollingTimes
	if long {
		times = rollingTimesLong
	}
	r.start()
	r.begin()
	for i := range times {
		r.ask(1) // they live through the restart
		r.await(rollingBetween, func() bool { return false })
		r.restart(i)
	}
	r.badReload()
	r.ask(1) // they live through the reload
	r.reload(2)
	r.ask(2)
	r.badReload()
	r.await(rollingBetween, func() bool { return false })
	r.still()
	behind := time.Now()
	r.settleTrips()
	t.Logf("%d events in %v, %.0f a second; the last was handled %v after it was sent; %d restarts, drained in %v; exit codes 0",
		r.sent, r.took.Round(time.Millisecond), float64(r.sent)/r.took.Seconds(), time.Since(behind).Round(time.Millisecond), times, r.drains)
	if reached := float64(r.sent) / r.took.Seconds(); long && reached < 0.95*float64(r.rate) {
		t.Errorf("the load was %.0f events a second, want %d", reached, r.rate)
	}
	r.judgeTicks()
}

// reload takes another version of the trips in.
func (r *rolling) reload(version int) {
	r.t.Helper()
	write(r.t, r.dir, "shop.yaml", rollingManifest(version)(""))
	begin := time.Now()
	r.post("/admin/reload", http.StatusOK)
	r.t.Logf("reloaded under load in %v", time.Since(begin).Round(time.Millisecond))
}

// badReload offers manifests with errors, one of them a text that changed under
// its version: each must be refused, and change nothing of what runs.
func (r *rolling) badReload() {
	r.t.Helper()
	good, err := os.ReadFile(r.manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	before := r.sagas()
	for _, bad := range []string{
		strings.Replace(string(good), "state.n + 1", "state.n +", 1),
		strings.Replace(string(good), "after: 3s", "after: 1s", 1),
		string(good) + "---\nsaga: meter\nversion: 1\nkey: event.x\non: {X: {start: true}}\n",
	} {
		write(r.t, r.dir, "shop.yaml", bad)
		r.post("/admin/reload", http.StatusUnprocessableEntity)
	}
	write(r.t, r.dir, "shop.yaml", string(good))
	if after := r.sagas(); after != before {
		r.t.Errorf("a bad reload changed what runs: %s, and was %s", after, before)
	}
}

// sagas tells which texts run.
func (r *rolling) sagas() (out string) {
	r.t.Helper()
	var info server.Info
	r.child.get("/info", &info)
	for _, s := range info.Sagas {
		out += fmt.Sprintf("%s v%d %s newest=%v; ", s.Saga, s.Version, s.Hash, s.Newest)
	}
	return out
}

// settleTrips waits until all is done.
func (r *rolling) settleTrips() {
	r.t.Helper()
	js := r.torture.js()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	untilIn(r.t, tortureWithin, "everything is done", func() bool {
		<-look.C
		ended := 0
		for _, in := range r.child.instances("trip") {
			if in.Status.Finished() {
				ended++
			}
		}
		return ended == len(r.asked) && r.caughtUp(js) && r.child.metric("edda_outbox_items") == 0
	})
}

// judgeTicks holds the books: every event was applied once, in order, every
// command is out under one id, and every trip ended on the version it began with.
func (r *rolling) judgeTicks() {
	r.t.Helper()
	if code := r.child.terminate(); code != 0 {
		r.t.Errorf("exit code %d: %s", code, r.child.err)
	}
	b := readBooks(r.t, r.data+"/store", r.nats.url())
	for _, err := range b.findings {
		b.wrong(r.t, "the store contradicts itself", "%v", err)
	}
	for name, n := range b.left {
		if n > 0 {
			b.wrong(r.t, "left behind", "%d rows of %s", n, name)
		}
	}
	fates := b.fatesOf()
	for _, ev := range b.events {
		if got := fates[placeOf(ev)]; len(got) != 1 || got[0] != edda.FateHandled {
			b.wrong(r.t, "fates", "event %s at %d: %v", ev.ID, ev.Seq, got)
		}
	}
	b.judgeOrder(r.t)
	b.judgeWork(r.t)
	r.judgeStates(b)
	v1, v2 := sagaSet(r.t, rollingManifest(1)("")), sagaSet(r.t, rollingManifest(2)(""))
	b.model(r.t, func(k edda.Key) *saga.Set {
		if r.asked[k.Correlation] == 2 {
			return v2
		}
		return v1
	})
	r.t.Logf("%d events, %d transitions, %d commands in the books", len(b.events), b.transitions(), b.works())
}

// judgeStates looks what the instances know.
func (r *rolling) judgeStates(b *books) {
	r.t.Helper()
	count := map[string]int{}
	for _, ev := range b.events {
		count[ev.AggregateID]++
	}
	for id, n := range count {
		if in := b.instances[edda.Key{Tenant: "default", Saga: "meter", Correlation: id}]; in != nil && field(in.State, "n") != fmt.Sprint(n) {
			b.wrong(r.t, "states", "%s counted %s of %d events", id, in.State, n)
		}
	}
	for id, version := range r.asked {
		in := b.instances[edda.Key{Tenant: "default", Saga: "trip", Correlation: id}]
		if in == nil || in.Version != version || field(in.Result, "version") != fmt.Sprint(version) {
			b.wrong(r.t, "versions", "%s met %+v, want version %d", id, in, version)
		}
	}
}

// TestADrainThatCannotFlushSaysWhatItLeft stops the process while NATS hears
// nothing of what it sends: it must end within its deadline, say what stays, and
// lose nothing.
func TestADrainThatCannotFlushSaysWhatItLeft(t *testing.T) {
	r, _ := newRolling(t)
	proxy := effecttest.NewFaults(t, r.nats.addr)
	r.natsURL = "nats://" + proxy.Address()
	r.start()
	r.begin()
	r.ask(1)
	proxy.NoRequests()
	// What was sent before may still leave the outbox, so the count alone does not tell that work waits.
	until(t, "work waits", func() bool {
		said := r.child.err.String()
		return strings.LastIndex(said, "destination is down") > strings.LastIndex(said, "destination is up again")
	})
	begin := time.Now()
	r.signal(syscall.SIGTERM)
	r.goneWithin(begin)
	said := r.child.err.String()
	if !strings.Contains(said, "stays in the outbox") || !strings.Contains(said, `"rows":`) {
		t.Errorf("it does not say what it left: %s", said)
	}
	if code := r.child.code(); code != 0 {
		t.Errorf("what a dead destination does not take is no failure of a stop, and it ended with %d: %s", code, said)
	}
	t.Logf("it ended after %v and said: %s", r.drains[0], strings.TrimSpace(said))
	proxy.None()
	r.still()
	r.start()
	r.settleTrips()
	r.judgeTicks()
}
