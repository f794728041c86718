package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	bolt "go.etcd.io/bbolt"

	"edda/internal/datasync"
	"edda/internal/harness"
	"edda/stream/kv"
)

const (
	// maxCalls is how many calls are under way at most: more makes them slower.
	maxCalls = 128
	// maxFloor bounds a floor's transactions and messages: its rate is soon known.
	maxFloor         = 2000
	maxFloorMessages = 100_000
	// fetchMost is how many messages one fetch takes.
	fetchMost = 512
	fetchWait = 5 * time.Second
	// floorPatience is how long a floor waits for its next message: a busy machine's
	// server may store nothing for many seconds.
	floorPatience = time.Minute

	bareJetStream = "the messages through bare JetStream"
	bareBolt      = "the bytes into bare bbolt"
	bareFile      = "the syncs alone"
	bareCalls     = "the HTTP calls alone"
)

// floor adds what the same work takes without an engine, as a rate of operations.
func (res *Result) floor(name string, rate float64, costs *Costs) {
	f := Floor{Name: name, Rate: rate}
	if rate > 0 {
		f.Fraction = res.Rate / rate
	}
	if costs != nil {
		f.CPU = costs.Effects + costs.Client
	}
	res.Floors = append(res.Floors, f)
}

// unmeasured adds a floor that has no figure: what was measured stands without it.
func (res *Result) unmeasured(name string, why error) {
	res.Floors = append(res.Floors, Floor{Name: name, Problem: why.Error()})
}

// floorLatency adds how long the same work takes without an engine.
func (res *Result) floorLatency(name string, l *Latency) {
	f := Floor{Name: name, P50: l.P50, P99: l.P99}
	if res.Latency != nil && res.Latency.P50 > 0 {
		f.Fraction = l.P50 / res.Latency.P50
	}
	res.Floors = append(res.Floors, f)
}

// calls makes the calls of n orders with no engine at all.
func (b *orderRun) calls(prefix string, n, concurrency int) (*Result, error) {
	transport := &http.Transport{MaxIdleConns: concurrency, MaxIdleConnsPerHost: concurrency}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport}
	times, next := make([]time.Duration, n), atomic.Int64{}
	failed := make(chan error, concurrency)
	before := [2]usage{usageOf(b.effects.PID()), usageOf(os.Getpid())}
	began := time.Now()
	var group sync.WaitGroup
	for range concurrency {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				at := time.Now()
				if err := b.call(c, fmt.Sprintf("%s-%07d", prefix, i)); err != nil {
					failed <- err
					return
				}
				times[i] = time.Since(at)
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		return nil, fmt.Errorf("the calls alone: %w", err)
	default:
	}
	costs := &Costs{Effects: each((usageOf(b.effects.PID()).cpu-before[0].cpu).Seconds()*1000, n), Client: each((usageOf(os.Getpid()).cpu-before[1].cpu).Seconds()*1000, n)}
	return &Result{Rate: perSecond(n, took), Latency: summarize(times), Costs: costs}, b.check(prefix, n)
}

