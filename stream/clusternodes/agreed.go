package clusternodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/stream/kv"
)

const (
	// agreedKey is the key of what the nodes agree on.
	agreedKey = "config"
	// nameWatched is the time between two looks for another process of this node's name. That one beats several times
	// meanwhile. If it is frozen and owns the log, its fence has closed before the beats of this process tell the others
	// that the node goes on without it.
	nameWatched = cluster.LapseAfter + cluster.BeatEvery
	// nameLooks is how often it looks before it believes that: a server may store beats late.
	nameLooks = 4
)

// Agreed is what the nodes of a cluster agree on.
type Agreed struct {
	Store   string    `json:"store"`   // id of the store that the cluster keeps
	Founder string    `json:"founder"` // the node that had it first
	Level   int       `json:"level"`   // what owners may write
	Created time.Time `json:"created"`
	Shards  int       `json:"shards,omitempty"` // how many stores keep the keys; 0: one
	Left    string    `json:"left,omitempty"`   // the node that has taken the store out of the cluster, which has ended
}

// Agreed returns what the nodes agree on. known is false before a node has founded the cluster.
func (n *Nodes) Agreed(ctx context.Context) (a Agreed, known bool, err error) {
	a, _, err = n.agreed(ctx)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return a, false, nil
	}
	return a, err == nil, err
}

// agreed asks the leader: another server may not know yet that the cluster was founded.
func (n *Nodes) agreed(ctx context.Context) (a Agreed, revision uint64, err error) {
	a, m, err := readAgreed(ctx, n.leader, n.kv.Bucket())
	if err != nil {
		return a, 0, err
	}
	n.raised(a.Level)
	return a, m.Sequence, nil
}

// AgreedOn is what a cluster agrees on, for those who are no node of its first shard; false without a cluster.
func AgreedOn(ctx context.Context, js jetstream.JetStream, cluster string) (a Agreed, known bool, err error) {
	s, err := leaderOf(ctx, js, bucketOf+cluster)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return a, false, nil
	}
	if err != nil {
		return a, false, err
	}
	a, _, err = readAgreed(ctx, s, bucketOf+cluster)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return a, false, nil
	}
	return a, err == nil, err
}

// readAgreed reads what nodes agree on, and the message that has it.
func readAgreed(ctx context.Context, leader jetstream.Stream, bucket string) (a Agreed, m *jetstream.RawStreamMsg, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	m, err = leader.GetLastMsgForSubject(ctx, "$KV."+bucket+"."+agreedKey)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return a, nil, jetstream.ErrKeyNotFound
	}
	if err != nil {
		return a, nil, fmt.Errorf("read what the cluster has agreed on in bucket %s: %w", bucket, err)
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, nil, edda.Classify(edda.Permanent, "what the cluster has agreed on in bucket %s is no JSON: %w", bucket, err)
	}
	return a, m, nil
}

// Found founds the cluster, unless another node was first. It returns what the nodes agree on from now on.
func (n *Nodes) Found(ctx context.Context, a Agreed) (Agreed, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return a, err
	}
	_, err = n.kv.Create(ctx, agreedKey, text)
	switch {
	case err == nil:
		n.raised(a.Level)
		return a, nil
	case !kv.Overtaken(err):
		return a, fmt.Errorf("found the cluster %s: %w", n.o.Cluster, err)
	}
	a, _, err = n.agreed(ctx)
	return a, err
}

// FoundAgain replaces what the nodes agree on, for a cluster whose log begins again.
func (n *Nodes) FoundAgain(ctx context.Context, a Agreed) error {
	text, err := json.Marshal(a)
	if err == nil {
		_, err = n.kv.Put(ctx, agreedKey, text)
	}
	if err != nil {
		return fmt.Errorf("found the cluster %s again: %w", n.o.Cluster, err)
	}
	return nil
}

// Level returns the level of what owners may write, as this node has read or heard it last; 0 before that. It asks nobody.
func (n *Nodes) Level() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.level
}

// raised notes a level, which never falls. The watch may bring an older one after a read.
func (n *Nodes) raised(level int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.level = max(n.level, level)
}

// Raise raises the level of what owners may write.
func (n *Nodes) Raise(ctx context.Context, level int) error {
	a, revision, err := n.agreed(ctx)
	if err != nil || a.Level >= level {
		return err
	}
	a.Level = level
	text, err := json.Marshal(a)
	if err == nil {
		_, err = n.kv.Update(ctx, agreedKey, text, revision)
	}
	if err != nil {
		return fmt.Errorf("raise the level of the cluster %s: %w", n.o.Cluster, err)
	}
	n.raised(level)
	return nil
}

// Unique returns an edda.Permanent error if another process beats under the name of this node, and whether the bucket has
// a beat of that name. It must be called before Run.
func (n *Nodes) Unique(ctx context.Context) (known bool, err error) {
	before, err := n.own(ctx)
	for look := 0; err == nil && before > 0; look++ {
		if look == nameLooks {
			return true, n.taken(errors.New("another process"))
		}
		if err := backoff.Wait(ctx, nameWatched); err != nil {
			return true, err
		}
		after := uint64(0)
		if after, err = n.own(ctx); err != nil || after == before {
			return true, err
		}
		before = after // it may be a late beat of a process that has ended
	}
	return false, err
}

// taken is the error of a node whose name another process has.
func (n *Nodes) taken(by error) error {
	return edda.Classify(edda.Permanent, "%w runs as node %s of cluster %s: give each node a name of its own "+
		"(--node, cluster.node; unset, it is the name of the host)", by, n.o.ID, n.o.Cluster)
}

// own is the revision of this node's key; 0 without one. It asks the leader: a replica that lags answers the same one twice.
func (n *Nodes) own(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	m, err := n.leader.GetLastMsgForSubject(ctx, "$KV."+n.kv.Bucket()+"."+prefix+n.o.ID)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look for another process of node %s: %w", n.o.ID, err)
	case m.Header.Get(operation) != "": // the node has left
		return 0, nil
	}
	return m.Sequence, nil
}

// Remove removes the bucket of a cluster's shard for good.
func Remove(ctx context.Context, js jetstream.JetStream, cluster string, shard int) error {
	err := js.DeleteKeyValue(ctx, bucket(cluster, shard))
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("remove the bucket of cluster %s: %w", cluster, err)
	}
	return nil
}
