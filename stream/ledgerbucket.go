package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
)

const (
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
	d, err := ensureBucket(ctx, js, o)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, LedgerBucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", LedgerBucket, err)
	}
	return &Ledger{kv: kv, o: o, durability: d}, nil
}

// bucket is the stream behind the bucket, as a KV client makes it, but for
// direct reads: a replica that is behind would answer them, which costs a wait
// where a command has just been taken or finished elsewhere.
func (o LedgerOptions) bucket() jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: "KV_" + LedgerBucket, Description: "edda: which effect commands were called, and what came of them",
		Subjects: []string{ledgerPrefix + ">"}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, MaxAge: o.Retention + retentionSlack, Replicas: max(o.Replicas, 1),
		AllowRollup: true, DenyDelete: true, AllowDirect: false, Duplicates: defaultDuplicates,
	}
	if o.Memory {
		cfg.Storage = jetstream.MemoryStorage
	}
	return cfg
}

func ensureBucket(ctx context.Context, js jetstream.JetStream, o LedgerOptions) (Durability, error) {
	want := o.bucket()
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, want)
		if err == nil {
			d := durability(s.CachedInfo().Config, o.SyncAlways, nil)
			d.Created = true
			return d, nil
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return Durability{}, creation(ctx, js, want, err)
		}
		s, err = js.Stream(ctx, want.Name) // another process was faster
	}
	if err != nil {
		return Durability{}, fmt.Errorf("look at bucket %s: %w", LedgerBucket, err)
	}
	found := s.CachedInfo().Config
	if problems := o.compare(want, found); len(problems) > 0 {
		return Durability{}, edda.Classify(edda.Permanent, "bucket %s cannot be the effect ledger: %s", LedgerBucket, strings.Join(problems, "; "))
	}
	return durability(found, o.SyncAlways, notes(want, found)), nil
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
	if found.MaxMsgsPerSubject < 1 || !covered(found.Subjects, want.Subjects[0]) || found.Retention != want.Retention {
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
