package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// OpenBucket opens the bucket, and creates it if it is missing.
func OpenBucket(ctx context.Context, js jetstream.JetStream, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if kv, err = js.CreateOrUpdateKeyValue(ctx, cfg); err == nil && cfg.TTL == 0 {
			kv, err = js.CreateOrUpdateKeyValue(ctx, cfg) // a bucket without a TTL must survive restarts: see putSettings
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", cfg.Bucket, err)
	}
	return kv, nil
}

// NeedReplicas returns an edda.Permanent error if an existing stream has fewer replicas than the
// least number; 0 means any. A bucket is the stream KV_ and its name.
func NeedReplicas(ctx context.Context, js jetstream.JetStream, stream string, least int) error {
	if least == 0 {
		return nil
	}
	s, err := js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", stream, err)
	}
	return EnoughReplicas(s.CachedInfo().Config, least)
}

// put writes a value if the key has the revision over; 0 means no value. If the key has another
// revision, the error satisfies Overtaken.
func put(ctx context.Context, kv jetstream.KeyValue, key string, value []byte, over uint64) (revision uint64, err error) {
	if over == 0 {
		return kv.Create(ctx, key, value)
	}
	return kv.Update(ctx, key, value, over)
}

// Overtaken reports whether a write failed because the key has another revision. A replicated
// bucket has an error code of its own for that, which the client does not always translate.
func Overtaken(err error) bool {
	var refused *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) ||
		errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// keys lists the keys of a bucket at one moment. The client's Keys reads message by message and
// misses a key that is written meanwhile.
func keys(ctx context.Context, js jetstream.JetStream, bucket string) ([]string, error) {
	s, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		return nil, err
	}
	prefix := "$KV." + bucket + "."
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, err
	}
	var out []string
	for subject := range info.State.Subjects {
		out = append(out, strings.TrimPrefix(subject, prefix))
	}
	return out, nil
}
