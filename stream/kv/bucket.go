package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// openBucket finds the bucket, or makes it.
func openBucket(ctx context.Context, js jetstream.JetStream, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if kv, err = js.CreateOrUpdateKeyValue(ctx, cfg); err == nil && cfg.TTL == 0 {
			kv, err = js.CreateOrUpdateKeyValue(ctx, cfg) // it is kept for good: see putSettings
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", cfg.Bucket, err)
	}
	return kv, nil
}

// put writes a value in place of the revision over; 0 is for none. An error that is
// overtaken says that the key has another revision.
func put(ctx context.Context, kv jetstream.KeyValue, key string, value []byte, over uint64) (revision uint64, err error) {
	if over == 0 {
		return kv.Create(ctx, key, value)
	}
	return kv.Update(ctx, key, value, over)
}

// overtaken tells whether a write failed because another one came before it. A
// replicated bucket has a code of its own for that, and the client does not
// always translate it.
func overtaken(err error) bool {
	var refused *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) ||
		errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// keys lists what a bucket has, as the server has it at one moment. The
// bucket's own Keys reads message by message, and leaves out a key that
// is written meanwhile.
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
