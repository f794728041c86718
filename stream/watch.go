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
)

const (
	// watchEvery is how often the streams are looked at: one that is gone is known well
	// within ten seconds.
	watchEvery = 3 * time.Second
	// watchMisses looks in a row without an answer count: a server may be busy for one.
	watchMisses = 2
)

// Watch checks that the streams of a process are still there. Consumers and publishers of a
// deleted stream only wait, so nothing else would report it.
type Watch struct {
	js     jetstream.JetStream
	again  func()                      // a stream is another one than at the last look
	remake func(context.Context) error // makes the bucket of the ledger again
	tail   *Tail                       // nil: what was published is not checked
	log    *zap.Logger

	mu      sync.Mutex // guards what follows
	streams map[string]*watched
}

// watched is what is known of one stream.
type watched struct {
	created time.Time
	misses  int
	problem error
}

// ledgerStream is what the bucket of the ledger is to the server.
const ledgerStream = "KV_" + kv.LedgerBucket

// NewWatch watches all of Edda's streams; again is called where a stream was made anew, and
// may be nil. The bucket of a shared ledger is watched where remake is set, which makes it
// again where it is gone. Nothing is asked before Run.
func NewWatch(js jetstream.JetStream, again func(), remake func(context.Context) error, log *zap.Logger) *Watch {
	if log == nil {
		log = zap.NewNop()
	}
	w := &Watch{js: js, again: again, remake: remake, log: log, streams: map[string]*watched{}}
	for _, p := range plans() {
		w.streams[p.name] = &watched{}
	}
	if remake != nil {
		w.streams[ledgerStream] = &watched{}
	}
	return w
}

// Follow has it look after what was published, too. It comes before Run.
func (w *Watch) Follow(t *Tail) { w.tail = t }

// Run looks until ctx ends, or until the server is seen to have lost what was published:
// then it returns ErrShorter.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		var all sync.WaitGroup
		for name := range w.streams {
			all.Go(func() { w.look(ctx, name) })
		}
		var lost error // what else is an error is one of those above, too
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

func (w *Watch) look(ctx context.Context, name string) {
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

// Problem says which streams cannot be used; nil where all can.
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

// Up tells for each stream whether it can be used.
func (w *Watch) Up() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for name, s := range w.streams {
		out[name] = s.problem == nil
	}
	return out
}

// Present refuses a start where a stream is gone of which messages were handled, before
// anything is made in its place. The error is edda.Permanent.
func Present(ctx context.Context, js jetstream.JetStream, held []edda.Checkpoint) error {
	var losses []Loss
	for _, cp := range held {
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

// ErrAwaited says that streams are gone which another process has read: they are waited for.
var ErrAwaited = errors.New("waiting for streams that are gone")

// Await is ErrAwaited where a stream is gone and saga processes have worked here: a process
// without sagas leaves it to them, or to a restore. Where none ever has, it is nil.
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

// publishFailures are the kinds of work that lately could not be published.
type publishFailures struct {
	some  atomic.Bool // kinds has any: as a rule it has none
	mu    sync.Mutex  // guards kinds
	kinds map[edda.WorkKind]failing
}

type failing struct {
	since, last time.Time
	err         error
}

const (
	// troubleAfter is how long publishing fails before it counts: an ack that was lost is none.
	troubleAfter = 2 * time.Second
	// troubleWithin is how long a failure counts after the last try: what fails is tried
	// again at least that often.
	troubleWithin = time.Minute
)

// note takes the outcome of publishing one kind of work since a time. A permanent refusal says
// nothing of the server. A server whose disk is full does not answer: the wait counts.
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

// Failing says what cannot be published; nil where all can, as far as it was tried.
func (p *Publisher) Failing() error {
	t := &p.failures
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for kind, f := range t.kinds {
		if f.last.Sub(f.since) >= troubleAfter && time.Since(f.last) < troubleWithin {
			out = append(out, fmt.Sprintf("%ss cannot be stored: %v", kind, f.err))
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	return errors.New(strings.Join(out, "; "))
}

// noteAll takes the outcomes of a batch: of each kind a success counts more than a failure.
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
