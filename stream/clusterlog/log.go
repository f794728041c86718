package clusterlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/stream/kv"
)

const (
	// streamOf begins the name of a shard's stream.
	streamOf = "EDDA_LOG_"
	// ackWithin is the wait for an acknowledgement before a look. It is longer than an append takes
	// on a busy cluster, and much shorter than an election.
	ackWithin = 500 * time.Millisecond
	// lookWithin bounds one look: the longest round trip with which appends succeed, and the delay
	// with which a new leader is noticed.
	lookWithin = time.Second
	// retryFirst and retryMost bound the delay before the same message is sent again.
	retryFirst = 5 * time.Millisecond
	retryMost  = 250 * time.Millisecond
)

// Options choose a log.
type Options struct {
	Shard string // of letters, digits, - and _
	// Replicas are the least that the stream must have; 3 when zero. 1 is for tests and development:
	// a log of one replica is lost with its server.
	Replicas int
	// Unsure may be nil. It is called when it is in doubt whether a message is in the log.
	Unsure func()
	// Lost may be nil. It is called with the reason when the log has lost messages that it had acknowledged, and with
	// nil when it has them again.
	Lost func(why error)
}

// Log is the log of one shard in a stream.
type Log struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	name    string
	subject string
	unsure  func()
	lost    func(error)

	lostWithin time.Duration
}

var _ cluster.Log = (*Log)(nil)

// Open opens the log of a shard, and creates its stream if it is missing. A stream that would not
// keep the log safe is an edda.Permanent error that says what to do.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Log, error) {
	if !cluster.IsName(o.Shard) {
		return nil, edda.Classify(edda.Permanent, "open the log of shard %q: its name has letters, digits, - and _", o.Shard)
	}
	if o.Unsure == nil {
		o.Unsure = func() {}
	}
	if o.Lost == nil {
		o.Lost = func(error) {}
	}
	l := &Log{js: js, unsure: o.Unsure, lost: o.Lost, lostWithin: cluster.LostWithin, name: streamOf + o.Shard, subject: "edda.log." + o.Shard}
	want := jetstream.StreamConfig{
		Name: l.name, Subjects: []string{l.subject},
		Description: "edda: the replicated log of shard " + o.Shard,
		Storage:     jetstream.FileStorage, Replicas: cmp.Or(o.Replicas, 3), DenyDelete: true,
	}
	unfit := func(found jetstream.StreamConfig) error { return unfit(want, found) }
	_, s, err := kv.Ensure(ctx, js, kv.Spec{StreamConfig: want, MinReplicas: want.Replicas, Unfit: unfit})
	if err != nil {
		return nil, fmt.Errorf("open the log of shard %s: %w", o.Shard, err)
	}
	l.stream = s
	return l, nil
}

// Exists reports whether there is a log of a shard. It creates none.
func Exists(ctx context.Context, js jetstream.JetStream, shard string) (bool, error) {
	_, err := js.Stream(ctx, streamOf+shard)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Remove removes the log of a shard for good.
func Remove(ctx context.Context, js jetstream.JetStream, shard string) error {
	err := js.DeleteStream(ctx, streamOf+shard)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove the log of shard %s: %w", shard, err)
	}
	return nil
}

// unfit returns an error unless a stream that exists keeps the log as safely as the wanted one.
func unfit(want, found jetstream.StreamConfig) error {
	for _, wrong := range []struct {
		is   bool
		what string
	}{
		{len(found.Subjects) != 1 || found.Subjects[0] != want.Subjects[0], "its subject is not " + want.Subjects[0]},
		{found.Storage != jetstream.FileStorage, "it is not stored in files"},
		{found.Retention != jetstream.LimitsPolicy || found.MaxAge > 0 || found.MaxMsgs > 0 || found.MaxBytes > 0 ||
			found.MaxMsgsPerSubject > 0, "it removes messages by itself"},
		{!found.DenyDelete || found.AllowRollup || found.AllowMsgTTL, "it allows to delete single messages"},
		{found.DenyPurge, "it denies to purge, which trims the log"},
		{found.AllowDirect, "it answers reads from replicas that lag"},
		{found.MaxMsgSize > 0, "it limits the size of a message"},
		{found.NoAck, "it acknowledges nothing"},
		{found.PersistMode == jetstream.AsyncPersistMode, "it acknowledges what is not stored yet"},
		{found.Mirror != nil || len(found.Sources) > 0, "it takes messages from another stream"},
		{found.Sealed, "it is sealed"},
	} {
		if wrong.is {
			return edda.Classify(edda.Permanent, "stream %s is no place for a log: %s: change that "+
				"(nats stream edit %s), or delete the stream if no store needs its records", found.Name, wrong.what, found.Name)
		}
	}
	return nil
}