// call makes the calls of one order, one after the other.
func (b *orderRun) call(c *http.Client, key string) error {
	for _, effect := range b.called() {
		body := fmt.Appendf(nil, `{"amount":2999,"decline":%t,"items":[{"price":1250,"quantity":2,"sku":"A-1"},{"price":499,"quantity":1,"sku":"B-7"}],"order":%q}`, b.decline && effect == "charge", key)
		req, err := http.NewRequestWithContext(b.ctx, http.MethodPost, b.effects.url+"/effects/"+effect, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key+effect)
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// writing adds the floors of what an operation writes: the bytes into a bare bbolt
// file in the same batches, and the messages through bare JetStream.
func (r *run) writing(res *Result) error {
	if err := r.storing(res); err != nil {
		return err
	}
	rate, err := bareStreams(r.ctx, filepath.Join(r.dir, res.Workload+"-floor", "nats"), res.Count, res.traffic)
	if err == nil {
		res.floor(bareJetStream, rate, nil)
	} else if err := r.without(res, bareJetStream, err); err != nil {
		return err
	}
	r.say("    floors of %s %s: %s", res.Workload, res.Phase, floorsLine(res.Floors))
	return nil
}

// without makes of an error a floor without a figure, unless the whole run has ended.
func (r *run) without(res *Result, floor string, err error) error {
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	res.unmeasured(floor, err)
	return nil
}

// storing adds the floor of what an operation writes into the store.
func (r *run) storing(res *Result) error {
	dir, err := r.folder(res.Workload + "-floor")
	rate := 0.0
	if err == nil {
		rate, err = bareStore(filepath.Join(dir, res.Phase+".db"), res.Count, res.Costs.commits, res.Costs.bytes)
	}
	if err != nil {
		return r.without(res, bareBolt, err)
	}
	res.floor(bareBolt, rate, nil)
	return nil
}

// bareStore puts the bytes of n operations into a bbolt file, in as many
// transactions, each synced, under keys in ascending order: there is no cheaper
// way to keep them in one. It tells operations a second.
func bareStore(file string, n, commits, size int) (rate float64, err error) {
	if n == 0 || commits == 0 {
		return 0, nil
	}
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	done := min(commits, maxFloor)
	perCommit := max(n/commits, 1)
	value := bytes.Repeat([]byte("v"), max(size/commits/perCommit, 1))
	key := uint64(0)
	took, err := timed(func() error {
		for range done {
			if err := db.Update(func(tx *bolt.Tx) error { return put(tx, perCommit, &key, value) }); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(n) * float64(done) / float64(commits) / took.Seconds(), err
}

// syncing adds the floor of what an operation waits for on disk: its commits, each
// appended to a bare file and synced.
func (r *run) syncing(res *Result) error {
	dir, err := r.folder(res.Workload + "-floor")
	var l *Latency
	if err == nil {
		l, err = bareSyncs(filepath.Join(dir, res.Phase+".log"), res.Count, res.Costs.commits, res.Costs.bytes)
	}
	if err != nil {
		return r.without(res, bareFile, err)
	}
	if l != nil {
		res.floorLatency(bareFile, l)
	}
	return nil
}

// bareSyncs appends the bytes of n operations to a file that has room for them, each in
// as many writes as it had commits, each synced. It tells how long an operation takes.
func bareSyncs(name string, n, commits, size int) (*Latency, error) {
	if n == 0 || commits < n {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	value := bytes.Repeat([]byte("v"), max(size/commits, 1))
	done, each := min(n, maxFloor), commits/n
	for range done * each { // blocks that were written before are synced faster
		if _, err := f.Write(value); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	times := make([]time.Duration, done)
	for i := range times {
		if times[i], err = timed(func() error { return appendSynced(f, value, int64(i*each), each) }); err != nil {
			return nil, err
		}
	}
	return summarize(times), nil
}

// appendSynced writes a value so often behind the first at, and syncs each.
func appendSynced(f *os.File, value []byte, at int64, times int) error {
	for i := range int64(times) {
		if _, err := f.WriteAt(value, (at+i)*int64(len(value))); err != nil {
			return err
		}
		if err := datasync.Sync(f); err != nil {
			return err
		}
	}
	return nil
}

// put adds so many values, with keys that go on from the last.
func put(tx *bolt.Tx, n int, key *uint64, value []byte) error {
	b, err := tx.CreateBucketIfNotExists([]byte("floor"))
	if err != nil {
		return err
	}
	b.FillPercent = 0.9 // nothing comes between
	for range n {
		*key++
		if err := b.Put(binary.BigEndian.AppendUint64(nil, *key), value); err != nil {
			return err
		}
	}
	return nil
}

// traffic is the messages of some operations.
type traffic struct {
	Messages  int `json:"messages"`  // published
	Bytes     int `json:"bytes"`     // of them
	Waiting   int `json:"waiting"`   // there before, and read with them
	WaitBytes int `json:"waitBytes"` // of these
}

func (t traffic) since(before traffic) traffic {
	return traffic{Messages: t.Messages - before.Messages, Bytes: t.Bytes - before.Bytes}
}

// streams is what lies in the three streams; those that are not there are empty.
func streams(ctx context.Context, js jetstream.JetStream) (t traffic) {
	for _, name := range []string{"AGGREGATE_EVENTS", "WORKFLOW_COMMANDS", "WORKFLOW_EVENTS"} {
		if s, err := js.Stream(ctx, name); err == nil {
			state := s.CachedInfo().State
			t.Messages += int(state.Msgs)
			t.Bytes += int(state.Bytes)
		}
	}
	return t
}

// bareStreams publishes the messages of n operations to an embedded server with
// the same settings, each with an id, and fetches and acknowledges all of them,
// those that waited there included. It tells operations a second.
func bareStreams(ctx context.Context, dir string, n int, t traffic) (rate float64, err error) {
	if t.Messages+t.Waiting == 0 {
		return 0, nil
	}
	share := min(1, float64(maxFloorMessages)/float64(t.Messages+t.Waiting))
	publish, waiting := int(float64(t.Messages)*share), int(float64(t.Waiting)*share)
	e, err := kv.StartEmbedded(ctx, kv.EmbeddedOptions{Dir: dir})
	if err != nil {
		return 0, err
	}
	defer e.Close()
	nc, js, err := kv.Connect(kv.Connection{Server: e.Server()})
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "FLOOR", Subjects: []string{"floor.>"}, Storage: jetstream.FileStorage, Duplicates: 30 * time.Second}); err != nil {
		return 0, err
	}
	consumer, err := js.CreateConsumer(ctx, "FLOOR", jetstream.ConsumerConfig{Durable: "floor", AckPolicy: jetstream.AckAllPolicy, MaxAckPending: -1})
	if err != nil {
		return 0, err
	}
	if err := pour(ctx, js, "w", waiting, t.WaitBytes/max(t.Waiting, 1)); err != nil {
		return 0, err
	}
	poured := make(chan error, 1)
	began := time.Now()
	go func() { poured <- pour(ctx, js, "p", publish, t.Bytes/max(t.Messages, 1)) }()
	err = drain(ctx, consumer, publish+waiting, floorPatience)
	if e := <-poured; err == nil {
		err = e
	}
	return float64(n) * share / time.Since(began).Seconds(), err
}

// pour publishes messages of a size.
func pour(ctx context.Context, js jetstream.JetStream, name string, n, size int) error {
	body := bytes.Repeat([]byte("m"), size)
	for i := range n {
		msg := nats.NewMsg(fmt.Sprintf("floor.%s.%d", name, i))
		msg.Data = body
		if _, err := js.PublishMsgAsync(msg, jetstream.WithMsgID(fmt.Sprintf("%s-%d", name, i))); err != nil {
			return err
		}
	}
	return harness.Stored(ctx, js)
}

// drain fetches and acknowledges n messages. It gives up where none comes within
// its patience.
func drain(ctx context.Context, c jetstream.Consumer, n int, patience time.Duration) error {
	heard := time.Now()
	for got := 0; got < n; {
		batch, err := c.Fetch(min(n-got, fetchMost), jetstream.FetchMaxWait(min(fetchWait, patience)))
		if err != nil {
			return err
		}
		var last jetstream.Msg
		for m := range batch.Messages() {
			last = m
			got++
		}
		if err := batch.Error(); err != nil {
			return err
		}
		if last == nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Since(heard) >= patience {
				return fmt.Errorf("only %d of %d messages came, and no more within %v", got, n, patience)
			}
			continue
		}
		heard = time.Now()
		if err := last.Ack(); err != nil {
			return err
		}
	}
	return ctx.Err()
}
