package kv

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

const (
	// defaultRetention gives operators a week to examine a command.
	defaultRetention = 7 * 24 * time.Hour
	// bucketDuplicates is the server's duplicate window, which the bucket does not use.
	bucketDuplicates = 30 * time.Second
	// LedgerBucket is the KV bucket of the shared effect ledger.
	LedgerBucket = "EDDA_LEDGER"
	// minRetention is longer than any redelivery of a command's message takes.
	minRetention = time.Hour
	// retentionSlack is how much longer the bucket keeps a claim. The worker compares a command's
	// age with the retention by its own clock.
	retentionSlack = time.Hour
	// maxRecord bounds a record: a result of 256 KiB and its claim.
	maxRecord = 320 << 10
	// checkShare is the share of a lease that a check of the bucket may take, because a claim waits
	// for it.
	checkShare = 3
)

// OpenLedger opens the bucket, and creates it if it is missing. An edda.Permanent error names the
// wrong setting and says what to do.
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

// bucket is the stream behind the bucket, as a KV client creates it but without direct reads. A
// stale replica could answer those, which costs a wait after a claim or a result of another worker.
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

// spec is the wanted bucket, and what an existing one must satisfy.
func (o LedgerOptions) spec(ctx context.Context, js jetstream.JetStream) Spec {
	want := o.bucket()
	return Spec{StreamConfig: want, SyncAlways: o.SyncAlways, MinReplicas: o.MinReplicas, Unfit: func(found jetstream.StreamConfig) error {
		if problems := o.compare(want, found); len(problems) > 0 {
			return edda.Classify(edda.Permanent, "bucket %s cannot be the effect ledger: %s", LedgerBucket, strings.Join(problems, "; "))
		}
		return nil
	}, Prepare: func(cfg *jetstream.StreamConfig) (err error) {
		cfg.Metadata, err = forgets(ctx, js)
		return err
	}}
}

// forgotKey marks a bucket that was created after commands had been taken. It may lack claims of
// commands that were sent before its creation.
const forgotKey = "edda-forgot"

// forgets returns the mark for a new bucket; nil if no worker ever took a command. The durable
// consumers of effects outlive every worker, so they tell.
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

// Remake creates a missing bucket again. Its claims are lost, and Since reports that.
func (l *Ledger) Remake(ctx context.Context) error {
	_, _, err := Ensure(ctx, l.js, l.o.spec(ctx, l.js))
	return err
}

// bucketCheck is one check of the bucket, for all callers that came before it began.
type bucketCheck struct {
	done  chan struct{} // closed when the result is known
	since time.Time
	err   error
}

// Since returns when the bucket was created, if it replaces another one. Callers that come during a
// check share the next one, because a check must begin after the call.
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

// compare lists what makes a bucket unusable. A bucket that drops a claim causes a second call of
// its command.
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

const (
	// ledgerPrefix is the subject prefix of the bucket's keys.
	ledgerPrefix = "$KV." + LedgerBucket + "."
	// maxLedgerKey keeps the subject of a key within MaxSubject.
	maxLedgerKey = wire.MaxSubject - len(ledgerPrefix)
	// ledgerEmpty stands for the empty string. ledgerShort begins the SHA-256 of a token that was
	// too long. Neither can be an escape, because '=' is followed by two hex digits there.
	ledgerEmpty = "="
	ledgerShort = "=="
)

// ledgerKey returns the key of a command. It is injective and leaves plain text readable. It
// shortens what is too long, the id first.
func ledgerKey(tenant, commandID string) string {
	t, id := Token(tenant), Token(commandID)
	if len(t)+1+len(id) > maxLedgerKey {
		id = ledgerHash(commandID)
	}
	if len(t)+1+len(id) > maxLedgerKey {
		t = ledgerHash(tenant)
	}
	return t + "." + id
}

// Token escapes any bytes with the characters of a key of a bucket, which are fewer than a subject's.
func Token(s string) string {
	if s == "" {
		return ledgerEmpty
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if plainByte(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func ledgerHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return ledgerShort + base64.RawURLEncoding.EncodeToString(sum[:])
}