// Append implements cluster.Log. It sends, waits, looks and sends again as the protocol says, until
// the record is known to be in the log or never to be, or until ctx ends. It also waits for a log that has lost
// messages, and says so after cluster.LostWithin: the node keeps what it owns, because another one may have less.
func (l *Log) Append(ctx context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	if err := after.Follows(r); err != nil {
		return cluster.Mark{}, edda.Classify(edda.Permanent, "append to %s: %w", l.name, err)
	}
	retry := backoff.Exponential{First: retryFirst, Most: retryMost}
	a, next := cluster.Begin(after, r, l.partBytes())
	doubt := errors.New("no answer")
	var shorter time.Time // when the log was first said to end too early; zero while it is not
	told := false
	defer func() {
		if told {
			l.lost(nil)
		}
	}()
	for {
		looks := false
		switch next.Do {
		case cluster.Committed:
			return next.Mark, nil
		case cluster.Fenced:
			return cluster.Mark{}, l.failed(r, cluster.ErrFenced)
		case cluster.Moved:
			return cluster.Mark{}, l.failed(r, cluster.ErrMoved)
		case cluster.Look:
			looks = true
		}
		var err error
		if a, next, err = l.do(ctx, a, next); err == nil && next.Do != cluster.Send {
			continue
		}
		switch {
		case !errors.Is(err, errShorter):
			shorter = time.Time{}
		case shorter.IsZero():
			shorter = time.Now()
		case !told && time.Since(shorter) >= l.lostWithin:
			told = true
			l.lost(fmt.Errorf("stream %s has lost messages: %w", l.name, err))
		}
		switch {
		case errors.Is(err, edda.Permanent):
			return cluster.Mark{}, l.failed(r, err)
		case err != nil && ctx.Err() == nil:
			doubt = err
		case !looks:
			retry.Reset() // a part is acknowledged
		}
		if looks {
			_ = backoff.Wait(ctx, retry.Next())
		}
		if ctx.Err() != nil {
			return cluster.Mark{}, l.failed(r, fmt.Errorf(
				"%w, and it is unknown whether the record is in the log; the last failure: %v", context.Cause(ctx), doubt))
		}
	}
}

// do carries out one send or one look. It returns what the protocol wants then, and why the outcome
// is in doubt.
func (l *Log) do(ctx context.Context, a cluster.Append, i cluster.Instruction) (
	cluster.Append, cluster.Instruction, error,
) {
	if i.Do == cluster.Send {
		seq, err := l.send(ctx, i)
		if err != nil {
			l.unsure()
			a, i = a.Unsure()
			return a, i, err
		}
		a, i = a.Acked(seq)
		return a, i, nil
	}
	last, err := l.look(ctx)
	if err != nil {
		return a, i, err
	}
	if a, i = a.Looked(last); i.Do == cluster.Look {
		err = fmt.Errorf("it is said to end at message %d, %w", last.Seq, errShorter)
	}
	return a, i, err
}

// errShorter says that the log has less than was acknowledged.
var errShorter = errors.New("before this node's own last message")

func (l *Log) failed(r cluster.Record, err error) error {
	return fmt.Errorf("append record %d of epoch %d to %s: %w", r.LSN, r.Epoch, l.name, err)
}

// partBytes leaves a quarter of the largest message to its headers.
func (l *Log) partBytes() int { return int(l.js.Conn().MaxPayload() / 4 * 3) }

// send publishes a message and returns the sequence of its acknowledgement. Every error but a
// permanent one is a doubt: the message may be in the log.
func (l *Log) send(ctx context.Context, i cluster.Instruction) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	m := &nats.Msg{Subject: l.subject, Header: header(i.Message), Data: i.Message.Entry}
	ack, err := l.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequence(i.Expected), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, final(err)
	}
	return ack.Sequence, nil
}

// look asks the leader for the last message.
func (l *Log) look(ctx context.Context) (cluster.Last, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	raw, err := l.stream.GetLastMsgForSubject(ctx, l.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return cluster.Last{}, nil
	}
	if err != nil {
		return cluster.Last{}, final(err)
	}
	m, err := decode(raw.Header, raw.Data)
	if err != nil {
		return cluster.Last{}, edda.Classify(edda.Permanent, "message %d of %s: %w", raw.Sequence, l.name, err)
	}
	return cluster.Last{Seq: raw.Sequence, Message: m}, nil
}

// final makes errors permanent that no retry ends.
func final(err error) error {
	for _, last := range []error{
		jetstream.ErrStreamNotFound, nats.ErrConnectionClosed, nats.ErrMaxPayload, nats.ErrHeadersNotSupported,
	} {
		if errors.Is(err, last) {
			return edda.Classify(edda.Permanent, "%w", err)
		}
	}
	return err
}

// End implements cluster.Log.
func (l *Log) End(ctx context.Context) (cluster.Last, error) {
	retry := backoff.Exponential{First: retryFirst, Most: retryMost}
	for {
		last, err := l.look(ctx)
		if err == nil {
			return last, nil
		}
		if errors.Is(err, edda.Permanent) || backoff.Wait(ctx, retry.Next()) != nil {
			return cluster.Last{}, fmt.Errorf("look at the end of %s: %w", l.name, err)
		}
	}
}

// Trim implements cluster.Log.
func (l *Log) Trim(ctx context.Context, upto cluster.Mark) error {
	if upto.Seq <= 1 {
		return nil
	}
	if err := l.stream.Purge(ctx, jetstream.WithPurgeSequence(upto.Seq)); err != nil {
		return fmt.Errorf("trim %s before message %d: %w", l.name, upto.Seq, final(err))
	}
	return nil
}

// Bytes is the size of one replica of the log.
func (l *Log) Bytes(ctx context.Context) (int, error) {
	info, err := l.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at the size of %s: %w", l.name, final(err))
	}
	return int(info.State.Bytes), nil
}
