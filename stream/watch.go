package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/stream/kv"
	"edda/stream/wire"
)

const (
	// watchEvery is the interval of the checks. A missing stream is reported within ten seconds.
	watchEvery = 3 * time.Second
	// watchMisses consecutive checks without an answer are a problem. One is not, because a server
	// may be busy.
	watchMisses = 2
)

// Watch checks that the streams of a process are still there. Consumers and publishers of a
// deleted stream only wait, so nothing else would report it.
type Watch struct {
	js     jetstream.JetStream
	again  func()                      // called when a stream was recreated since the last check
	remake func(context.Context) error // creates the ledger's bucket again
	tail   *Tail                       // nil: published messages are not checked
	log    *zap.Logger

	mu      sync.Mutex // guards the fields below
	streams map[string]*watched
}

// watched is the state of one stream.
type watched struct {
	source  string // its name in the configuration; empty for Edda's own stream
	created time.Time
	misses  int
	problem error
}

// ledgerStream is the stream behind the ledger's bucket.
const ledgerStream = "KV_" + kv.LedgerBucket

// NewWatch watches all of Edda's streams, and those of the mappings. again, if not nil, is called when
// a stream was created anew. The bucket of a shared ledger is watched if remake is set, which creates it
// again. Nothing happens before Run.
func NewWatch(js jetstream.JetStream, mappings map[string]*wire.Mapping, again func(), remake func(context.Context) error, log *zap.Logger) *Watch {
	if log == nil {
		log = zap.NewNop()
	}
	w := &Watch{js: js, again: again, remake: remake, log: log, streams: map[string]*watched{}}
	for _, p := range plans() {
		w.streams[p.name] = &watched{}
	}
	for name, m := range mappings {
		w.streams[name] = &watched{source: m.Source()}
	}
	if remake != nil {
		w.streams[ledgerStream] = &watched{}
	}
	return w
}

// Follow also checks that the server still has what was published. Call it before Run.
func (w *Watch) Follow(t *Tail) { w.tail = t }

// Run checks until ctx ends. It returns ErrShorter when the server has lost what was published.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		var all sync.WaitGroup
		for name := range w.streams {
			all.Go(func() { w.check(ctx, name) })
		}
		var lost error // other errors of Look are problems of the streams
		if w.tail != nil {
			all.Go(func() {
				asked, cancel := context.WithTimeout(ctx, watchEvery)
				defer cancel()
				lost = w.tail.Look(asked)
			})
		}
		all.Wait()
		if errors.Is(lost, ErrShorter) {
			return edda.Classify(edda.Permanent, "%w", lost)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *Watch) check(ctx context.Context, name string) {
	asked, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	s, err := w.js.Stream(asked, name)
	gone := errors.Is(err, jetstream.ErrStreamNotFound)
	if gone && name == ledgerStream {
		if err = w.remake(asked); err == nil {
			s, err = w.js.Stream(asked, name)
		}
		gone = err != nil
	}
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.streams[name]
	before := is.problem
	switch {
	case gone && name == ledgerStream:
		is.problem = fmt.Errorf("bucket %s is gone, no effect is called, and it cannot be made again: %w", kv.LedgerBucket, err)
	case gone && is.source != "":
		is.problem = fmt.Errorf("stream %s of source %s is gone: restore it (nats stream restore), or start again with --accept-stream-loss once there is a new one", name, is.source)
	case gone:
		is.problem = fmt.Errorf("stream %s is gone: restore it (nats stream restore), or start again with --accept-stream-loss", name)
	case err != nil:
		if is.misses++; is.misses >= watchMisses {
			is.problem = fmt.Errorf("stream %s does not answer: %w", name, err)
		}
	default:
		created := s.CachedInfo().Created
		if !is.created.IsZero() && !is.created.Equal(created) && w.again != nil {
			w.again()
		}
		is.created, is.misses, is.problem = created, 0, nil
	}
	switch {
	case before == nil && is.problem != nil:
		w.log.Error("a stream cannot be used", zap.String("stream", name), zap.Error(is.problem))
	case before != nil && is.problem == nil:
		w.log.Info("a stream can be used again", zap.String("stream", name))
	}
}

