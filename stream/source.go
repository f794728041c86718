package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/engine"
	"edda/stream/wire"
)

// SourceOptions configure a source. The zero value works.
type SourceOptions struct {
	wire.Codec
	// Name distinguishes the consumers of different saga processes: the store's id.
	Name string
	// Epoch is the epoch in which a cluster's node owns the store; 0 without a cluster. The names of
	// the consumers carry it, so that a former owner cannot replace those of its successor. The
	// source removes the consumers of lower epochs, and of the time before the cluster.
	Epoch   uint64
	Tenants wire.Tenants
	// From is where to begin in a stream without a checkpoint. Begin replaces it for one stream.
	From  From
	Begin map[string]From
	// Store is that of [StreamOptions]. A stream that was created for it is read from its first message: the
	// store was there before the stream. Empty: no stream was.
	Store string
	// Agree returns where all stores that share the streams begin in a stream without a checkpoint. It is asked for
	// FromNow, with the position of now, and may be called concurrently. nil: this store alone reads the streams.
	Agree Agree
	// AcceptLoss continues where a checkpoint no longer fits its stream.
	AcceptLoss bool
	// Committed returns the positions in the store: everything up to them is handled. It may be
	// called concurrently. nil means that the store handles nothing of what is read.
	Committed func() ([]edda.Checkpoint, error)
	// Fence is called before a consumer is replaced. An error says that another process may read with the same
	// consumer now. nil: none.
	Fence func(context.Context) error
	// Restored says that the store is a backup: the streams may have results of work that it has
	// yet to begin. So results keep their place in the backlog even while new events are held.
	Restored bool
	// CatchUp names a reader that reads aggregate events and facts again, beside the main source.
	// Empty means the main source.
	CatchUp string
	// Strays counts ignored acks; nil does not count.
	Strays *Strays
	Log    *zap.Logger
}

// Agree returns where stores begin in a stream together; now is where this one would.
type Agree func(ctx context.Context, now edda.Checkpoint) (edda.Checkpoint, error)

// Source reads the saga worker's input streams. It is an engine.Source.
type Source struct {
	readers    []*reader
	wake       chan struct{} // capacity 1: a buffer has an event
	tenants    atomic.Pointer[wire.Tenants]
	held       atomic.Bool // new events stay in their buffers
	codec      wire.Codec
	start      []edda.Checkpoint
	losses     []Loss
	catchingUp bool         // the backlog has not ended; owned by Take
	strict     bool         // the backlog keeps its order also while new events are held
	late       []edda.Event // results that come before their echoes; owned by Take

	caughtUp chan struct{}
}

var _ engine.Source = (*Source)(nil)

// inputStream is a stream that sagas read, and the families of its messages.
type inputStream struct {
	stream   string
	families []wire.Family
	mapping  *wire.Mapping // nil in Edda's own streams
}

// inputs are the streams that sagas read.
func inputs(c wire.Codec) []inputStream {
	return append([]inputStream{
		{stream: wire.AggregateEvents, families: []wire.Family{wire.FamilyAggregate}},
		{stream: wire.WorkflowCommands, families: []wire.Family{wire.FamilyWorkflow}},
		{stream: wire.WorkflowEvents, families: []wire.Family{wire.FamilyResult, wire.FamilyEcho, wire.FamilyFact}},
	}, mapped(c)...)
}

// reads reports whether sagas read a stream.
func reads(c wire.Codec, stream string) bool {
	return slices.ContainsFunc(inputs(c), func(in inputStream) bool { return in.stream == stream })
}

// eventInputs are the streams of aggregate events and facts.
func eventInputs(c wire.Codec) []inputStream {
	return append([]inputStream{
		{stream: wire.AggregateEvents, families: []wire.Family{wire.FamilyAggregate}},
		{stream: wire.WorkflowEvents, families: []wire.Family{wire.FamilyFact}},
	}, mapped(c)...)
}

// mapped are the streams of the mappings, which hold the events of aggregates.
func mapped(c wire.Codec) (out []inputStream) {
	for _, name := range slices.Sorted(maps.Keys(c.Mappings)) {
		out = append(out, inputStream{stream: name, families: []wire.Family{wire.FamilyAggregate}, mapping: c.Mappings[name]})
	}
	return out
}

// EventStreams returns the names of the streams of aggregate events and facts.
func EventStreams(c wire.Codec) (names []string) {
	for _, in := range eventInputs(c) {
		names = append(names, in.stream)
	}
	return names
}

// inputs are the streams that the source reads, and in them also what becomes a dead letter because its
// id is not escaped.
func (o *SourceOptions) inputs() []inputStream {
	read := inputs(o.Codec)
	if o.CatchUp != "" {
		read = eventInputs(o.Codec)
	}
	read[0].families = append(read[0].families, wire.FamilyUnescaped)
	return read
}

