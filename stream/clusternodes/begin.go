package clusternodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/kv"
)

// The shards of a cluster begin one after the other, and must begin alike. The first one that asks says how, in the bucket of
// the cluster, and all others follow, whenever they come.

const (
	// beginPrefix begins the keys of streams, which say where the shards begin to read them.
	beginPrefix = "begin."
	// manifestsKey is the key that says with which manifests the shards begin.
	manifestsKey = "manifests"
	// beginWithin bounds an agreement. An election of the bucket's leader may take longer, and fails it.
	beginWithin = 5 * time.Second
)

// FirstManifests are the manifests with which the shards of a cluster begin.
type FirstManifests struct {
	Hash string    `json:"hash"`
	Time time.Time `json:"time"` // of the first shard
}

// Begin returns the position at which the shards of a cluster begin to read a stream: what is stored meanwhile is for each
// of them. The first shard says it, as at.
func Begin(ctx context.Context, js jetstream.JetStream, cluster string, at edda.Checkpoint) (edda.Checkpoint, error) {
	agreed, err := beginAs(ctx, js, cluster, beginPrefix+kv.Token(at.Stream), at)
	if err != nil {
		return edda.Checkpoint{}, fmt.Errorf("agree on where cluster %s begins to read stream %s: %w", cluster, at.Stream, err)
	}
	return agreed, nil
}

// BeginManifests returns the manifests with which the shards of a cluster begin. The first shard says them, as m.
func BeginManifests(ctx context.Context, js jetstream.JetStream, cluster string, m FirstManifests) (FirstManifests, error) {
	agreed, err := beginAs(ctx, js, cluster, manifestsKey, m)
	if err != nil {
		return m, fmt.Errorf("agree on the manifests with which cluster %s begins: %w", cluster, err)
	}
	return agreed, nil
}

// BegunManifests returns the manifests with which the shards of a cluster begin; false while no shard has said them.
func BegunManifests(ctx context.Context, js jetstream.JetStream, cluster string) (m FirstManifests, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	m, err = begunAs[FirstManifests](ctx, js, cluster, manifestsKey)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("read the manifests with which cluster %s begins: %w", cluster, err)
	}
	return m, true, nil
}

// beginAs writes a value under a key that nobody has written, or else returns what is there.
func beginAs[T any](ctx context.Context, js jetstream.JetStream, cluster, key string, first T) (agreed T, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	text, err := json.Marshal(first)
	if err != nil {
		return agreed, err
	}
	values, err := js.KeyValue(ctx, bucketOf+cluster)
	if err != nil {
		return agreed, err
	}
	_, err = values.Create(ctx, key, text)
	if err == nil {
		return first, nil
	}
	if !kv.Overtaken(err) {
		return agreed, err
	}
	return begunAs[T](ctx, js, cluster, key)
}

// begunAs asks the leader: another server may not know the key yet.
func begunAs[T any](ctx context.Context, js jetstream.JetStream, cluster, key string) (agreed T, err error) {
	bucket := bucketOf + cluster
	leader, err := leaderOf(ctx, js, bucket)
	if err != nil {
		return agreed, err
	}
	m, err := leader.GetLastMsgForSubject(ctx, "$KV."+bucket+"."+key)
	if err != nil {
		return agreed, err
	}
	if err := json.Unmarshal(m.Data, &agreed); err != nil {
		return agreed, edda.Classify(edda.Permanent, "key %s of bucket %s cannot be read: %w", key, bucket, err)
	}
	return agreed, nil
}
