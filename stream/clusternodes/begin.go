package clusternodes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/kv"
)

const (
	// beginPrefix begins the keys of streams, which say where the shards begin to read them.
	beginPrefix = "begin."
	// beginWithin bounds the agreement about a stream. An election of the bucket's leader may take longer, and fails it.
	beginWithin = 5 * time.Second
)

// Begin returns the position at which the shards of a cluster begin to read a stream. The first shard that asks says it, as
// at, and all others follow, whenever they come: what is stored meanwhile is for each of them.
func Begin(ctx context.Context, js jetstream.JetStream, cluster string, at edda.Checkpoint) (edda.Checkpoint, error) {
	bucket, key := bucketOf+cluster, beginPrefix+kv.Token(at.Stream)
	failed := func(err error) (edda.Checkpoint, error) {
		return edda.Checkpoint{}, fmt.Errorf("agree on where cluster %s begins to read stream %s: %w", cluster, at.Stream, err)
	}
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	text, err := json.Marshal(at)
	if err != nil {
		return failed(err)
	}
	values, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return failed(err)
	}
	_, err = values.Create(ctx, key, text)
	if err == nil {
		return at, nil
	}
	if !kv.Overtaken(err) {
		return failed(err)
	}
	leader, err := leaderOf(ctx, js, bucket)
	if err != nil {
		return failed(err)
	}
	m, err := leader.GetLastMsgForSubject(ctx, "$KV."+bucket+"."+key)
	if err != nil {
		return failed(err)
	}
	var agreed edda.Checkpoint
	if err := json.Unmarshal(m.Data, &agreed); err != nil {
		return failed(edda.Classify(edda.Permanent, "key %s of bucket %s is no position: %w", key, bucket, err))
	}
	return agreed, nil
}
