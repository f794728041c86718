package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

const (
	// defaultRetention leaves a week for people to look at a command.
	defaultRetention = 7 * 24 * time.Hour
	// bucketDuplicates is the server's window for message ids, which the bucket does not use.
	bucketDuplicates = 30 * time.Second
	// LedgerBucket is the KV bucket of the effect ledger that workers share.
	LedgerBucket = "EDDA_LEDGER"
	// minRetention leaves a claim the time to be seen: it must outlive the longest
	// absence of whoever has the command's message.
	minRetention = time.Hour
	// retentionSlack is how much longer than the retention the bucket keeps a
	// claim: the worker asks its own clock whether a command is older than that.
	retentionSlack = time.Hour
	// maxRecord is what a record may take: a result of 256 KiB, and its claim.
	maxRecord = 320 << 10
	// checkShare of a lease is what a look at the bucket may take: a claim waits for it.
	checkShare = 3
)

// OpenLedger finds the bucket or makes it. An error that is edda.Permanent says
// which setting stands against it, and what to do.
func OpenLedger(ctx context.Context, js jetstream.JetStream, o LedgerOptions) (*Ledger, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if limit := js.Conn().MaxPayload(); limit > 0 && limit < maxRecord {
		return nil, edda.Classify(edda.Permanent, "open the ledger: the server's max_payload is %d bytes, a result may take %d", limit, maxRecord)
	}
	d, s, err := Ensure(ctx, js, o.spec(ctx, js))
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, LedgerBucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", LedgerBucket, err)
	}
	return &Ledger{js: js, kv: kv, o: o, durability: d, created: s.CachedInfo().Created, checking: make(chan struct{}, 1)}, nil
}

// bucket is the stream behind the bucket, as a KV client makes it, but for
// direct reads: a replica that is behind would answer them, which costs a wait
// where a command has just been taken or finished elsewhere.
func (o LedgerOptions) bucket() jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: "KV_" + LedgerBucket, Description: "edda: which effect commands were called, and what came of them",
		Subjects: []string{ledgerPrefix + ">"}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, MaxAge: o.Retention + retentionSlack, Replicas: max(o.Replicas, 1),
		AllowRollup: true, DenyDelete: true, AllowDirect: false, Duplicates: bucketDuplicates,
	}
	if o.Memory {
		cfg.Storage = jetstream.MemoryStorage
	}
	return cfg
}

// spec is the bucket, and what an existing one must be.
func (o LedgerOptions) spec(ctx context.Context, js jetstream.JetStream) Spec {
	want := o.bucket()
	return Spec{StreamConfig: want, SyncAlways: o.SyncAlways, Unfit: func(found jetstream.StreamConfig) error {
		if problems := o.compare(want, found); len(problems) > 0 {
			return edda.Classify(edda.Permanent, "bucket %s cannot be the effect ledger: %s", LedgerBucket, strings.Join(problems, "; "))
		}
		return nil
	}, Prepare: func(cfg *jetstream.StreamConfig) (err error) {
		cfg.Metadata, err = forgets(ctx, js)
		return err
	}}
}

// forgotKey marks a bucket that was made when commands had been taken before: of what was
// sent before it was made, it may have forgotten claims.
const forgotKey = "edda-forgot"

// forgets is the mark of a bucket that is made now; nil where no worker ever took a command.
// The consumers of effects are durable and outlive every worker, so they tell.
func forgets(ctx context.Context, js jetstream.JetStream) (map[string]string, error) {
	s, err := js.Stream(ctx, wire.WorkflowCommands)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", wire.WorkflowCommands, err)
	}
	list := s.ListConsumers(ctx)
	forgot := false
	for c := range list.Info() {
		forgot = forgot || strings.HasPrefix(c.Name, wire.ConsumerPrefix("effect")) && c.Delivered.Stream > 0
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", wire.WorkflowCommands, err)
	}
	if !forgot {
		return nil, nil
	}
	return map[string]string{forgotKey: "commands sent before this bucket was made"}, nil
}

// Remake makes the bucket again where it is gone. What it held is forgotten, and Since says so.
func (l *Ledger) Remake(ctx context.Context) error {
	_, _, err := Ensure(ctx, l.js, l.o.spec(ctx, l.js))
	return err
}

// bucketCheck is one look at the bucket, for all who asked before it began.
type bucketCheck struct {
	done  chan struct{} // closed when there is an answer
	since time.Time
	err   error
}

// Since is when the bucket was made, where it is in the place of another one. Callers that
// come while a look is under way share the next one: a look must begin after they asked.
func (l *Ledger) Since(ctx context.Context) (time.Time, error) {
	l.mu.Lock()
	look, mine := l.next, l.next == nil
	if mine {
		look = &bucketCheck{done: make(chan struct{})}
		l.next = look
	}
	l.mu.Unlock()
	if mine {
		l.checking <- struct{}{}
		l.mu.Lock()
		l.next = nil
		l.mu.Unlock()
		look.since, look.err = l.checkBucket(context.WithoutCancel(ctx))
		<-l.checking
		close(look.done)
	}
	select {
	case <-look.done:
		return look.since, look.err
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

func (l *Ledger) checkBucket(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, l.o.Lease/checkShare)
	defer cancel()
	s, err := l.js.Stream(ctx, "KV_"+LedgerBucket)
	if err != nil {
		return time.Time{}, fmt.Errorf("look at bucket %s: %w", LedgerBucket, err)
	}
	info := s.CachedInfo()
	if _, forgot := info.Config.Metadata[forgotKey]; forgot || !info.Created.Equal(l.created) {
		return info.Created, nil
	}
	return time.Time{}, nil
}

// compare lists what makes a bucket unfit: where it forgets a claim, its
// command is called again.
func (o LedgerOptions) compare(want, found jetstream.StreamConfig) []string {
	var out []string
	wrong := func(found, wanted any, advice string, args ...any) {
		out = append(out, fmt.Sprintf("%v, wanted is %v: ", found, wanted)+fmt.Sprintf(advice, args...))
	}
	if found.MaxAge > 0 && found.MaxAge < o.Retention {
		wrong(fmt.Sprintf("its TTL is %s", found.MaxAge), fmt.Sprintf("effects.retention, %s", o.Retention),
			"nats stream edit %s --max-age=%s, or configure a shorter retention", want.Name, want.MaxAge)
	}
	if found.Storage != want.Storage {
		wrong(fmt.Sprintf("its storage is %v", found.Storage), want.Storage, "storage cannot be changed; delete the bucket when no command waits, and start again")
	}
	if found.MaxMsgsPerSubject < 1 || !wire.Covers(found.Subjects, want.Subjects[0]) || found.Retention != want.Retention {
		wrong("it is no bucket", "one", "delete stream %s, and start again", want.Name)
	}
	if found.Discard != jetstream.DiscardNew && (found.MaxMsgs > 0 || found.MaxBytes > 0) {
		wrong("it is limited and drops what is old", "no limit", "nats stream edit %s --max-msgs=-1 --max-bytes=-1", want.Name)
	}
	if found.MaxMsgSize > 0 && found.MaxMsgSize < maxRecord {
		wrong(fmt.Sprintf("its values may have %d bytes", found.MaxMsgSize), maxRecord, "nats stream edit %s --max-msg-size=-1", want.Name)
	}
	if found.NoAck || found.Sealed || found.Mirror != nil {
		wrong("it is sealed, a mirror, or without acks", "none of them", "give Edda a bucket of its own")
	}
	return out
}