// from is where to begin in a stream without a checkpoint.
func (o *SourceOptions) from(stream string) From {
	if from := o.Begin[stream]; from != "" {
		return from
	}
	return o.From
}

// OpenSource compares the checkpoints with the streams, which must exist. If a checkpoint no longer
// fits, the error is edda.Permanent and says what happened and what to do. There is no error if the
// loss is accepted or if all missing messages were handled. OpenSource reads nothing before Run.
//
// The caller must store Start durably, with the losses in the audit, before the engine takes the
// first event.
func OpenSource(ctx context.Context, js jetstream.JetStream, held []edda.Checkpoint, o SourceOptions) (*Source, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Strays == nil {
		o.Strays = &Strays{Log: o.Log}
	}
	s := &Source{wake: make(chan struct{}, 1), codec: o.Codec, catchingUp: true, strict: o.Restored, caughtUp: make(chan struct{})}
	s.tenants.Store(&o.Tenants)
	inputs := o.inputs()
	guards := make([]verdict, len(inputs))
	s.readers = make([]*reader, len(inputs))
	opening, asked := errgroup.WithContext(ctx)
	for i, in := range inputs {
		opening.Go(func() error {
			str, err := in.open(asked, js)
			if err != nil {
				return err
			}
			if guards[i], err = guard(asked, js, str, held, o.from(in.stream), o.Store, o.Agree); err != nil {
				return fmt.Errorf("check stream %s: %w", in.stream, err)
			}
			messages, err := leaderOf(asked, js, in.stream)
			if err != nil {
				return err
			}
			s.readers[i] = s.reader(js, str, messages, in, guards[i].start, o)
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		return nil, err
	}
	for _, g := range guards {
		if g.loss != nil {
			s.losses = append(s.losses, *g.loss)
		}
		s.start = append(s.start, g.start)
	}
	missing := slices.DeleteFunc(slices.Clone(s.losses), func(l Loss) bool { return l.Handled })
	if len(missing) > 0 && !o.AcceptLoss {
		return nil, lossError(missing)
	}
	return s, nil
}

// leaderOf returns a stream whose GetMsg asks the leader. Where the stream allows direct gets, the client
// would ask any replica or mirror. One that lags behind has no message there, and timers that wait for the
// end of the stream would fire before events that are stored. Info would undo it: use another handle.
func leaderOf(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", name, err)
	}
	s.CachedInfo().Config.AllowDirect = false // only the client's view
	return s, nil
}

func (s *Source) reader(js jetstream.JetStream, str, messages jetstream.Stream, in inputStream, from edda.Checkpoint, o SourceOptions) *reader {
	in.families = slices.DeleteFunc(in.families, func(f wire.Family) bool {
		return f == wire.FamilyUnescaped && !wire.Covers(str.CachedInfo().Config.Subjects, o.All(f)) // the server refuses a filter that the stream lacks
	})
	return &reader{
		js: js, stream: str, messages: messages, name: in.stream, consumer: epochConsumer(o.consumer(), o.Epoch), mapping: in.mapping,
		sharedName: o.consumer(), epoch: o.Epoch,
		families: in.families, unfiltered: in.all(str, o.Grammar), codec: o.Codec, tenants: &s.tenants,
		buffer: newBuffer(), strays: o.Strays, wake: s.wake, log: o.Log,
		recreate: make(chan struct{}, 1), fence: o.Fence, restored: s.strict, lenient: o.CatchUp != "", created: from.Created, at: from.Time, read: from.Seq, buffered: from.Seq, from: from, committed: o.Committed,
	}
}

// consumer returns the name of the source's consumers without a cluster.
func (o *SourceOptions) consumer() string {
	if o.CatchUp == "" {
		return wire.ConsumerName("saga", "", o.Name)
	}
	return wire.ConsumerName("catchup", o.CatchUp, o.Name)
}

// Remove deletes the source's consumers. Call it after Run has returned.
func (s *Source) Remove(ctx context.Context) {
	for _, r := range s.readers {
		_ = r.js.DeleteConsumer(ctx, r.name, r.consumer) // the server removes it after a day in any case
	}
}

// Failing describes the streams that could not be read for some time; nil if all are read.
func (s *Source) Failing() error {
	var problems []error
	for _, r := range s.readers {
		problems = append(problems, r.failing())
	}
	return errors.Join(problems...)
}

// Start returns where reading begins in each stream: the given checkpoint, or the replacement where
// there was none or where a loss was accepted.
func (s *Source) Start() []edda.Checkpoint { return slices.Clone(s.start) }

// Losses returns the checkpoints that no longer fitted.
func (s *Source) Losses() []Loss { return slices.Clone(s.losses) }

// Recheck checks whether the streams are still those that were read so far. Call it after a
// reconnect. It does not block and may be called concurrently.
func (s *Source) Recheck() {
	for _, r := range s.readers {
		signal(r.recreate)
	}
}

// Run reads until ctx ends, across reconnects. If the server comes back with other messages than
// were read, the error is edda.Permanent, because reading on would skip new ones. If the error is
// ErrShorter, too, everything read is handled, and a source that is opened again can continue.
func (s *Source) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range s.readers {
		group.Go(func() error { return r.run(ctx) })
	}
	return group.Wait()
}