// Problem describes the streams that cannot be used; nil if all can.
func (w *Watch) Problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, s := range w.streams {
		if s.problem != nil {
			out = append(out, s.problem.Error())
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	return errors.New(strings.Join(out, "; "))
}

// Up reports for each stream whether it can be used.
func (w *Watch) Up() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for name, s := range w.streams {
		out[name] = s.problem == nil
	}
	return out
}

// Present fails if a stream is missing whose messages were handled and which is still read. Call it
// before anything creates the stream. The error is edda.Permanent.
func Present(ctx context.Context, js jetstream.JetStream, c wire.Codec, held []edda.Checkpoint) error {
	var losses []Loss
	for _, cp := range held {
		if !reads(c, cp.Stream) {
			continue
		}
		_, err := js.Stream(ctx, cp.Stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			losses = append(losses, Loss{Checkpoint: cp, What: fmt.Sprintf("is gone, but everything up to %d was already handled", cp.Seq)})
			continue
		}
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", cp.Stream, err)
		}
	}
	if len(losses) == 0 {
		return nil
	}
	return lossError(losses)
}

// ErrAwaited says that streams are missing that another process has read.
var ErrAwaited = errors.New("waiting for streams that are gone")

// Await returns ErrAwaited if a stream is missing and saga processes have run here. A process
// without sagas then waits until a saga process or a restore has created the streams.
func Await(ctx context.Context, js jetstream.JetStream) error {
	var gone []string
	for _, p := range plans() {
		_, err := js.Stream(ctx, p.name)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("look at stream %s: %w", p.name, err)
		}
		if err != nil {
			gone = append(gone, p.name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	_, err := js.Stream(ctx, "KV_"+kv.OwnersBucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at bucket %s: %w", kv.OwnersBucket, err)
	}
	return fmt.Errorf("%w: %s: restore it (nats stream restore), or start the saga process with --accept-stream-loss, which makes it anew", ErrAwaited, strings.Join(gone, ", "))
}

// publishFailures are the kinds of work that could not be published lately.
type publishFailures struct {
	some  atomic.Bool // kinds is not empty; saves the lock on success
	mu    sync.Mutex  // guards kinds
	kinds map[edda.WorkKind]failing
}

type failing struct {
	since, last time.Time
	err         error
}

const (
	// failingAfter is how long publishing must fail before it is reported, because single acks get
	// lost.
	failingAfter = 2 * time.Second
	// failingWithin is how long a failure is reported after the last attempt. Failed work is
	// retried at least that often.
	failingWithin = time.Minute
)

// note records the outcome of publishing one kind of work. began is when the attempt began: a
// server whose disk is full does not answer, so the wait counts. A permanent error says nothing
// about the server.
func (t *publishFailures) note(kind edda.WorkKind, began time.Time, err error) {
	if err != nil && !errors.Is(err, edda.Temporary) || errors.Is(err, context.Canceled) {
		return
	}
	if err == nil && !t.some.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.kinds, kind)
		t.some.Store(len(t.kinds) > 0)
		return
	}
	if t.kinds == nil {
		t.kinds = map[edda.WorkKind]failing{}
	}
	f, ok := t.kinds[kind]
	if !ok {
		f.since = began
	}
	f.last, f.err = time.Now(), err
	t.kinds[kind] = f
	t.some.Store(true)
}

// Failing describes what cannot be published; nil if nothing failed lately.
func (p *Publisher) Failing() error {
	t := &p.failures
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for kind, f := range t.kinds {
		if f.last.Sub(f.since) >= failingAfter && time.Since(f.last) < failingWithin {
			out = append(out, fmt.Sprintf("%ss cannot be stored: %v", kind, f.err))
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	return errors.New(strings.Join(out, "; "))
}

// noteAll records the outcomes of a batch. One success of a kind outweighs its failures.
func (t *publishFailures) noteAll(batch []edda.Work, began time.Time, errs []error) {
	if errs == nil && !t.some.Load() {
		return
	}
	outcome := map[edda.WorkKind]error{}
	for i := range batch {
		var err error
		if errs != nil {
			err = errs[i]
		}
		if was, ok := outcome[batch[i].Kind]; !ok || was != nil {
			outcome[batch[i].Kind] = err
		}
	}
	for kind, err := range outcome {
		t.note(kind, began, err)
	}
}
