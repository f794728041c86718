//go:build !race

package standby_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// simTable is the bucket of the beats as its servers have it.
type simTable struct {
	leader

	mu       sync.Mutex // guards the fields below
	revision uint64
	keys     map[string]simEntry
	watches  map[*simWatch]bool
}

func newSimTable() *simTable {
	return &simTable{keys: map[string]simEntry{}, watches: map[*simWatch]bool{}}
}

// simEntry is a value of the bucket, or a mark that it was deleted.
type simEntry struct {
	jetstream.KeyValueEntry
	key      string
	value    []byte
	revision uint64
	op       jetstream.KeyValueOp
}

func (e simEntry) Key() string                     { return e.key }
func (e simEntry) Value() []byte                   { return e.value }
func (e simEntry) Revision() uint64                { return e.revision }
func (e simEntry) Operation() jetstream.KeyValueOp { return e.op }

func (t *simTable) put(e simEntry) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision++
	e.revision = t.revision
	t.keys[e.key] = e
	for w := range t.watches {
		w.queue = append(w.queue, e)
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
	return e.revision
}

func (t *simTable) get(key string) (simEntry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.keys[key]
	return e, ok
}

// simJS is JetStream as one process reaches it, as far as clusternodes needs it.
type simJS struct {
	jetstream.JetStream
	b *simBucket
}

func (j simJS) KeyValue(context.Context, string) (jetstream.KeyValue, error) { return j.b, nil }

func (j simJS) Stream(context.Context, string) (jetstream.Stream, error) {
	return simStream{b: j.b, info: &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}}}, nil
}

// simStream is the stream of the bucket.
type simStream struct {
	jetstream.Stream
	b    *simBucket
	info *jetstream.StreamInfo
}

func (s simStream) CachedInfo() *jetstream.StreamInfo { return s.info }

func (s simStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	e, err := s.b.read(ctx, strings.TrimPrefix(subject, "$KV."+s.b.Bucket()+"."))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, jetstream.ErrMsgNotFound
	}
	if err != nil {
		return nil, err
	}
	m := &jetstream.RawStreamMsg{Sequence: e.revision, Data: e.value, Header: map[string][]string{}}
	if e.op != jetstream.KeyValuePut {
		m.Header.Set("KV-Operation", "DEL")
	}
	return m, nil
}

// simBucket is the bucket as one process reaches it.
type simBucket struct {
	jetstream.KeyValue
	l *life
	d *dice
}

func (b *simBucket) Bucket() string { return "EDDA_CLUSTER_sim" }

// read asks the leader.
func (b *simBucket) read(ctx context.Context, key string) (simEntry, error) {
	t, p := b.l.w.table, b.l.w.plan
	if err := b.l.sleep(ctx, b.d.between(0, p.latency)); err != nil {
		return simEntry{}, err
	}
	if t.back() > 0 {
		<-ctx.Done()
		return simEntry{}, ctx.Err()
	}
	e, ok := t.get(key)
	if err := b.l.sleep(ctx, b.d.between(0, p.latency)); err != nil {
		return simEntry{}, err
	}
	if !ok {
		return e, jetstream.ErrKeyNotFound
	}
	return e, nil
}

func (b *simBucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, simLookWithin)
	defer cancel()
	e, err := b.read(ctx, key)
	if err == nil && e.op != jetstream.KeyValuePut {
		err = jetstream.ErrKeyNotFound
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (b *simBucket) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	if _, err := b.read(ctx, key); !errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, errors.Join(jetstream.ErrKeyExists, err)
	}
	return b.l.w.table.put(simEntry{key: key, value: value}), nil
}

func (b *simBucket) Delete(ctx context.Context, key string, _ ...jetstream.KVDeleteOpt) error {
	_, err := b.write(ctx, simEntry{key: key, op: jetstream.KeyValueDelete})
	return err
}

func (b *simBucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return b.write(ctx, simEntry{key: key, value: value})
}

// write writes a key. The write may be stored late or not, and its answer may be lost.
func (b *simBucket) write(ctx context.Context, e simEntry) (uint64, error) {
	if err := b.l.pass(); err != nil {
		return 0, err
	}
	t, p := b.l.w.table, b.l.w.plan
	answer := make(chan uint64, 1)
	delay, way, answers, late := b.d.between(0, p.latency), b.d.between(0, p.latency), !b.d.percent(p.lostAnswer), b.d.percent(50)
	if b.l.silent() {
		delay, answers = -1, false
	}
	var arrive func()
	arrive = func() {
		if back := t.back(); back > 0 {
			if late {
				time.AfterFunc(back+way, arrive)
			}
			return
		}
		revision := t.put(e)
		if answers {
			time.AfterFunc(way, func() { answer <- revision })
		}
	}
	if delay >= 0 {
		time.AfterFunc(delay, arrive)
	}
	select {
	case revision := <-answer:
		return revision, b.l.pass()
	case <-ctx.Done():
		return 0, errors.Join(ctx.Err(), b.l.pass())
	case <-b.l.dead:
		return 0, errDead
	}
}

// simWatch follows the bucket. It may be behind.
type simWatch struct {
	b     *simBucket
	out   chan jetstream.KeyValueEntry
	more  chan struct{} // capacity 1
	stop  chan struct{}
	queue []simEntry // guarded by the table's mu
}

func (b *simBucket) Watch(ctx context.Context, _ string, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if err := b.l.pass(); err != nil {
		return nil, err
	}
	t := b.l.w.table
	w := &simWatch{b: b, out: make(chan jetstream.KeyValueEntry), more: make(chan struct{}, 1), stop: make(chan struct{})}
	t.mu.Lock()
	for _, e := range t.keys {
		w.queue = append(w.queue, e)
	}
	w.more <- struct{}{}
	t.watches[w] = true
	t.mu.Unlock()
	go w.run(ctx)
	return w, nil
}

func (w *simWatch) Updates() <-chan jetstream.KeyValueEntry { return w.out }

func (w *simWatch) Stop() error {
	close(w.stop)
	return nil
}

func (w *simWatch) run(ctx context.Context) {
	t := w.b.l.w.table
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watches, w)
	}()
	for {
		select {
		case <-w.more:
		case <-w.stop:
			return
		case <-ctx.Done():
			return
		}
		if w.b.l.sleep(ctx, w.b.d.between(0, w.b.l.w.plan.latency)) != nil || w.b.l.sleep(ctx, w.b.l.deafness()) != nil {
			return
		}
		t.mu.Lock()
		queue := w.queue
		w.queue = nil
		t.mu.Unlock()
		for _, e := range queue {
			select {
			case w.out <- e:
			case <-w.stop:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}