// SetTenants changes the tenants to read, from the current position on. Buffered events still come.
func (s *Source) SetTenants(t wire.Tenants) {
	s.tenants.Store(&t)
	for _, r := range s.readers {
		signal(r.recreate)
	}
}

// Ready implements engine.Source.
func (s *Source) Ready() <-chan struct{} { return s.wake }

// Take returns up to max buffered events without waiting. The backlog comes in the order of its
// store times, over all streams. Later events are shared out among the streams, and those that are
// returned together are merged by store time. While new events are held, results do not wait for
// them, unless the store was restored.
func (s *Source) Take(max int) engine.Fetched {
	got := s.next(max)
	if len(got.Events) > 0 {
		signal(s.wake)
	}
	return got
}

// Fetch is Take, but waits up to the given time for the first event.
func (s *Source) Fetch(ctx context.Context, max int, wait time.Duration) (engine.Fetched, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if got := s.Take(max); len(got.Events) > 0 {
			return got, nil
		}
		select {
		case <-s.wake:
		case <-timer.C:
			return engine.Fetched{}, nil
		case <-ctx.Done():
			return engine.Fetched{}, ctx.Err()
		}
	}
}

// next takes what is in the buffers, without waiting for more. While new events are
// held, what answers work that went out cannot wait for those before it.
func (s *Source) next(limit int) engine.Fetched {
	s.checkCaughtUp()
	if s.catchingUp && (s.strict || !s.held.Load()) {
		got, over := s.fromBacklog(limit)
		s.catchingUp = !over
		if !over || len(got.Events) > 0 {
			return got
		}
	}
	return engine.Fetched{Events: s.waiting(limit)}
}

// Hold pauses or resumes aggregate events. Beyond the buffer they stay in their stream. Results,
// facts and messages for instances still come. It does not block.
func (s *Source) Hold(yes bool) {
	s.held.Store(yes)
	signal(s.wake)
}

// fetchBytes bounds the bytes that one Take removes from one buffer. One event always fits.
const fetchBytes = 4 << 20

// waiting takes of each buffer its share.
func (s *Source) waiting(limit int) []edda.Event {
	queues := make([][]edda.Event, len(s.readers))
	for i, n := range shares(s.lengths(), limit) {
		queues[i] = s.readers[i].buffer.take(n, fetchBytes)
	}
	return merge(queues)
}

// merge merges queues by store time and keeps the order within each, also where the server's clock
// went back.
func merge(queues [][]edda.Event) []edda.Event {
	queues = slices.DeleteFunc(queues, func(q []edda.Event) bool { return len(q) == 0 })
	if len(queues) == 1 { // the usual case
		return queues[0]
	}
	n := 0
	for _, q := range queues {
		n += len(q)
	}
	out := slices.Grow([]edda.Event(nil), n)
	for {
		first := -1
		for i, q := range queues {
			if len(q) > 0 && (first < 0 || q[0].StoredAt().Before(queues[first][0].StoredAt())) {
				first = i
			}
		}
		if first < 0 {
			return out
		}
		out = append(out, queues[first][0])
		queues[first] = queues[first][1:]
	}
}

func (s *Source) lengths() []int {
	out := make([]int, len(s.readers))
	held := s.held.Load()
	for i, r := range s.readers {
		if !held || !slices.Contains(r.families, wire.FamilyAggregate) {
			out[i] = r.buffer.len()
		}
	}
	return out
}

// shares divides a limit equally among queues, and gives the unused part of a share to the others.
func shares(lengths []int, limit int) []int {
	out := make([]int, len(lengths))
	for limit > 0 {
		hungry := 0
		for i := range lengths {
			if out[i] < lengths[i] {
				hungry++
			}
		}
		if hungry == 0 {
			break
		}
		each := max(limit/hungry, 1)
		for i := range lengths {
			n := min(each, lengths[i]-out[i], limit)
			out[i] += n
			limit -= n
		}
	}
	return out
}

// Ends returns how far each stream must be applied. It asks about all streams concurrently.
func (s *Source) Ends(ctx context.Context) ([]engine.End, error) {
	ends := make([]engine.End, len(s.readers))
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range s.readers {
		group.Go(func() (err error) {
			ends[i], err = r.end(ctx)
			return err
		})
	}
	return ends, group.Wait()
}
